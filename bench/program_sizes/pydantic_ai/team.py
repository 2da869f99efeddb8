"""Two agents with tasks in order, in one process. Nothing is resumed after a crash."""

import asyncio
import subprocess

from pydantic_ai import Agent


def write(path: str, content: str) -> str:
    """Write a file."""
    with open(path, "w") as file:
        file.write(content)
    return "written"


def read(path: str) -> str:
    """Read a file."""
    with open(path) as file:
        return file.read()


ana = Agent("anthropic:claude-sonnet-4-5", instructions="You write Python code.", tools=[write, read])
ben = Agent(
    "anthropic:claude-sonnet-4-5", instructions="You review code and fix what is wrong.", tools=[write, read]
)


async def main() -> None:
    prompt = "Write hello.txt"
    for _ in range(3):
        await ana.run(prompt)
        if subprocess.run("grep -q hello hello.txt", shell=True).returncode == 0:
            break
        prompt = "hello.txt does not contain hello. Write it again."
    print("#1 completed")
    result = await ben.run("Check hello.txt")
    print("#2 completed")
    print(f"finished: {result.output}")


asyncio.run(main())
