"""Helpers for tests of whole sessions: run turns, read results, and find what processes and hooks left."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import shoal
from agent_scripts import read_events
from git_repository import commit_first_files, create_template
from hook_helpers import make_settings
from session_helpers import collect_events, find_tool_results
from shoal.core.conversation.messages import Message, extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import Event, HookRan, NoteAdded, RunFinished

E = TypeVar("E")


def find_event(kind: type[E], events: Sequence[Any]) -> E:
    """Return the only event of this type."""
    (found,) = [event for event in events if isinstance(event, kind)]
    return found


async def run_turn(session: shoal.Session, prompt: str = "go") -> list[Event]:
    """Run one turn and return its events."""
    return await collect_events(session.run(prompt))


async def run_prompt(session: shoal.Session, prompt: str = "go") -> RunFinished:
    """Run one turn and return how it ended."""
    last = (await run_turn(session, prompt))[-1]
    assert isinstance(last, RunFinished)
    return last


async def finish_turn(turn: Any) -> list[Event]:
    """Read a turn to its end, which must come soon."""
    async with asyncio.timeout(20):
        return await collect_events(turn)


async def run_next_turn(session: shoal.Session) -> RunFinished:
    """Wait for input or a notification, run the turn that it starts and return how that ended."""
    async with asyncio.timeout(20):
        turn = await session.next_turn(wait_for_input=True)
        assert turn is not None
        last = (await collect_events(turn))[-1]
    assert isinstance(last, RunFinished)
    return last


def list_result_texts(messages: Sequence[Message]) -> list[str]:
    return [extract_tool_result_text(result) for result in find_tool_results(messages)]


def join_results(request: ModelRequest) -> str:
    return "\n--\n".join(list_result_texts(request.messages))


def list_started_agent_ids(request: ModelRequest) -> list[str]:
    """List the ids of the started agents, in the order of their calls."""
    started = [text for text in list_result_texts(request.messages) if "agentId: " in text]
    return [text.partition("agentId: ")[2].split()[0].rstrip(",") for text in started]


def get_started_agent_id(request: ModelRequest) -> str:
    """Return the id of the first agent that this conversation started."""
    return list_started_agent_ids(request)[0]


def list_hook_runs(session: shoal.Session) -> list[HookRan]:
    return [event for event in read_events(session) if isinstance(event, HookRan)]


def join_session_notes(session: shoal.Session) -> str:
    return "\n".join(event.text for event in read_events(session) if isinstance(event, NoteAdded))


def is_process_gone(pid: int | str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def create_git_project(top: Path) -> Path:
    """Create a git repository with one committed file, code.txt."""
    project = top / "project"
    project.mkdir()
    create_git_repository(project)
    return project


def create_git_repository(project: Path) -> None:
    """Make an empty directory a git repository with one committed file, code.txt."""
    assert not any(project.iterdir())
    shutil.copytree(create_template(_fill_project), project, dirs_exist_ok=True)


def _fill_project(project: Path) -> None:
    (project / "code.txt").write_text("one\n")
    commit_first_files(project, "A", "a@example.org")


def open_hooked_session(
    project: Path, model: Any, hooks: dict[str, Any] | str, **options: Any
) -> shoal.Session:
    """Open a session with these hooks, or with complete settings as JSON."""
    settings = hooks if isinstance(hooks, str) else make_settings(hooks)
    return shoal.open(cwd=project, model=model, **{"skip_permissions": True, "settings": settings, **options})
