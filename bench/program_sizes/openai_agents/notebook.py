"""Cells of a notebook; the function stands for their common scope. The agent has no file tools."""

from agents import Agent, Runner, SQLiteSession


async def run_cells():
    agent, session = Agent(name="assistant"), SQLiteSession("notebook")
    (await Runner.run(agent, "What is in this directory?", session=session)).final_output
    (await Runner.run(agent, "And which file is the largest?", session=session)).final_output
    session.close()
