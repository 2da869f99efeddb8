"""A power cut at any moment loses nothing that a durable store acknowledged.

A process changes one kind of state under strace. The recorded calls are replayed on a model of a disk, and
after each call the state is read from what a crash at that moment can leave.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from disk_model import TRACED_CALLS, DiskModel, read_trace, write_tree
from power_loss_writer import (
    ACKNOWLEDGEMENT,
    NOTES,
    SETTINGS_FILE,
    TEAM,
    TOKEN_FILE,
    WORKER,
    compute_run_digest,
    make_services,
)
from store_helpers import make_member

from shoal.app.library.team_definition import read_team_definition
from shoal.app.mcp.mcp_host import McpOAuthTokenFile
from shoal.core.clock import SystemClock
from shoal.core.errors import InboxNotFound, SessionNotFound, ShoalError
from shoal.core.ids import LEAD_ID
from shoal.core.teams.tasks import TaskDraft
from shoal.stores.files.file_store import FileStore
from shoal.stores.files.home.credential_file import load_provider_credentials
from shoal.stores.files.home.exported_files import check_exported_files
from shoal.stores.files.home.run_copy import read_run_files
from shoal.stores.files.home.trust_file import ProjectTrustFile
from shoal.testing.contracts.question_contract import make_question
from shoal.testing.contracts.session_contract import (
    CWD,
    FIRST,
    SECOND,
    open_journal,
    read_entry_ids,
    read_notes,
)

Facts = dict[str, str]
Tree = dict[str, bytes | None]
WRITER = Path(__file__).with_name("power_loss_writer.py")
QUESTIONS = ("q-1", "q-2")


# Readers return what they find, by the names that the writer reports.


async def read_transcripts(store: FileStore, report: Callable[[str], None]) -> Facts:
    try:
        session = store.find_session(FIRST)
    except ShoalError:
        return {}
    found = {LEAD_ID: read_entry_ids(session)}
    if session.has_transcript(WORKER):
        found[WORKER] = read_entry_ids(session, WORKER)
    return {f"{agent}/{entry}": entry.removeprefix("entry-") for agent, ids in found.items() for entry in ids}


async def read_forks(store: FileStore, report: Callable[[str], None]) -> Facts:
    try:
        ids = read_entry_ids(store.find_session(SECOND))
    except ShoalError:
        return {}
    return {"fork": ",".join(each.removeprefix("entry-") for each in ids)}


async def read_definitions(store: FileStore, report: Callable[[str], None]) -> Facts:
    definition = read_team_definition(store, store.create_session(FIRST, cwd=CWD))
    return {} if definition is None else {"required": definition.required[0]}


async def read_exports(store: FileStore, report: Callable[[str], None]) -> Facts:
    try:
        run = read_run_files(store.home, FIRST)
    except SessionNotFound:
        return {}
    check_exported_files(store.home, FIRST)
    return {FIRST: compute_run_digest(run)}


async def read_journal(store: FileStore, report: Callable[[str], None]) -> Facts:
    return {text: text for text in read_notes(open_journal(store.create_session(FIRST, cwd=CWD)))}


async def read_results(store: FileStore, report: Callable[[str], None]) -> Facts:
    directory = store.create_session(FIRST, cwd=CWD).open_results().directory
    files = [path for path in directory.iterdir() if path.name[0] != "."] if directory.exists() else []
    return {path.name: path.read_text() for path in files}


async def read_questions(store: FileStore, report: Callable[[str], None]) -> Facts:
    questions = store.create_session(FIRST, cwd=CWD).open_questions()
    facts = {name: "asked" for name in QUESTIONS if questions.get(name) is not None}
    for name in facts:
        if questions.read_answer(make_question(name)) is not None:
            facts[name] = "answered"
    return facts


async def read_late_answers(store: FileStore, report: Callable[[str], None]) -> Facts:
    questions = store.create_session(FIRST, cwd=CWD).open_questions()
    return {name: "answered late" for name in QUESTIONS if questions.read_late_answer(name) is not None}


async def read_metadata(store: FileStore, report: Callable[[str], None]) -> Facts:
    metadata = store.create_session(FIRST, cwd=CWD).read_agent_metadata(WORKER)
    return {} if metadata is None else {"mode": metadata.mode or ""}


async def read_rosters(store: FileStore, report: Callable[[str], None]) -> Facts:
    rosters = store.open_rosters(clock=SystemClock(), report=report)
    roster = await rosters.read_team_roster(TEAM)
    members = {} if roster is None else {member.name: "member" for member in roster.members}
    return {"ann": "gone", **members}


async def read_board(store: FileStore, report: Callable[[str], None]) -> Facts:
    async with aclosing(store.open_board(TEAM, **{**make_services(), "report": report})) as board:
        return {task.id: task.status for task in await board.list_tasks()}


async def read_claims(store: FileStore, report: Callable[[str], None]) -> Facts:
    """Read the tasks as they are stored: any other reader releases the claims of a dead process."""
    stored = FileStore(store.home, read_only=True)
    async with aclosing(stored.open_board(TEAM, **{**make_services(), "report": report})) as board:
        return {task.id: f"{task.status} {task.owner}" for task in await board.list_tasks()}


async def read_deleted_tasks(store: FileStore, report: Callable[[str], None]) -> Facts:
    async with aclosing(store.open_board(TEAM, **{**make_services(), "report": report})) as board:
        found = {task.id: "there" for task in await board.list_tasks()}
        new = await board.create(TaskDraft(subject="new", description=""))
    return {str(number): "deleted" for number in range(1, 5)} | found | {new.id: "reused"}


async def read_deleted_teams(store: FileStore, report: Callable[[str], None]) -> Facts:
    """Create a team of the same name if there is none: it has nothing of the deleted one."""
    rosters = store.open_rosters(clock=SystemClock(), report=report)
    roster = await rosters.read_team_roster(TEAM)
    if roster is not None and roster.description == "first":
        return {TEAM: "first"}
    if roster is None:
        roster = await rosters.create_team(TEAM, lead=make_member("x"), session="s-2", description="new")
    if roster.name != TEAM:
        return {TEAM: "has left its name taken"}
    async with aclosing(store.open_board(TEAM, **{**make_services(), "report": report})) as board:
        if await board.list_tasks():
            return {TEAM: "has tasks of a deleted team"}
    async with aclosing(store.open_mailboxes(TEAM, **{**make_services(), "report": report})) as mail:
        await mail.open_inbox("ann")
        if await mail.take_unread("ann") or await mail.read_history("ann"):
            return {TEAM: "has mail of a deleted team"}
    return {TEAM: "second" if roster.description == "second" else "none"}


async def read_mail(store: FileStore, report: Callable[[str], None]) -> Facts:
    async with aclosing(store.open_mailboxes(TEAM, **{**make_services(), "report": report})) as mail:
        try:
            facts = {each.text: "read" for each in await mail.read_history("ann")}
        except InboxNotFound:
            return {}
        taken = []
        while batch := await mail.take_unread("ann"):
            taken += batch
            await mail.mark_read("ann", [each.id for each in batch])
        return facts | {each.text: "unread" for each in taken}


async def read_keys(store: FileStore, report: Callable[[str], None]) -> Facts:
    return {TEAM: store.load_signing_key(TEAM).hex()}


async def read_trust(store: FileStore, report: Callable[[str], None]) -> Facts:
    trust = ProjectTrustFile(store.home)
    decisions = {name: trust.get_trust_decision(Path(CWD), name) for name in NOTES}
    return {name: each.digest for name, each in decisions.items() if each is not None}


async def read_credentials(store: FileStore, report: Callable[[str], None]) -> Facts:
    return {name: variables["KEY"] for name, variables in load_provider_credentials(store.home).items()}


async def read_tokens(store: FileStore, report: Callable[[str], None]) -> Facts:
    return {"token": McpOAuthTokenFile(store.home / TOKEN_FILE).read().decode()}


async def read_settings(store: FileStore, report: Callable[[str], None]) -> Facts:
    path = store.home / SETTINGS_FILE
    return {"model": json.loads(path.read_text())["shoal"]["model"]} if path.exists() else {}


ALWAYS_FLUSHED = (
    "definitions",
    "exports",
    "late answers",
    "keys",
    "trust",
    "credentials",
    "tokens",
    "settings",
)
READERS = {
    "transcripts": read_transcripts,
    "forks": read_forks,
    "definitions": read_definitions,
    "journal": read_journal,
    "results": read_results,
    "questions": read_questions,
    "late answers": read_late_answers,
    "metadata": read_metadata,
    "rosters": read_rosters,
    "exports": read_exports,
    "board": read_board,
    "claims": read_claims,
    "deleted tasks": read_deleted_tasks,
    "deleted teams": read_deleted_teams,
    "mail": read_mail,
    "keys": read_keys,
    "trust": read_trust,
    "credentials": read_credentials,
    "tokens": read_tokens,
    "settings": read_settings,
}


def record_writer(kind: str, tmp_path: Path, mode: str) -> tuple[Path, Path]:
    """Run the writer under strace; return its home and the trace."""
    home, trace = tmp_path / "home", tmp_path / "trace"
    home.mkdir()
    strace = ["strace", "-f", "-y", "-xx", "-s", "1000000", "-o", str(trace), "-e", f"trace={TRACED_CALLS}"]
    subprocess.run(
        [*strace, sys.executable, str(WRITER), kind, str(home), mode], check=True, capture_output=True
    )
    return home, trace


def replay_crashes(home: Path, trace: Path) -> Iterator[tuple[int, str, Tree, Facts]]:
    """Yield every tree that a crash can leave, with the facts that were acknowledged by then."""
    disk = DiskModel(home)
    seen: set[tuple[bool, int]] = set()
    for number, call in enumerate(read_trace(trace)):
        if not disk.apply(call):
            continue
        lines = [line for line in disk.output.splitlines() if line.startswith(ACKNOWLEDGEMENT)]
        acknowledged = dict(json.loads(line.removeprefix(ACKNOWLEDGEMENT)) for line in lines)
        for crash, tree in disk.list_crash_images().items():
            state = (crash == "process killed", hash((tuple(sorted(tree.items())), disk.output)))
            if state not in seen:
                seen.add(state)
                yield number, crash, tree, acknowledged
    assert ACKNOWLEDGEMENT in disk.output


async def find_loss(kind: str, tree: Tree, acknowledged: Facts, directory: Path) -> str:
    """Return what is missing or reported as damaged in a crash image; empty if nothing is."""
    problems: list[str] = []
    image = directory / "image"
    shutil.rmtree(image, ignore_errors=True)
    image.mkdir()
    write_tree(tree, image)
    restore_overflow_inodes(image)
    try:
        found = await READERS[kind](FileStore(image), problems.append)
    except (ShoalError, ValueError) as error:
        return f"not readable: {error}"
    missing = {name: value for name, value in acknowledged.items() if not is_found(found.get(name), value)}
    return "; ".join([*problems, *([f"missing: {missing}"] if missing else [])])


def restore_overflow_inodes(image: Path) -> None:
    """Let the position of each overflow name the copied file: a power cut keeps the inodes of files."""
    for state in image.glob("shoal/teams/*/overflow/*.state"):
        _, separator, rest = state.read_bytes().partition(b" ")
        overflow = state.with_suffix(".jsonl")
        if separator and overflow.exists():
            state.write_bytes(b"%d %b" % (overflow.stat().st_ino, rest))


def is_found(found: str | None, acknowledged: str) -> bool:
    # The next change may be on the disk already, although nobody was told yet.
    later = {
        "asked": "answered",
        "pending": "completed",
        "unread": "read",
        "plan": "default",
        "member": "gone",
        "in_progress ann": "completed ann",
        "in_progress bob": "pending None",
        "there": "deleted",
        "first": "none",
        "second": "none",
        "none": "second",
        "first token": "second token",
        "hooks": "tools",
        "anthropic:first": "anthropic:second",
    }
    return found is not None and found in (acknowledged, later.get(acknowledged))


@pytest.mark.slow
@pytest.mark.needs("strace")
@pytest.mark.spec("TRN-04")
@pytest.mark.parametrize("kind", READERS)
async def test_a_power_cut_loses_nothing_that_a_durable_store_acknowledged(kind: str, tmp_path: Path) -> None:
    home, trace = record_writer(kind, tmp_path, "durable")
    images = 0
    for number, crash, tree, acknowledged in replay_crashes(home, trace):
        loss = await find_loss(kind, tree, acknowledged, tmp_path)
        assert not loss, f"call {number}, {crash}: {loss}"
        images += 1
    assert images > 10


@pytest.mark.slow
@pytest.mark.needs("strace")
@pytest.mark.parametrize("kind", [kind for kind in READERS if kind not in ALWAYS_FLUSHED])
async def test_the_model_of_the_disk_loses_what_was_not_flushed(kind: str, tmp_path: Path) -> None:
    """Otherwise the test above would show nothing. Keys and trust are flushed in every store."""
    home, trace = record_writer(kind, tmp_path, "fast")
    losses = [
        (crash, await find_loss(kind, tree, acknowledged, tmp_path))
        for _, crash, tree, acknowledged in replay_crashes(home, trace)
        if acknowledged
    ]
    assert any(loss for crash, loss in losses if crash != "process killed")
    assert not any(loss for crash, loss in losses if crash == "process killed")


@pytest.mark.exhaustive
@pytest.mark.needs("strace")
async def test_a_power_cut_loses_no_mail_that_overflows_or_is_archived(tmp_path: Path) -> None:
    home, trace = record_writer("much mail", tmp_path, "durable")
    for number, crash, tree, acknowledged in list(replay_crashes(home, trace))[::37]:
        loss = await find_loss("mail", tree, acknowledged, tmp_path)
        assert not loss, f"call {number}, {crash}: {loss}"
