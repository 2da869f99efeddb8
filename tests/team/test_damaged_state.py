"""Damaged state files: a resumed run says what was damaged, what it uses instead and what is lost."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_scripts import call_tool, read_events, run_all_turns
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import NoteAdded
from team_scripts import get_home, open_session, script_team, send_message, spawn_member

DAMAGES = ("truncated", "emptied", "nuls", "another type", "directory", "link")
FILES: dict[str, tuple[str, tuple[str, ...]]] = {
    # A session is found by the name of its transcript, so a directory is not one.
    "conversation": ("projects/*/*.jsonl", tuple(set(DAMAGES) - {"directory"})),
    "conversation of a member": ("projects/*/*/subagents/*.jsonl", DAMAGES),
    "description of a member": ("projects/*/*/subagents/*.meta.json", DAMAGES),
    "journal": ("shoal/runs/*/journal.jsonl", DAMAGES),
    "checkpoints": ("shoal/runs/*/checkpoints/index.jsonl", DAMAGES),
    # Nothing tells how long a text is.
    "result": ("shoal/runs/*/results/*.md", ("emptied", "nuls", "directory", "link")),
    "signing key": ("shoal/keys/crew", DAMAGES),
    "roster": ("teams/crew/config.json", DAMAGES),
    "inbox": ("teams/crew/inboxes/ann.json", DAMAGES),
    "inbox of the lead": ("teams/crew/inboxes/team-lead.json", DAMAGES),
    "task": ("tasks/crew/1.json", DAMAGES),
}


def replace_by_link(path: Path) -> None:
    other = get_home().parent / "elsewhere"
    path.rename(other)
    path.symlink_to(other)


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


CHANGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "emptied": lambda path: path.write_bytes(b""),
    "nuls": lambda path: path.write_bytes(b"\0" * path.stat().st_size),
    "another type": lambda path: path.write_bytes(b'"text"\n'),
    "directory": replace_by_directory,
    "link": replace_by_link,
}


@pytest.fixture(scope="module")
def stored_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with the project, and with the home of a finished team once a test has run it."""
    directory = tmp_path_factory.mktemp("stored_run")
    (directory / "project").mkdir()
    return directory


async def create_home(stored_run: Path) -> None:
    if (stored_run / "home").exists():
        shutil.copytree(stored_run / "home", get_home(), dirs_exist_ok=True)
        return
    lead = [
        call_tool("TeamCreate", team_name="crew"),
        call_tool("TaskCreate", subject="dig", description="d"),
        call_tool("TaskUpdate", taskId="1", owner="nobody"),
        call_tool("Write", file_path=str(stored_run / "project" / "a.txt"), content="one"),
        spawn_member("ann"),
        "wait",
        "end",
    ]
    ann = [send_message("team-lead", "I am here."), "x" * 20_000, "idle"]
    async with open_session(stored_run / "project", script_team(lead=lead, ann=ann)) as session:
        await run_all_turns(session)
    shutil.copytree(get_home(), stored_run / "home")


@pytest.mark.spec("USR-12", "TRN-02")
@pytest.mark.parametrize(
    ("kind", "damage"), [(kind, damage) for kind, (_, damages) in FILES.items() for damage in sorted(damages)]
)
async def test_damage_is_reported_and_the_run_continues(stored_run: Path, kind: str, damage: str) -> None:
    await create_home(stored_run)
    (path,) = get_home().glob(FILES[kind][0])
    CHANGES[damage](path)
    if path.is_file() and not path.is_symlink():
        os.utime(path, (0, 0))  # nobody is writing it
    first_roles: list[str] = []

    def answer(request: ModelRequest) -> str:
        first_roles.append(request.messages[0].role)
        return "end"

    (run,) = (get_home() / "shoal" / "runs").iterdir()
    model = script_team(lead=[answer], ann=[answer])
    async with (
        asyncio.timeout(60),
        open_session(stored_run / "project", model, resume=run.name) as session,
    ):
        shown = list(session.notes)
        session.subscribe(lambda event: shown.append(event.text) if isinstance(event, NoteAdded) else None)
        assert await run_all_turns(session, "Go on.") == "end"
        assert [each.name for each in session.list_members()] == ["ann"]
    in_view = [event.text for event in read_events(session) if isinstance(event, NoteAdded)]
    for reports in (shown, in_view):
        assert any(path.name in text for text in reports), reports
    assert set(first_roles) == {"user"}
