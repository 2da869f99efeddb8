"""A lead with parallel agents, one of which waits for a person at depth three.

Run as a program, with a project, it prints its session id and works until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import shoal
from cast import agent, cast, use
from shoal.core.requests import Request
from shoal.models.scripted import ScriptedModel
from shoal.tools.define import FunctionTool

SIBLINGS = 4


def counting(project: Path) -> FunctionTool:
    @shoal.tool(name="Count", reads_only=True)
    async def count(site: shoal.Site) -> str:
        """Leave a line."""
        with (project / "counted").open("a") as lines:
            lines.write(f"{site.agent.agent}\n")
        return "counted"

    return count


def model(seen: list[Request]) -> ScriptedModel:
    """Script the agents; the requests of the deepest agent are appended to `requests`."""

    def deep(request: Request) -> Any:
        seen.append(request)
        return use("Write", f"w{len(request.messages)}", file_path="deep.txt", content="as planned")

    def deep_end(request: Request) -> Any:
        seen.append(request)
        return "wrote it"

    siblings = [agent(f"sibling {n}", f"s{n}") for n in range(SIBLINGS)]
    return cast(
        lead=[
            [agent("one", "c1"), *siblings],
            use("SendMessage", "m1", to="deep", message="go on", summary="go on with it"),
            "waiting",
            "end",
        ],
        one=[agent("two", "c2"), "one is done"],
        two=[agent("three", "c3", name="deep"), "two is done"],
        three=[deep, deep, deep_end],
        sibling=[use("Count", "n1"), "counted"],
    )


async def main(project: Path) -> None:
    options: dict[str, Any] = {"attended": True, "tools": [counting(project)], "allowed_tools": ["Count"]}
    async with shoal.open(cwd=project, model=model([]), **options) as session:
        sys.stdout.write(f"{session.id}\n")
        sys.stdout.flush()
        async for _ in session.run("lead"):
            pass


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
