"""One question by one agent of agno, as its documentation begins."""

import os

from agno.agent import Agent
from agno.models.openai import OpenAIChat

model = OpenAIChat(id="mock", base_url=os.environ["BENCH_URL"] + "/v1", api_key="bench")
print(Agent(model=model, telemetry=False).run("hi").content)
