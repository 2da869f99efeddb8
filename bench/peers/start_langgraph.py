"""One question by one agent of LangChain on LangGraph, as its documentation begins."""

import os

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model="mock", base_url=os.environ["BENCH_URL"] + "/v1", api_key="bench")
said = create_agent(model, []).invoke({"messages": [{"role": "user", "content": "hi"}]})
print(said["messages"][-1].content)
