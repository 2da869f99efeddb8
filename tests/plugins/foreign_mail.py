"""Mail that another program writes into the inboxes of a working team."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import shoal
from shoal.core.events import Event, NoteAdded
from team_scripts import get_home

TIMESTAMP = "2026-02-13T10:11:35.247Z"
WRITER = Path(__file__).parents[1] / "team" / "foreign_writer.py"


def make_entry(sender: str, text: str, **more: Any) -> dict[str, Any]:
    return {"from": sender, "text": text, "timestamp": TIMESTAMP, "read": False, **more}


def encode_body(kind: str, fields: dict[str, Any]) -> str:
    return json.dumps({"type": kind, **fields})


async def write_to_inbox(to: str, *entries: dict[str, Any], team: str = "crew") -> None:
    """Write entries into a member's inbox from another program."""
    path = get_home() / "teams" / team / "inboxes" / f"{to}.json"
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(WRITER), str(path), stdin=asyncio.subprocess.PIPE
    )
    await process.communicate(json.dumps(entries).encode())
    assert process.returncode == 0


def write_to_inbox_before_it_is_read(to: str, entry: dict[str, Any]) -> None:
    """Write an entry from another program; nothing in this process runs until it is written."""
    path = get_home() / "teams" / "crew" / "inboxes" / f"{to}.json"
    subprocess.run([sys.executable, str(WRITER), str(path)], input=json.dumps([entry]).encode(), check=True)


async def run_until_quiet(session: shoal.Session) -> None:
    """Take turns until the team is quiet and the lead has received everything."""
    async with asyncio.timeout(30):
        while (turn := await session.next_turn()) is not None:
            async for _ in turn:
                pass


def join_notes(events: Sequence[Event]) -> str:
    return "\n".join(event.text for event in events if isinstance(event, NoteAdded))
