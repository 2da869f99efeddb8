"""A tool that forbids commands before they run, and a function that sees each result."""

import subprocess

from agents import Agent, RunHooks, Runner, function_tool


@function_tool
def bash(command: str) -> str:
    """Run a command."""
    if "rm " in command:
        return "Nothing is deleted here."
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


class Log(RunHooks):
    async def on_tool_end(self, context, agent, tool, result):
        print(f"{tool.name} finished")


agent = Agent(name="assistant", tools=[bash])
print(Runner.run_sync(agent, "Clean up this directory.", hooks=Log()).final_output)
