"""Files of a home as other programs or a crash may leave them: nothing raises, nothing is lost.

The other file in each directory is still read."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from shoal.core.clock import SystemClock
from shoal.core.errors import NoSuchTeam, SettingsError, StoreError
from shoal.core.ids import AgentId, Ids
from shoal.core.mail import Mail
from shoal.core.names import LEAD_NAME, AgentName, TaskId, TeamName
from shoal.core.roster import Newcomer
from shoal.core.tasks import Change, Draft
from shoal.models.replay import read_recording
from shoal.stores.files.board import FileTaskBoard
from shoal.stores.files.credentials import credentials_path, store_credentials, stored_credentials
from shoal.stores.files.journal import read_journal
from shoal.stores.files.mailboxes import FileMailboxes
from shoal.stores.files.questions import Questions
from shoal.stores.files.rosters import FileRosters
from shoal.stores.files.sessions import read_session
from shoal.stores.files.subagents import recall, remember_mode
from shoal.wire.foreign import Invalid, Rejected
from shoal.wire.mail import Inbox, entry_bytes, inbox_bytes, read_entry, read_inbox
from shoal.wire.tasks import TaskFile, read_task
from shoal.workspaces.checkpoint_index import Change as Changed
from shoal.workspaces.checkpoint_index import Index

from . import seeds
from .door import Door

TEAM, ANN, BOB = TeamName("roof"), AgentName("ann"), AgentName("bob")
_AT = "2026-02-13T10:11:35.247Z"


def _in_a_home(work: Callable[[Path, bytes], Awaitable[None]]) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="shoal-fuzz-") as home:
            asyncio.run(work(Path(home), data))

    return read


def _mail(name: str) -> Mail:
    return Mail(id=name, sender=BOB, text=name, timestamp=_AT)


async def _inbox(home: Path, data: bytes) -> None:
    """Check that entries are taken or set aside completely, and that new mail arrives after them."""
    reports: list[str] = []
    boxes = FileMailboxes(home, TEAM, clock=SystemClock(), ids=Ids(1), report=reports.append)
    try:
        await boxes.open(ANN)
        directory = home / "teams" / TEAM / "inboxes"
        (directory / "ann.json").write_bytes(data)
        (directory / "bob.json").write_bytes(inbox_bytes([entry_bytes(_mail("beside"))]))
        taken = await boxes.take(ANN, limit=1_000)
        read = read_inbox(data)
        if isinstance(read, Inbox):
            wanted = [entry.mail.text for entry in read.entries if not entry.mail.read]
            assert [mail.text for mail in taken] == wanted
        if isinstance(read, Invalid) or read.rejected:
            aside = list(directory.glob("ann.json.corrupt-*"))
            assert [path.read_bytes() for path in aside] == [data]
            assert len(reports) == 1
            assert str(aside[0]) in reports[0]
        await boxes.post(ANN, _mail("new"))
        assert (await boxes.take(ANN, limit=1_000))[-1].id == "new"
        await boxes.mark(ANN, [mail.id for mail in await boxes.take(ANN, limit=1_000)])
        assert await boxes.take(ANN) == ()
        kept = [mail.text for mail in await boxes.history(ANN)]
        assert all(mail.text in kept for mail in taken)
        assert [mail.id for mail in await boxes.take(BOB)] == ["beside"]
    finally:
        await boxes.aclose()


async def _task(home: Path, data: bytes) -> None:
    """Check that a file that is no task is reported, and left unchanged."""
    reports: list[str] = []
    board = FileTaskBoard(home, TEAM, clock=SystemClock(), ids=Ids(1), report=reports.append)
    try:
        beside = await board.create(Draft(subject="beside", description=""))
        path = home / "tasks" / TEAM / "7.json"
        path.write_bytes(data)
        os.utime(path, (1, 1))
        read = read_task(data, TaskId("7"))
        found = {task.id: task for task in await board.list()}
        assert found.pop(beside.id) == beside
        assert bool(found) == isinstance(read, TaskFile)
        if isinstance(read, Invalid):
            assert any(str(path) in report for report in reports)
        elif isinstance(read, TaskFile):
            assert found[TaskId("7")].subject == read.task.subject
        await board.update(beside.id, Change(description="more"), by=ANN)
        if not isinstance(read, TaskFile):
            assert path.read_bytes() == data
        claim = await board.claim_next(by=ANN)
        assert claim is not None
        assert (await board.create(Draft(subject="next", description=""))).id == "8"
    finally:
        await board.aclose()


async def _roster(home: Path, data: bytes) -> None:
    reports: list[str] = []
    rosters = FileRosters(home, clock=SystemClock(), report=reports.append)
    lead = Newcomer(name=LEAD_NAME, agent_type="t", model="m", cwd="/", prompt="p")
    try:
        await rosters.create(TEAM, lead=lead, session="s", description=None)
        await rosters.create("beside", lead=lead, session="s", description=None)
        directory = home / "teams" / TEAM
        (directory / "config.json").write_bytes(data)
        team = await rosters.read(TEAM)
        if team is None:
            assert [path.read_bytes() for path in directory.glob("config.json.corrupt-*")] == [data]
            assert any("set aside" in report for report in reports)
        try:
            joined = await rosters.join(
                TEAM, Newcomer(name="new", agent_type="t", model="m", cwd="/", prompt="p")
            )
        except NoSuchTeam:
            assert team is None
        else:
            after = await rosters.read(TEAM)
            assert team is not None
            assert after is not None
            assert after.members == (*team.members, joined)
        assert await rosters.read(TeamName("beside")) is not None
    finally:
        await rosters.aclose()


async def _session(home: Path, data: bytes) -> None:
    path = home / "session.jsonl"
    path.write_bytes(data + b"\n" + seeds.of("transcript")[1] + b"\n")
    loaded = read_session(path)
    assert loaded.messages
    assert path.read_bytes().startswith(data)


async def _journal(home: Path, data: bytes) -> None:
    path = home / "journal.jsonl"
    path.write_bytes(data + b"\n" + seeds.of("journal")[0] + b"\n")
    reports: list[str] = []
    events = list(read_journal(path, report=reports.append))
    assert events[-1].next == path.stat().st_size
    for event in events:
        assert next(read_journal(path, event.offset)) == event


async def _questions(home: Path, data: bytes) -> None:
    questions = Questions(home)
    (home / "q1.json").write_bytes(data)
    (home / "q2.json").write_bytes(seeds.of("question")[1])
    (home / "q2.answer.json").write_bytes(data)
    questions.open()
    asked = questions.get("q2")
    assert asked is not None
    questions.answer_to(asked)
    questions.get("q1")


async def _overflow(home: Path, data: bytes) -> None:
    """Check that valid mail in the overflow arrives, and that other lines are kept."""
    line = data.replace(b"\n", b" ").strip()
    boxes = FileMailboxes(home, TEAM, clock=SystemClock(), ids=Ids(1))
    try:
        await boxes.open(ANN)
        behind = home / "shoal" / "teams" / TEAM / "overflow" / "ann.jsonl"
        behind.write_bytes(line + b"\n" + entry_bytes(_mail("behind")) + b"\n")
        behind.with_suffix(".state").write_bytes(data[:90])
        taken = [mail.id for mail in await boxes.take(ANN, limit=1_000)]
        assert taken[-1:] == ["behind"]
        if line and isinstance(read_entry(line), Rejected):
            assert line in behind.parent.with_name("archive").joinpath("ann.jsonl").read_bytes().split(b"\n")
        assert "behind" in [mail.id for mail in await boxes.history(ANN)]
    finally:
        await boxes.aclose()


def _refusal(work: Callable[[], object]) -> str:
    """Return the message of the error, or an empty string."""
    try:
        work()
    except (StoreError, SettingsError) as error:
        return str(error)
    return ""


async def _facts(home: Path, data: bytes) -> None:
    """Check that the restrictions of an agent are understood, or that it cannot be resumed."""
    transcript = home / "agent-a.jsonl"
    transcript.write_bytes(seeds.of("transcript")[1] + b"\n")
    transcript.with_suffix(".meta.json").write_bytes(data)
    for read in (lambda: recall(transcript, AgentId("a")), lambda: remember_mode(transcript, "plan")):
        if told := _refusal(read):
            assert "agent-a" in told
            assert transcript.with_suffix(".meta.json").read_bytes() == data


async def _changes(home: Path, data: bytes) -> None:
    """Check that exactly the changes with complete lines can be undone."""
    index = Index(home / "index.jsonl")
    index.path.write_bytes(data)
    before = index.changes()
    change = Changed(turn=10**6, path=Path("/w/new"), before=None, after="d", mode=None)
    index.append(change)
    assert index.changes() == [*before, change]


async def _credentials(home: Path, data: bytes) -> None:
    path = credentials_path(home)
    path.parent.mkdir()
    path.write_bytes(data)
    if told := _refusal(lambda: store_credentials(home, "new", {"KEY": "k"})):
        assert str(path) in told
        assert path.read_bytes() == data
    else:
        assert stored_credentials(home)["new"] == {"KEY": "k"}


async def _recording(home: Path, data: bytes) -> None:
    path = home / "run.jsonl"
    path.write_bytes(data)
    told = _refusal(lambda: read_recording(path))
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
DOORS = (
    Door("overflow-file", _in_a_home(_overflow), (), seeds.of("mail")),
    Door("agent-file", _in_a_home(_facts), (), (_META,)),
    Door("changes-file", _in_a_home(_changes), (), (_CHANGES,)),
    Door("credentials-file", _in_a_home(_credentials), (), (b'{"p":{"KEY":"k"}}', b"{}")),
    Door("recording-file", _in_a_home(_recording), (), (_RECORDING,)),
    Door("inbox-file", _in_a_home(_inbox), (), seeds.of("inbox")),
    Door("task-file", _in_a_home(_task), (), seeds.of("task")),
    Door("roster-file", _in_a_home(_roster), (), seeds.of("roster")),
    Door("session-file", _in_a_home(_session), (), seeds.of("transcript")),
    Door("journal-file", _in_a_home(_journal), (), (*seeds.of("journal"), *seeds.of("torn-journal"))),
    Door("question-file", _in_a_home(_questions), (), (*seeds.of("question"), *seeds.of("answer"))),
)
