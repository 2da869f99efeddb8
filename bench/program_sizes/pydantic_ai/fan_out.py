"""One agent for each file, at most 20 at once. The budget counts tokens, and is checked between requests."""

import asyncio
import sys

from pydantic_ai import Agent, RunUsage, UsageLimits

reviewer = Agent("anthropic:claude-sonnet-4-5", instructions="You review one file.")


@reviewer.tool_plain
def read(path: str) -> str:
    """Read a file."""
    with open(path) as file:
        return file.read()


async def review(file: str, limit: asyncio.Semaphore, usage: RunUsage) -> str:
    async with limit:
        limits = UsageLimits(total_tokens_limit=1_000_000)
        try:
            return (await reviewer.run(f"Review {file}", usage=usage, usage_limits=limits)).output
        except Exception as error:
            return str(error)


async def main(files: list[str]) -> None:
    limit, usage = asyncio.Semaphore(20), RunUsage()
    results = await asyncio.gather(*(review(file, limit, usage) for file in files))
    for file, result in zip(files, results, strict=True):
        print(f"{file}: {result}")


asyncio.run(main(sys.argv[1:]))
