"""Runs one agent for each file, at most 20 at once, within one budget.

Try it: python examples/fan_out.py *.py
"""

import asyncio
import sys

import shoal

reviewer = shoal.Agent("reviewer", prompt="You review one file.", tools=["Read", "Grep"])


async def main(files: list[str]) -> None:
    async with shoal.open(budget=shoal.Budget(usd=5)) as session:
        results = await session.map(reviewer, [f"Review {file}" for file in files], at_once=20)
    for file, result in zip(files, results, strict=True):
        print(f"{file}: {result.text if result.ok else result.detail}")


asyncio.run(main(sys.argv[1:]))
