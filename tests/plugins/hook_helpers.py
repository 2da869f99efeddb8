"""Hooks that log their input, and an agent called WORKER in each position where agents run."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import shoal
from agent_scripts import call_tool, read_events, run_all_turns, spawn_agent
from server_scripts import join_text
from shoal.core.events import HookRan
from shoal.testing import messages_server
from shoal.testing.mock_replies import ReplyLike, RequestBody
from team_scripts import spawn_member

AGENT_POSITIONS = ("lead", "sub-agent", "nested agent", "teammate", "teammate in a process")
TEAMMATE_POSITIONS = AGENT_POSITIONS[3:]
HookScriptLine: TypeAlias = ReplyLike | Callable[[RequestBody], ReplyLike]


def _build_parent_scripts(
    position: str, first: Sequence[HookScriptLine], spawn: Mapping[str, Any]
) -> dict[str, list[HookScriptLine]]:
    """Build the scripts of the agents above the worker; `first` are the lead's calls before it starts one."""
    start = spawn_agent("WORKER: begin", **spawn)
    if position in TEAMMATE_POSITIONS:
        start = spawn_member("ann", "WORKER: begin", **spawn)
        return {"LEAD": [*first, call_tool("TeamCreate", team_name="crew"), start, "waiting"]}
    if position == "nested agent":
        return {"LEAD": [*first, spawn_agent("MIDDLE: begin"), "over"], "MIDDLE": [start, "over"]}
    return {"LEAD": [*first, start, "over"]}


def get_opening_text(body: RequestBody) -> str:
    """Return the text before the first reply of the model."""
    said = []
    for message in body["messages"]:
        if message["role"] == "assistant":
            break
        said.append(join_text(message["content"]))
    return "\n".join(said)


def list_results(body: RequestBody) -> list[str]:
    """List the results of the calls so far."""
    blocks = [block for message in body["messages"] for block in _list_blocks(message["content"])]
    return [join_text(block["content"]) for block in blocks if block.get("type") == "tool_result"]


def _list_blocks(content: Any) -> list[dict[str, Any]]:
    return [] if isinstance(content, str) else list(content)


class HookInputLog:
    """A file to which hooks append their input, one line each."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def build_logging_command(self, next_command: str = "") -> str:
        """Build a command that logs its input and then runs `next_command`."""
        return f"{{ cat; echo; }} >> '{self.path}'; {next_command}"

    def read_inputs(self, event: str = "") -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        told = [json.loads(line) for line in self.path.read_text().splitlines() if line]
        return [each for each in told if event in ("", each["hook_event_name"])]


def make_command_hook(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "command", "command": text, **more}


def build_answer_command(answer: dict[str, Any]) -> str:
    """Build a command that prints this answer."""
    return f"echo {shlex.quote(json.dumps(answer))}"


def build_specific_answer(**fields: Any) -> str:
    return build_answer_command({"hookSpecificOutput": fields})


def make_settings(hooks: dict[str, Any], **more: Any) -> str:
    """Make settings with one entry per event: a command, a (matcher, command) pair, or a complete entry."""
    return json.dumps({"hooks": {event: [_make_entry(each)] for event, each in hooks.items()}, **more})


def _make_entry(hook: Any) -> dict[str, Any]:
    if isinstance(hook, str):
        return {"hooks": [make_command_hook(hook)]}
    if isinstance(hook, tuple):
        return {"matcher": hook[0], "hooks": [make_command_hook(hook[1])]}
    return dict(hook)


class HookScenario:
    def __init__(self, position: str, session: shoal.Session, requests: list[RequestBody]) -> None:
        self.position = position
        self.session = session
        self.all_requests = requests

    @property
    def worker_requests(self) -> list[RequestBody]:
        """Requests sent to the worker's model."""
        return [body for body in self.all_requests if "WORKER" in get_opening_text(body)]

    @property
    def last_request(self) -> RequestBody:
        return self.worker_requests[-1]

    @property
    def lead_requests(self) -> list[RequestBody]:
        """Requests sent to the model of the lead that starts the worker."""
        return [body for body in self.all_requests if "LEAD" in get_opening_text(body)]

    @property
    def hook_runs(self) -> list[HookRan]:
        return [event for event in read_events(self.session) if isinstance(event, HookRan)]

    async def run_session(self) -> str:
        return await run_all_turns(
            self.session, "WORKER: begin" if self.position == "lead" else "LEAD: begin"
        )


@asynccontextmanager
async def open_hook_scenario(
    position: str,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: Sequence[HookScriptLine],
    settings_json: str,
    *,
    lead_first: Sequence[HookScriptLine] = (),
    spawn: Mapping[str, Any] | None = None,
    inner_script: Sequence[HookScriptLine] = ("done",),
    **options: Any,
) -> AsyncIterator[HookScenario]:
    """Open a session in which the worker plays `script` line by line and repeats its last line.

    The lead plays `lead_first` before it starts the worker with the arguments `spawn`. Agents that the worker
    starts with INNER in their prompt play `inner_script`.
    """
    asked: list[RequestBody] = []
    parents = _build_parent_scripts(position, lead_first, spawn or {})

    def choose_reply(body: RequestBody) -> ReplyLike:
        asked.append(body)
        words = get_opening_text(body)
        lines = (
            inner_script
            if "INNER" in words
            else script
            if "WORKER" in words
            else parents["MIDDLE" if "MIDDLE" in words else "LEAD"]
        )
        spoken = sum(message["role"] == "assistant" for message in body["messages"])
        line = lines[min(spoken, len(lines) - 1)]
        return line(body) if callable(line) else line

    raw = json.loads(settings_json)
    mode = "process" if position == AGENT_POSITIONS[4] else "in-process"
    raw["shoal"] = {**raw.get("shoal", {}), "teammate_mode": mode}
    async with messages_server(choose_reply) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
        given = {"skip_permissions": True, "settings": json.dumps(raw), **options}
        async with shoal.open(cwd=project, model="anthropic:claude-sonnet-4-5", **given) as session:
            yield HookScenario(position, session, asked)
