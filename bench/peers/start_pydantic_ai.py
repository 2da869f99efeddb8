"""One question by one agent of Pydantic AI, as its documentation begins."""

import os

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=os.environ["BENCH_URL"] + "/v1", api_key="bench")
print(Agent(OpenAIChatModel("mock", provider=provider)).run_sync("hi").output)
