"""Resumes the team from team.py after a crash. Try it: python examples/resume_team.py"""

import asyncio

import shoal


async def main() -> None:
    async with shoal.Team.resume("greeters") as team:
        report = await team.finished()
    print(f"finished: {report.ok}, ${report.cost_usd}")


asyncio.run(main())
