"""A lead with parallel agents, one of which waits for a person at depth three.

Run as a program, with a project, it prints its session id and works until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import shoal
from agent_scripts import call_tool, script_agents, spawn_agent
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.scripted_model import ScriptedModel
from shoal.tools.function_tool import FunctionTool

SIBLINGS = 4


def create_count_tool(project: Path) -> FunctionTool:
    @shoal.tool(name="Count", reads_only=True)
    async def count(context: shoal.ToolContext) -> str:
        """Leave a line."""
        with (project / "counted").open("a") as lines:
            lines.write(f"{context.agent.agent}\n")
        return "counted"

    return count


def script_paused_agents(requests: list[ModelRequest]) -> ScriptedModel:
    """Script the agents; the requests of the deepest agent are appended to `requests`."""

    def write_file(request: ModelRequest) -> Any:
        requests.append(request)
        return call_tool("Write", f"w{len(request.messages)}", file_path="deep.txt", content="as planned")

    def finish(request: ModelRequest) -> Any:
        requests.append(request)
        return "wrote it"

    siblings = [spawn_agent(f"sibling {n}", f"s{n}") for n in range(SIBLINGS)]
    return script_agents(
        lead=[
            [spawn_agent("one", "c1"), *siblings],
            call_tool("SendMessage", "m1", to="deep", message="go on", summary="go on with it"),
            "waiting",
            "end",
        ],
        one=[spawn_agent("two", "c2"), "one is done"],
        two=[spawn_agent("three", "c3", name="deep"), "two is done"],
        three=[write_file, write_file, finish],
        sibling=[call_tool("Count", "n1"), "counted"],
    )


async def main(project: Path) -> None:
    options: dict[str, Any] = {
        "attended": True,
        "tools": [create_count_tool(project)],
        "allowed_tools": ["Count"],
    }
    async with shoal.open(cwd=project, model=script_paused_agents([]), **options) as session:
        sys.stdout.write(f"{session.id}\n")
        sys.stdout.flush()
        async for _ in session.run("lead"):
            pass


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
