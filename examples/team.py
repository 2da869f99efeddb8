"""Runs two teammates in separate processes that share a task board. Try it: python examples/team.py

Kill it at any time; resume_team.py resumes the team.
"""

import asyncio

import shoal

ana = shoal.Agent("ana", prompt="You write Python code.")
ben = shoal.Agent("ben", prompt="You review code and fix what is wrong.")


async def main() -> None:
    async with shoal.Team("greeters", members=[ana, ben], backend="process", mode="acceptEdits") as team:
        write = await team.add_task("Write hello.txt", owner="ana", accept="grep -q hello hello.txt")
        await team.add_task("Check hello.txt", owner="ben", blocked_by=[write])
        async for event in team.events():
            if isinstance(event, shoal.events.TaskChanged):
                print(f"#{event.task} {event.status}")
        report = await team.finished()
    print(f"finished: {report.ok}, ${report.cost_usd}")


asyncio.run(main())
