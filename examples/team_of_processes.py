"""A lead and two teammates, each in a separate process: one works and messages the other, then all shut down.

Runs offline, in a temporary home: the models' replies are scripted, in a file that every process reads; the
processes, the board, the mail and the transcripts are real. Try it: python examples/team_of_processes.py
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import shoal

BYE = r'"shutdown_response", "request_id": "(?P<request>[^"]+)"'
ALL_GONE = r"(?s)(?=.*terminated: task anna@)(?=.*terminated: task ben@)"


def call_tool(tool: str, /, **arguments: object) -> dict[str, Any]:
    return {"name": tool, "input": arguments}


def send_message(to: str, summary: str, message: object) -> dict[str, Any]:
    return call_tool("SendMessage", to=to, message=message, **({"summary": summary} if summary else {}))


def spawn_member(name: str, prompt: str) -> dict[str, Any]:
    return call_tool("Agent", name=name, subagent_type="general-purpose", description=name, prompt=prompt)


SCRIPT = [
    # A member that is asked to shut down agrees.
    {
        "pattern": BYE,
        "tools": [
            send_message(
                "team-lead", "", {"type": "shutdown_response", "request_id": "{{request}}", "approve": True}
            )
        ],
    },
    {"match": "Write hello.txt", "tools": [call_tool("Write", file_path="hello.txt", content="hello\n")]},
    {
        "system": "You are anna",
        "match": "hello.txt",
        "tools": [send_message("ben", "It is there", "Please check it.")],
    },
    {
        "system": "You are ben",
        "match": "Please check it.",
        "tools": [call_tool("Read", file_path="hello.txt")],
    },
    {
        "system": "You are ben",
        "pattern": r"1\thello",
        "tools": [send_message("team-lead", "Done", "It says hello.")],
    },
    {"system": "a member of the team", "repeat": True, "text": "That is all for now."},
    # The lead.
    {"match": "Have a greeting written", "tools": [call_tool("TeamCreate", team_name="greeters")]},
    {
        "match": "You now lead the team",
        "tools": [spawn_member("anna", "Write hello.txt."), spawn_member("ben", "Wait for anna.")],
    },
    {
        "match": "It says hello.",
        "tools": [
            send_message(name, "", {"type": "shutdown_request", "reason": "done"}) for name in ("anna", "ben")
        ],
    },
    {"pattern": ALL_GONE, "text": "The greeting is written and checked."},
    {"repeat": True},
]


def print_event(event: shoal.events.Event) -> None:
    match event:
        case shoal.events.AgentStarted(name=name):
            print(f"{name} starts")
        case shoal.events.ToolFinished(agent=agent, tool="Write" | "Read" as tool):
            print(f"{agent}: {tool}")
        case shoal.events.AgentEnded(completion=result):
            print(f"{result.name} ends: {result.status}")


async def main(place: Path) -> None:
    (place / "script.json").write_text(json.dumps(SCRIPT))
    (place / "project").mkdir()
    async with shoal.open(
        cwd=place / "project",
        model=f"scripted:{place / 'script.json'}",
        mode="acceptEdits",
        settings=json.dumps({"shoal": {"teammate_mode": "process"}}),
        deadline=60,
    ) as session:
        session.subscribe(print_event)
        turn = session.run("Have a greeting written and checked.")
        while turn is not None:
            async for event in turn:
                if isinstance(event, shoal.events.RunFinished) and event.text:
                    print("lead:", event.text)
            turn = await session.next_turn()
    print("in the project:", (place / "project" / "hello.txt").read_text().strip())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        os.environ["SHOAL_HOME"] = directory
        asyncio.run(main(Path(directory)))
