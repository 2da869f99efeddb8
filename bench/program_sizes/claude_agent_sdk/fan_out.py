"""One agent for each file, at most 20 at once. The budget is divided: sessions cannot share one."""

import asyncio
import sys

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query


async def review(file: str, limit: asyncio.Semaphore, budget: float) -> str:
    options = ClaudeAgentOptions(
        system_prompt="You review one file.", tools=["Read", "Grep"], max_budget_usd=budget
    )
    async with limit:
        async for message in query(prompt=f"Review {file}", options=options):
            if isinstance(message, ResultMessage):
                return message.result or message.subtype
    return "no result"


async def main(files: list[str]) -> None:
    limit = asyncio.Semaphore(20)
    results = await asyncio.gather(*(review(file, limit, 5 / len(files)) for file in files))
    for file, result in zip(files, results, strict=True):
        print(f"{file}: {result}")


asyncio.run(main(sys.argv[1:]))
