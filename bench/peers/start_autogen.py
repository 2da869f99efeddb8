"""One question by one agent of AutoGen, as its documentation begins."""

import asyncio
import os

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient


async def main() -> None:
    info = ModelInfo(
        vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False
    )
    client = OpenAIChatCompletionClient(
        model="mock", base_url=os.environ["BENCH_URL"] + "/v1", api_key="bench", model_info=info
    )
    print((await AssistantAgent("agent", client).run(task="hi")).messages[-1].content)
    await client.close()


asyncio.run(main())
