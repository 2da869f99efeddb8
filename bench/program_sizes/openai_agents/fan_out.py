"""One agent for each file, at most 20 at once. There is no budget in dollars: only turns are limited."""

import asyncio
import sys

from agents import Agent, Runner, function_tool


@function_tool
def read(path: str) -> str:
    """Read a file."""
    with open(path) as file:
        return file.read()


reviewer = Agent(name="reviewer", instructions="You review one file.", tools=[read])


async def review(file: str, limit: asyncio.Semaphore) -> str:
    async with limit:
        try:
            return (await Runner.run(reviewer, f"Review {file}", max_turns=20)).final_output
        except Exception as error:
            return str(error)


async def main(files: list[str]) -> None:
    limit = asyncio.Semaphore(20)
    results = await asyncio.gather(*(review(file, limit) for file in files))
    for file, result in zip(files, results, strict=True):
        print(f"{file}: {result}")


asyncio.run(main(sys.argv[1:]))
