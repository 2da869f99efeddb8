"""Hooks that log their input, and an agent called WORKER in each position where agents run."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import shoal
from cast import agent, all_turns, recorded, use
from fleet import text_of
from shoal.core.events import HookRan
from shoal.testing import messages_server
from shoal.testing.replies import Body, Sayable
from troupe import member

PLACES = ("lead", "sub-agent", "nested agent", "teammate", "teammate in a process")
TEAMMATES = PLACES[3:]
Line: TypeAlias = Sayable | Callable[[Body], Sayable]
_LEADERS: dict[str, dict[str, list[Any]]] = {
    "lead": {},
    "sub-agent": {"LEAD": [agent("WORKER: begin"), "over"]},
    "nested agent": {"LEAD": [agent("MIDDLE: begin"), "over"], "MIDDLE": [agent("WORKER: begin"), "over"]},
    "teammate": {"LEAD": [use("TeamCreate", team_name="crew"), member("ann", "WORKER: begin"), "waiting"]},
}
_LEADERS["teammate in a process"] = _LEADERS["teammate"]


def opening_words(body: Body) -> str:
    """Return the text before the first reply of the model."""
    said = []
    for message in body["messages"]:
        if message["role"] == "assistant":
            break
        said.append(text_of(message["content"]))
    return "\n".join(said)


def results(body: Body) -> list[str]:
    """List the results of the calls so far."""
    blocks = [block for message in body["messages"] for block in _blocks(message["content"])]
    return [text_of(block["content"]) for block in blocks if block.get("type") == "tool_result"]


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [] if isinstance(content, str) else list(content)


class Log:
    """A file to which hooks append their input, one line each."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def keeping(self, then: str = "") -> str:
        """Build a command that logs its input and then runs `next_command`."""
        return f"{{ cat; echo; }} >> '{self.path}'; {then}"

    def lines(self, event: str = "") -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        told = [json.loads(line) for line in self.path.read_text().splitlines() if line]
        return [each for each in told if event in ("", each["hook_event_name"])]


def command(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "command", "command": text, **more}


def says(answer: dict[str, Any]) -> str:
    """Build a command that prints this answer."""
    return f"echo {shlex.quote(json.dumps(answer))}"


def specific(**fields: Any) -> str:
    return says({"hookSpecificOutput": fields})


def settings(hooks: dict[str, Any], **more: Any) -> str:
    """Make settings with one entry per event: a command, a (matcher, command) pair, or a complete entry."""
    return json.dumps({"hooks": {event: [_entry(each)] for event, each in hooks.items()}, **more})


def _entry(given: Any) -> dict[str, Any]:
    if isinstance(given, str):
        return {"hooks": [command(given)]}
    if isinstance(given, tuple):
        return {"matcher": given[0], "hooks": [command(given[1])]}
    return dict(given)


class Stage:
    def __init__(self, place: str, session: shoal.Session, asked: list[Body]) -> None:
        self.place = place
        self.session = session
        self._asked = asked

    @property
    def asked(self) -> list[Body]:
        """Requests sent to the worker's model."""
        return [body for body in self._asked if "WORKER" in opening_words(body)]

    @property
    def last(self) -> Body:
        return self.asked[-1]

    @property
    def ran(self) -> list[HookRan]:
        return [event for event in recorded(self.session) if isinstance(event, HookRan)]

    async def play(self) -> str:
        return await all_turns(self.session, "WORKER: begin" if self.place == "lead" else "LEAD: begin")


@asynccontextmanager
async def staged(
    place: str,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    part: Sequence[Line],
    configured: str,
    **options: Any,
) -> AsyncIterator[Stage]:
    """Open a session in which the worker plays `script` line by line and repeats its last line."""
    asked: list[Body] = []

    def mind(body: Body) -> Sayable:
        asked.append(body)
        words = opening_words(body)
        lines = part if "WORKER" in words else _LEADERS[place]["MIDDLE" if "MIDDLE" in words else "LEAD"]
        spoken = sum(message["role"] == "assistant" for message in body["messages"])
        line = lines[min(spoken, len(lines) - 1)]
        return line(body) if callable(line) else line

    raw = json.loads(configured)
    mode = "process" if place == PLACES[4] else "in-process"
    raw["shoal"] = {**raw.get("shoal", {}), "teammate_mode": mode}
    async with messages_server(mind) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
        given = {"skip_permissions": True, "settings": json.dumps(raw), **options}
        async with shoal.open(cwd=project, model="anthropic:claude-sonnet-4-5", **given) as session:
            yield Stage(place, session, asked)
