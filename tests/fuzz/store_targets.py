"""Files of a home as other programs or a crash may leave them: nothing raises, nothing is lost.

The other file in each directory is still read."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from shoal.core.clock import SystemClock
from shoal.core.errors import SettingsError, StateFileError, TeamNotFound
from shoal.core.ids import AgentId, IdGenerator, SessionId
from shoal.core.names import LEAD_NAME, AgentName, TaskId, TeamName
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.roster import NewMember
from shoal.core.teams.tasks import TaskDraft, TaskUpdate
from shoal.models.replay_model import read_model_recording
from shoal.stores.files.board.file_task_board import FileTaskBoard
from shoal.stores.files.home.credential_file import (
    get_credentials_path,
    load_provider_credentials,
    store_provider_credentials,
)
from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore
from shoal.stores.files.sessions.file_journal import read_journal
from shoal.stores.files.sessions.file_session_store import FileSessionStore
from shoal.stores.files.sessions.question_files import QuestionFiles
from shoal.stores.files.sessions.session_files import read_session_transcript
from shoal.stores.files.teams.file_roster_store import FileRosterStore
from shoal.stores.subagent_records import load_subagent_with_conversation
from shoal.wire.checkpoint_codec import CheckpointFileChange as Changed
from shoal.wire.foreign_json import InvalidFileContent, RejectedFileEntry
from shoal.wire.mail_codec import (
    ParsedMailInboxFile,
    encode_inbox,
    encode_inbox_entry,
    parse_inbox,
    parse_inbox_entry,
)
from shoal.wire.task_codec import ParsedTaskFile, parse_task
from shoal.workspaces.checkpoint_index import CheckpointIndex

from . import seed_documents
from .fuzz_target import FuzzTarget

TEAM, ANN, BOB = TeamName("roof"), AgentName("ann"), AgentName("bob")
_AT = "2026-02-13T10:11:35.247Z"


def _run_in_home(check: Callable[[Path, bytes], Awaitable[None]]) -> Callable[[bytes], None]:
    def check_input(data: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="shoal-fuzz-") as home:
            asyncio.run(check(Path(home), data))

    return check_input


def _write_settled_file(path: Path, data: bytes) -> None:
    """Write a file that was last changed long ago: an invalid one that is new may still be in a write."""
    path.write_bytes(data)
    os.utime(path, (1, 1))


def _make_mail(name: str) -> MailMessage:
    return MailMessage(id=name, sender=BOB, text=name, timestamp=_AT)


async def _check_inbox(home: Path, data: bytes) -> None:
    """Check that entries are taken or set aside completely, and that new mail arrives after them."""
    reports: list[str] = []
    boxes = FileMailboxStore(
        home, TEAM, clock=SystemClock(), ids=IdGenerator(1), report_problem=reports.append
    )
    try:
        await boxes.open_inbox(ANN)
        directory = home / "teams" / TEAM / "inboxes"
        _write_settled_file(directory / "ann.json", data)
        (directory / "bob.json").write_bytes(encode_inbox([encode_inbox_entry(_make_mail("beside"))]))
        taken = await boxes.take_unread(ANN, limit=1_000)
        read = parse_inbox(data)
        if isinstance(read, ParsedMailInboxFile):
            wanted = [entry.mail.text for entry in read.entries if not entry.mail.read]
            assert [mail.text for mail in taken] == wanted
        if isinstance(read, InvalidFileContent) or read.rejected:
            aside = list(directory.glob("ann.json.corrupt-*"))
            assert [path.read_bytes() for path in aside] == [data]
            assert len(reports) == 1
            assert str(aside[0]) in reports[0]
        await boxes.post(ANN, _make_mail("new"))
        assert (await boxes.take_unread(ANN, limit=1_000))[-1].id == "new"
        await boxes.mark_read(ANN, [mail.id for mail in await boxes.take_unread(ANN, limit=1_000)])
        assert await boxes.take_unread(ANN) == ()
        kept = [mail.text for mail in await boxes.read_history(ANN)]
        assert all(mail.text in kept for mail in taken)
        assert [mail.id for mail in await boxes.take_unread(BOB)] == ["beside"]
    finally:
        await boxes.aclose()


async def _check_task(home: Path, data: bytes) -> None:
    """Check that a file that is no task is reported, and left unchanged."""
    reports: list[str] = []
    board = FileTaskBoard(home, TEAM, clock=SystemClock(), ids=IdGenerator(1), report_problem=reports.append)
    try:
        beside = await board.create(TaskDraft(subject="beside", description=""))
        path = home / "tasks" / TEAM / "7.json"
        _write_settled_file(path, data)
        read = parse_task(data, TaskId("7"))
        found = {task.id: task for task in await board.list_tasks()}
        assert found.pop(beside.id) == beside
        assert bool(found) == isinstance(read, ParsedTaskFile)
        if isinstance(read, InvalidFileContent):
            assert any(str(path) in report for report in reports)
        elif isinstance(read, ParsedTaskFile):
            assert found[TaskId("7")].subject == read.task.subject
        await board.update(beside.id, TaskUpdate(description="more"), by=ANN)
        if not isinstance(read, ParsedTaskFile):
            assert path.read_bytes() == data
        claim = await board.claim_next(by=ANN)
        assert claim is not None
        assert (await board.create(TaskDraft(subject="next", description=""))).id == "8"
    finally:
        await board.aclose()


async def _check_roster(home: Path, data: bytes) -> None:
    reports: list[str] = []
    rosters = FileRosterStore(home, clock=SystemClock(), report_problem=reports.append)
    lead = NewMember(name=LEAD_NAME, agent_type="t", model="m", cwd="/", prompt="p")
    try:
        await rosters.create_team(TEAM, lead=lead, session="s", description=None)
        await rosters.create_team("beside", lead=lead, session="s", description=None)
        directory = home / "teams" / TEAM
        _write_settled_file(directory / "config.json", data)
        team = await rosters.read_team_roster(TEAM)
        if team is None:
            assert [path.read_bytes() for path in directory.glob("config.json.corrupt-*")] == [data]
            assert any("Shoal renamed it to" in report for report in reports)
        try:
            joined = await rosters.add_member(
                TEAM, NewMember(name="new", agent_type="t", model="m", cwd="/", prompt="p")
            )
        except TeamNotFound:
            assert team is None
        else:
            after = await rosters.read_team_roster(TEAM)
            assert team is not None
            assert after is not None
            assert after.members == (*team.members, joined)
        assert await rosters.read_team_roster(TeamName("beside")) is not None
    finally:
        await rosters.aclose()


async def _check_session(home: Path, data: bytes) -> None:
    path = home / "session.jsonl"
    path.write_bytes(data + b"\n" + seed_documents.get_seeds("transcript")[1] + b"\n")
    loaded = read_session_transcript(path)
    assert loaded.messages
    assert path.read_bytes().startswith(data)


async def _check_journal(home: Path, data: bytes) -> None:
    path = home / "journal.jsonl"
    path.write_bytes(data + b"\n" + seed_documents.get_seeds("journal")[0] + b"\n")
    reports: list[str] = []
    events = list(read_journal(path, report_problem=reports.append))
    assert events[-1].next == path.stat().st_size
    for event in events:
        assert next(read_journal(path, event.offset)) == event


async def _check_questions(home: Path, data: bytes) -> None:
    questions = QuestionFiles(home)
    (home / "q1.json").write_bytes(data)
    (home / "q2.json").write_bytes(seed_documents.get_seeds("question")[1])
    (home / "q2.answer.json").write_bytes(data)
    questions.list_open_questions()
    asked = questions.get("q2")
    assert asked is not None
    questions.read_answer(asked)
    questions.get("q1")


async def _check_overflow(home: Path, data: bytes) -> None:
    """Check that valid mail in the overflow arrives, and that other lines are kept."""
    line = data.replace(b"\n", b" ").strip()
    boxes = FileMailboxStore(home, TEAM, clock=SystemClock(), ids=IdGenerator(1))
    try:
        await boxes.open_inbox(ANN)
        behind = home / "shoal" / "teams" / TEAM / "overflow" / "ann.jsonl"
        behind.write_bytes(line + b"\n" + encode_inbox_entry(_make_mail("behind")) + b"\n")
        behind.with_suffix(".state").write_bytes(data[:90])
        taken = [mail.id for mail in await boxes.take_unread(ANN, limit=1_000)]
        assert taken[-1:] == ["behind"]
        if line and isinstance(parse_inbox_entry(line), RejectedFileEntry):
            assert line in behind.parent.with_name("archive").joinpath("ann.jsonl").read_bytes().split(b"\n")
        assert "behind" in [mail.id for mail in await boxes.read_history(ANN)]
    finally:
        await boxes.aclose()


def _get_refusal(action: Callable[[], object]) -> str:
    """Return the message of the error, or an empty string."""
    try:
        action()
    except (StateFileError, SettingsError) as error:
        return str(error)
    return ""


async def _check_agent_metadata(home: Path, data: bytes) -> None:
    """Check that the restrictions of an agent are understood, or that it cannot be resumed."""
    store, agent = FileSessionStore(home, SessionId("s"), home / "s.jsonl"), AgentId("a")
    transcript = store.get_transcript_path(agent)
    transcript.parent.mkdir(parents=True, exist_ok=True)
    transcript.write_bytes(seed_documents.get_seeds("transcript")[1] + b"\n")
    transcript.with_suffix(".meta.json").write_bytes(data)
    for read in (
        lambda: load_subagent_with_conversation(store, agent),
        lambda: store.save_agent_mode(agent, "plan"),
    ):
        if told := _get_refusal(read):
            assert "agent-a" in told
            assert transcript.with_suffix(".meta.json").read_bytes() == data


async def _check_changes(home: Path, data: bytes) -> None:
    """Check that exactly the changes with complete lines can be undone."""
    index = CheckpointIndex(home / "index.jsonl")
    index.path.write_bytes(data)
    before = index.read_undoable_changes().changes
    change = Changed(turn=10**6, path=Path("/w/new"), before=None, after="d", mode=None)
    index.append_change(change)
    assert index.read_undoable_changes().changes == [*before, change]


async def _check_credentials(home: Path, data: bytes) -> None:
    path = get_credentials_path(home)
    path.parent.mkdir()
    path.write_bytes(data)
    if told := _get_refusal(lambda: store_provider_credentials(home, "new", {"KEY": "k"})):
        assert str(path) in told
        assert path.read_bytes() == data
    else:
        assert load_provider_credentials(home)["new"] == {"KEY": "k"}


async def _check_recording(home: Path, data: bytes) -> None:
    path = home / "run.jsonl"
    path.write_bytes(data)
    told = _get_refusal(lambda: read_model_recording(path))
    assert not told or str(path) in told


_META = (
    b'{"agentType":"t","description":"d","name":"n","model":"m","mode":"plan","system":"s","tools":["Read"],'
    b'"narrowed":[["Read"]],"denied":[],"depth":2,"thinkingTokens":5}'
)
_CHANGES = (
    b'{"turn":1,"path":"/w/a","before":null,"after":"d","mode":420}\n'
    b'{"undone":1,"replaced":{"/w/a":"d","/w/\\udcff":null}}\n{"turn":2,"pa\n'
    b'{"turn":3,"path":"/w/\\udcff","before":"x","after":null,"mode":null}\n'
)
_RECORDING = (
    b'{"hash":"h","card":{"id":"m","provider":"p","window":1000,"max_output":10},"request":{},"reply":{"message":{"role":'
    b'"assistant","content":[{"type":"text","text":"a"}]},"usage":{},"stop_reason":"end_turn","model":"m"},'
    b'"heard":[1]}'
)
TARGETS = (
    FuzzTarget("overflow-file", _run_in_home(_check_overflow), (), seed_documents.get_seeds("mail")),
    FuzzTarget("agent-file", _run_in_home(_check_agent_metadata), (), (_META,)),
    FuzzTarget("changes-file", _run_in_home(_check_changes), (), (_CHANGES,)),
    FuzzTarget("credentials-file", _run_in_home(_check_credentials), (), (b'{"p":{"KEY":"k"}}', b"{}")),
    FuzzTarget("recording-file", _run_in_home(_check_recording), (), (_RECORDING,)),
    FuzzTarget("inbox-file", _run_in_home(_check_inbox), (), seed_documents.get_seeds("inbox")),
    FuzzTarget("task-file", _run_in_home(_check_task), (), seed_documents.get_seeds("task")),
    FuzzTarget("roster-file", _run_in_home(_check_roster), (), seed_documents.get_seeds("roster")),
    FuzzTarget("session-file", _run_in_home(_check_session), (), seed_documents.get_seeds("transcript")),
    FuzzTarget(
        "journal-file",
        _run_in_home(_check_journal),
        (),
        (*seed_documents.get_seeds("journal"), *seed_documents.get_seeds("torn-journal")),
    ),
    FuzzTarget(
        "question-file",
        _run_in_home(_check_questions),
        (),
        (*seed_documents.get_seeds("question"), *seed_documents.get_seeds("answer")),
    ),
)
