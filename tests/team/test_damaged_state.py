"""Damaged state files: a resumed run says what was damaged, what it uses instead and what is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import shoal
from agent_scripts import call_tool, read_events, run_all_turns
from file_damages import damage_field, list_field_damages
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import NoteAdded
from shoal.stores.files.sessions.content_checks import find_content_problem
from shoal.stores.files.sessions.result_files import FileResultStore
from shoal.stores.files.sessions.state_file_kinds import (
    FOLLOWED_DIRECTORIES,
    STATE_DIRECTORIES,
    STATE_FILE_KINDS,
    StateFileKind,
)
from stored_runs import (
    CARD,
    NOT_STATE,
    PROCESS_SESSION,
    SESSION,
    TEAM,
    create_stored_runs,
    find_files,
    find_session_of,
    list_stored_kinds,
)
from team_scripts import get_home, open_session, script_team

OTHER_ENTRIES = ("directory", "link", "pipe", "socket")
DAMAGES = ("truncated", "emptied", "nuls", "another type", *OTHER_ENTRIES)
UNDETECTABLE = {
    # A shorter text is a text.
    ("memory of the session", "truncated"),
    ("memory of the session", "another type"),
    ("record of the team's creator", "truncated"),
    ("record of the team's creator", "another type"),
}


def list_damages(kind: StateFileKind) -> list[str]:
    """Return the damages that matter: the content of a lock or a working copy does not."""
    damages = OTHER_ENTRIES if kind.shape == "entry" else DAMAGES
    if kind.name in ("conversation", "journal"):
        damages = (*damages, "joined lines")
    return [damage for damage in damages if (kind.name, damage) not in UNDETECTABLE]


def replace_by_link(path: Path) -> None:
    other = get_home().parent.parent / "elsewhere"
    path.rename(other)
    path.symlink_to(other)


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_socket(path: Path) -> None:
    path.unlink()
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)  # the whole path may be too long


def join_two_lines(path: Path) -> None:
    """Lose the end of the second line, the third line and the start of the fourth."""
    first, second, _third, fourth, *rest = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([first, second[: len(second) // 2] + fourth[len(fourth) // 2 :], *rest]))


pytestmark = pytest.mark.one_worker
CHANGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "emptied": lambda path: path.write_bytes(b""),
    "nuls": lambda path: path.write_bytes(b"\0" * path.stat().st_size),
    "another type": lambda path: path.write_bytes(b'"text"\n'),
    "joined lines": join_two_lines,
    "directory": replace_by_directory,
    "link": replace_by_link,
    "pipe": replace_by_pipe,
    "socket": replace_by_socket,
}


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory that gets a copy of the project and of the home of a finished team."""
    return tmp_path_factory.mktemp("stored_run") / "backup"


