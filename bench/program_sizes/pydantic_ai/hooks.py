"""A tool that forbids commands before they run, and prints when it has finished."""

import subprocess

from pydantic_ai import Agent, ModelRetry

agent = Agent("anthropic:claude-sonnet-4-5")


@agent.tool_plain
def bash(command: str) -> str:
    """Run a command."""
    if "rm " in command:
        raise ModelRetry("Nothing is deleted here.")
    output = subprocess.run(command, shell=True, capture_output=True, text=True).stdout
    print("bash finished")
    return output


print(agent.run_sync("Clean up this directory.").output)
