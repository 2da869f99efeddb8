"""Cells of a notebook; the function stands for their common scope. The agent has no file tools."""

from pydantic_ai import Agent


async def run_cells():
    agent = Agent("anthropic:claude-sonnet-4-5")
    first = await agent.run("What is in this directory?")
    first.output
    second = await agent.run("And which file is the largest?", message_history=first.all_messages())
    second.output
