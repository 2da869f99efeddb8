"""Two agents with tasks in order, in one process. Nothing is resumed after a crash."""

import asyncio
import subprocess

from agents import Agent, Runner, function_tool


@function_tool
def write(path: str, content: str) -> str:
    """Write a file."""
    with open(path, "w") as file:
        file.write(content)
    return "written"


@function_tool
def read(path: str) -> str:
    """Read a file."""
    with open(path) as file:
        return file.read()


ana = Agent(name="ana", instructions="You write Python code.", tools=[write, read])
ben = Agent(name="ben", instructions="You review code and fix what is wrong.", tools=[write, read])


async def main() -> None:
    prompt = "Write hello.txt"
    for _ in range(3):
        await Runner.run(ana, prompt)
        if subprocess.run("grep -q hello hello.txt", shell=True).returncode == 0:
            break
        prompt = "hello.txt does not contain hello. Write it again."
    print("#1 completed")
    result = await Runner.run(ben, "Check hello.txt")
    print("#2 completed")
    print(f"finished: {result.final_output}")


asyncio.run(main())
