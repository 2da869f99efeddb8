"""One question by one agent of smolagents, as its documentation begins."""

import os

from smolagents import LogLevel, OpenAIServerModel, ToolCallingAgent

model = OpenAIServerModel(model_id="mock", api_base=os.environ["BENCH_URL"] + "/v1", api_key="bench")
print(ToolCallingAgent(tools=[], model=model, verbosity_level=LogLevel.OFF).run("hi"))
