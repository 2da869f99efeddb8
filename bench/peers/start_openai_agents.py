"""One question by one agent of OpenAI's Agents SDK, as its documentation begins. Tracing is off."""

import os

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=os.environ["BENCH_URL"] + "/v1", api_key="bench")
agent = Agent(name="agent", model=OpenAIChatCompletionsModel("mock", openai_client=client))
print(Runner.run_sync(agent, "hi").final_output)