@pytest.fixture
async def project(backup: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Project of a team that has left a file of each kind. The team runs once for all tests."""
    live = backup.parent / "live"
    monkeypatch.setenv("SHOAL_HOME", str(live / "home"))
    shutil.rmtree(live, ignore_errors=True)
    outside = backup.parent / "elsewhere"
    if outside.is_dir():
        shutil.rmtree(outside)
    outside.unlink(missing_ok=True)
    if not backup.exists():
        await create_stored_runs(live)
        shutil.copytree(live, backup, symlinks=True)
    else:
        shutil.copytree(backup, live, symlinks=True)
    return live / "project"


@pytest.mark.spec("LIM-15")
async def test_every_stored_file_is_of_a_known_kind(project: Path) -> None:
    known = {path for kind in STATE_FILE_KINDS for path in find_files(kind)}
    stored = [path for path in get_home().rglob("*") if not path.is_dir() and path not in known]
    names = [str(path.relative_to(get_home())) for path in stored]
    unknown = [name for name in names if not any(fnmatchcase(name, pattern) for pattern in NOT_STATE)]
    assert not unknown, "add a kind to STATE_FILE_KINDS for these files"
    assert not [kind for kind in list_stored_kinds() if not find_files(kind)]
    directories = {kind.directory for kind in STATE_FILE_KINDS if "*" not in kind.directory}
    unchecked = {"shoal", "shoal/runs/{session}", "shoal/runs/{session}/members", "shoal/runs/{session}/mcp"}
    assert directories - {*STATE_DIRECTORIES} == unchecked


def list_damage_cases() -> list[object]:
    cases: list[object] = []
    for kind in list_stored_kinds():
        place = f"{kind.directory}/{kind.file}"
        marks = [pytest.mark.slow] if kind.shape == "entry" else []
        for damage in list_damages(kind):
            cases.append(pytest.param(kind, damage, "", id=f"{place}-{damage}", marks=marks))
            if kind.name == "inbox":
                cases.append(pytest.param(kind, damage, "team-lead", id=f"{place}-{damage}-lead"))
    return cases


@pytest.mark.spec("USR-12", "TRN-02", "LIM-15")
@pytest.mark.parametrize(("kind", "damage", "name"), list_damage_cases())
@pytest.mark.sampled(30)
async def test_damage_is_reported_and_the_run_continues(
    project: Path, kind: StateFileKind, damage: str, name: str
) -> None:
    path = next(path for path in find_files(kind) if path.name.startswith(name))
    CHANGES[damage](path)
    if path.is_file() and not path.is_symlink():
        os.utime(path, (0, 0))  # nobody is writing it
    await resume_and_check_reports(project, path)


@pytest.mark.spec("LIM-15")
@pytest.mark.exhaustive
@pytest.mark.parametrize("pattern", STATE_DIRECTORIES)
async def test_a_directory_that_is_a_link_is_reported_and_not_followed(project: Path, pattern: str) -> None:
    (path,) = get_home().glob(pattern.format(session=SESSION, team=TEAM, board=TEAM))
    replace_by_link(path)
    outside = get_home().parent.parent / "elsewhere"
    before = {each: each.stat().st_mtime_ns for each in outside.rglob("*")}
    has_team = path != get_home() / "teams" / TEAM
    await resume_and_check_reports(project, path, members=["ann", "bob"] if has_team else [])
    assert {each: each.stat().st_mtime_ns for each in outside.rglob("*")} == before


@pytest.mark.spec("LIM-15")
@pytest.mark.parametrize("pattern", FOLLOWED_DIRECTORIES)
async def test_a_directory_of_transcripts_that_is_a_link_is_reported(project: Path, pattern: str) -> None:
    (path,) = get_home().glob(pattern.format(session=SESSION))
    replace_by_link(path)
    await resume_and_check_reports(project, path)


@pytest.mark.spec("LIM-15")
async def test_a_new_session_reports_damage_of_files_that_all_sessions_share(project: Path) -> None:
    replace_by_directory(get_home() / "shoal" / "teams.lock")
    lead = [call_tool("TeamCreate", team_name="other"), "end"]
    async with open_session(project, script_team(0.0, CARD, lead=lead)) as session:
        assert await run_all_turns(session) == "end"
    assert any("teams.lock" in note for note in session.notes)
    assert (get_home() / "teams" / "other" / "config.json").is_file()


@pytest.mark.spec("LIM-15")
async def test_files_of_a_running_session_are_not_set_aside(project: Path) -> None:
    spawned = get_home() / "shoal" / "teams" / TEAM / "spawned"
    model = script_team(0.0, CARD, lead=["end"], ann=["end"], bob=["end"])
    async with open_session(project, model, resume=SESSION):
        spawned.write_bytes(b"")
        with pytest.raises(shoal.ShoalError, match="in use"):
            async with open_session(project, model, resume=SESSION):
                pass
        assert spawned.exists()


@pytest.mark.spec("LIM-15")
async def test_nothing_is_reported_about_an_undamaged_run(project: Path) -> None:
    async with open_session(
        project, script_team(0.0, CARD, lead=["end"], ann=["end"], bob=["end"]), resume=SESSION
    ) as session:
        assert await run_all_turns(session, "Go on.") == "end"
    in_view = [event.text for event in read_events(session) if isinstance(event, NoteAdded)]
    assert not [text for text in (*session.notes, *in_view) if "damaged" in text]


@pytest.mark.spec("LIM-15")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("team.json", b'{"a":' * 20_000 + b"1" + b"}" * 20_000),
        ("team.json", b'{"name": "crew", }'),
        ("memory.md", bytes(range(1, 256))),
        ("questions/q1.json", b'{"a":' * 20_000 + b"1" + b"}" * 20_000),
    ],
    ids=["nested object", "invalid object", "bytes instead of text", "nested question"],
)
async def test_content_that_cannot_be_parsed_is_reported(project: Path, name: str, content: bytes) -> None:
    path = get_home() / "shoal" / "runs" / SESSION / name
    path.write_bytes(content)
    await resume_and_check_reports(project, path)


@pytest.mark.parametrize("kind", ["archive of read mail", "mail that is waiting for space"])
def test_stored_mail_of_other_programs_is_not_reported_as_damaged(kind: str) -> None:
    (found,) = (each for each in STATE_FILE_KINDS if each.name == kind)
    entries = [
        {"from": "ann", "text": "Hello.", "timestamp": None, "read": 1, "color": 5},
        {"from": "ann", "text": "Hello.", "timestamp": 1.5},
    ]
    content = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
    assert find_content_problem(found, Path("ann.jsonl"), content) is None


@pytest.mark.spec("LIM-15")
@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff", b""], ids=["picture", "nothing"])
async def test_a_binary_result_is_not_reported_as_damaged(project: Path, content: bytes) -> None:
    results = FileResultStore(get_home() / "shoal" / "runs" / SESSION / "results")
    path = results.save_result("picture.png", content)
    model = script_team(0.0, CARD, lead=["end"], ann=["end"], bob=["end"])
    async with open_session(project, model, resume=SESSION) as session:
        assert await run_all_turns(session, "Go on.") == "end"
    assert not [note for note in session.notes if path.name in note]


@pytest.mark.spec("LIM-15")
@pytest.mark.parametrize(
    ("name", "pointer"),
    [
        (f"shoal/runs/{SESSION}/team.json", ""),
        (f"shoal/runs/{SESSION}/questions/q1.json", ""),
        (f"shoal/runs/{SESSION}/checkpoints/index.jsonl", ""),
        (f"shoal/teams/{TEAM}/roster.copy", ""),
        (f"shoal/teams/{TEAM}/overflow/cat.jsonl", "0/text"),
        (f"shoal/teams/{TEAM}/overflow/cat.jsonl", "0/timestamp"),
        (f"shoal/teams/{TEAM}/archive/cat.jsonl", "0/read"),
        (f"shoal/teams/{TEAM}/archive/cat.jsonl", "0/msg_id"),
        (f"teams/{TEAM}/config.json", ""),
    ],
    ids=lambda value: Path(value).name,
)
async def test_a_field_of_another_type_is_reported(project: Path, name: str, pointer: str) -> None:
    path = get_home() / name
    fields = dict(list_field_damages(path.read_bytes()))
    pointer = pointer or list(fields)[-1]
    damage_field(pointer, fields[pointer])(path)
    os.utime(path, (0, 0))  # nobody is writing it
    await resume_and_check_reports(project, path)


@pytest.mark.spec("LIM-15")
async def test_output_of_a_command_that_grew_after_it_was_stored_is_not_reported(project: Path) -> None:
    (output,) = (get_home() / "shoal" / "runs" / PROCESS_SESSION / "results").glob("call-Bash-*")
    assert output.read_text() == "ready\n"
    model = script_team(0.0, CARD, lead=["end"], eve=["end"])
    async with open_session(project, model, resume=PROCESS_SESSION) as session:
        assert await run_all_turns(session, "Go on.") == "end"
    assert not [note for note in session.notes if "damaged" in note]


@pytest.mark.spec("LIM-15", "TRN-02")
@pytest.mark.parametrize("agent", ["lead", "ann"])
async def test_a_conversation_that_is_cut_in_the_middle_is_reported(project: Path, agent: str) -> None:
    pattern = f"projects/*/{SESSION}.jsonl" if agent == "lead" else "projects/*/*/subagents/agent-ann*.jsonl"
    (path,) = get_home().glob(pattern)
    join_two_lines(path)
    await resume_and_check_reports(project, path)


async def resume_and_check_reports(
    project: Path, path: Path, members: Sequence[str] = ("ann", "bob")
) -> None:
    first_roles: list[str] = []

    def answer(request: ModelRequest) -> str:
        first_roles.append(request.messages[0].role)
        return "end"

    model = script_team(0.0, CARD, lead=[answer], ann=[answer], bob=[answer], eve=[answer])
    session_id = find_session_of(path)
    async with (
        asyncio.timeout(60),
        open_session(project, model, resume=session_id) as session,
    ):
        shown = list(session.notes)
        session.subscribe(lambda event: shown.append(event.text) if isinstance(event, NoteAdded) else None)
        assert await run_all_turns(session, "Go on.") == "end"
        if session_id == SESSION:
            assert sorted(each.name for each in session.list_members()) == list(members)
    in_view = [event.text for event in read_events(session) if isinstance(event, NoteAdded)]
    for reports in (shown, in_view):
        assert any(path.name in text for text in reports), reports
    assert set(first_roles) == {"user"}
