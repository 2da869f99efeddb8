from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from store_helpers import FixedClock, limit_file_size

from shoal.core import events
from shoal.core.agents.background_shells import BackgroundShell, BackgroundShellResult
from shoal.core.agents.schedules import Schedule
from shoal.core.agents.subagents import (
    AgentResult,
    AgentWorkEvidence,
    RetainedWorktreeWork,
    ShellCommandResult,
)
from shoal.core.budgets.usage import Usage
from shoal.core.errors import StateFileError
from shoal.core.events import JournalEvent, UnknownJournalEvent
from shoal.core.ids import LEAD_ID, AgentId, IdGenerator, RequestId, SessionId
from shoal.core.journal_progress import journal_damage
from shoal.core.permissions.questions import (
    AllowAnswer,
    ChoiceAnswer,
    ChoiceOption,
    ChoiceQuestion,
    DenyAnswer,
    MultipleChoice,
    PermissionQuestion,
)
from shoal.stores.files.home.home_paths import get_journal_path
from shoal.stores.files.locks.pid_locks import SessionLock
from shoal.stores.files.sessions.file_journal import GROWTH_CHECK, FileJournal, follow_journal, read_journal
from shoal.wire.journal_codec import encode_journal_line

USAGE = Usage(input_tokens=1, output_tokens=2)
CHILD = AgentId("a0123456789abcdef")
SHELL = BackgroundShell(shell="bash_1", agent=LEAD_ID, call="c3", command="make", output="/out")
EVENTS = [
    events.SessionStarted(
        agent=LEAD_ID,
        session="s-1",
        cwd="/x",
        model="m",
        mode="default",
        tools=("Read", "Bash"),
        resumed=True,
    ),
    events.TurnStarted(agent=LEAD_ID, turn=1, prompt="héllo \n \udcff"),
    events.ModelRequestSent(agent=LEAD_ID, request=RequestId("r-1"), model="m"),
    events.ModelRequestSettled(
        agent=LEAD_ID, request=RequestId("r-1"), model="m", usage=USAGE, cost_usd=None, duration_ms=5
    ),
    events.ModelRequestFailed(
        agent=LEAD_ID, request=RequestId("r-2"), reason="cut", billed=True, retry_in=0.5
    ),
    events.RepetitionStopped(agent=LEAD_ID, reason="it repeats itself"),
    events.AssistantReplied(agent=LEAD_ID, entry="e", preview="p", tool_uses=2),
    events.ToolStarted(agent=AgentId("a1"), call="t", tool="Bash", preview="ls"),
    events.ToolFinished(
        agent=AgentId("a1"), call="t", tool="Bash", is_error=True, size=3, duration_ms=1, preview="no"
    ),
    events.PermissionDenied(agent=LEAD_ID, call="t", tool="Bash", reason="r"),
    events.QuestionAsked(
        agent=LEAD_ID,
        question=PermissionQuestion(
            id="q", agent=LEAD_ID, tool_use_id="t", tool="Bash", input={"at": "x"}, reason="r"
        ),
    ),
    events.QuestionAsked(
        agent=LEAD_ID,
        question=ChoiceQuestion(
            id="q2",
            agent=LEAD_ID,
            choices=(
                MultipleChoice(
                    question="?", header="h", options=(ChoiceOption(label="a"),), multi_select=True
                ),
            ),
        ),
    ),
    events.QuestionAnswered(
        agent=LEAD_ID, question="q", answer=AllowAnswer(remember="session", input={"a": 1})
    ),
    events.QuestionAnswered(agent=LEAD_ID, question="q", answer=DenyAnswer(reason="no", by="policy")),
    events.QuestionAnswered(agent=LEAD_ID, question="q2", answer=ChoiceAnswer(answers={"?": "a"})),
    events.ConversationCompacted(agent=LEAD_ID, trigger="auto", tokens_before=7),
    events.FileChanged(agent=LEAD_ID, turn=1, path="/x/y"),
    events.TurnUndone(agent=LEAD_ID, turn=2, conversation=True, restored=("a.py",), left_alone=("b.py",)),
    events.NoteAdded(agent=LEAD_ID, text="n"),
    events.BudgetThresholdReached(
        agent=LEAD_ID, limit="usd", percent=80, spent=0.85, of=1.0, whose="Explore"
    ),
    events.TurnEnded(agent=LEAD_ID, turn=1, reason="done", requests=1),
    events.SessionEnded(agent=LEAD_ID),
    events.AgentStarted(
        agent=CHILD,
        kind="Explore",
        name="scout",
        description="look",
        parent=LEAD_ID,
        call="c1",
        depth=1,
        model="m",
        mode="default",
        background=True,
        cwd="/project",
    ),
    events.AgentMovedToBackground(agent=CHILD),
    events.AgentEnded(
        agent=CHILD,
        completion=AgentResult(
            id="e1",
            agent=CHILD,
            status="completed",
            kind="Explore",
            description="look",
            report_to=LEAD_ID,
            call="c1",
            text="found it",
            evidence=AgentWorkEvidence(
                tool_calls=1, commands=(ShellCommandResult(command="ls", exit_code=0),)
            ),
            worktree=RetainedWorktreeWork(path="/elsewhere", branch="b"),
        ),
    ),
    events.WorktreeWorkRetained(
        agent=CHILD, work=RetainedWorktreeWork(path="/elsewhere", branch="b", commits=2)
    ),
    events.NotificationDelivered(agent=LEAD_ID, completion="e1", call="c2"),
    events.MemberWentIdle(agent=CHILD, reason="available"),
    events.HookRan(
        agent=CHILD, event="PreToolUse", hook="check.sh", origin="settings", duration_ms=3, verdict="deny"
    ),
    events.MemberWoken(agent=CHILD),
    events.MemberWentDown(agent=CHILD, cause="it was killed by signal 9"),
    events.QueueItemAdded(agent=CHILD, item="i1", by="agent", text="more"),
    events.QueueItemWithdrawn(agent=CHILD, item="i1"),
    events.ScheduleCreated(
        agent=LEAD_ID, schedule=Schedule(id="s1", agent=LEAD_ID, cron="* * * * *", prompt="p", made=1)
    ),
    events.ScheduleEnded(agent=LEAD_ID, schedule="s1", how="expired"),
    events.MailPosted(
        agent=LEAD_ID, team="t", mail="m1", sender="ann", to="joe", kind="message", preview="hi"
    ),
    events.MailTaken(
        agent=LEAD_ID, team="t", mail="m1", sender="ann", to="joe", kind="message", preview="hi"
    ),
    events.TaskChanged(
        agent=LEAD_ID, board="t", task="2", subject="s", status="pending", blocked_by=("1",), rank=0.5
    ),
    events.WorkflowStarted(agent=LEAD_ID, workflow="w-1", name="w", arguments={"files": ["a"]}, rerun_from=2),
    events.WorkflowPhaseStarted(agent=LEAD_ID, workflow="w-1", phase="edit"),
    events.WorkflowStepStarted(
        agent=LEAD_ID, workflow="w-1", step=1, path="edit/agent a", digest="d", child=AgentId("a1"), until=5
    ),
    events.WorkflowStepFinished(agent=LEAD_ID, workflow="w-1", step=1, value={"text": "t", "answer": [1]}),
    events.WorkflowEnded(agent=LEAD_ID, workflow="w-1", status="completed", value={"ok": True}),
    events.PermissionModeChanged(agent=LEAD_ID, mode="plan"),
    events.BackgroundShellStarted(agent=LEAD_ID, facts=SHELL),
    events.BackgroundShellEnded(
        agent=LEAD_ID,
        id="e2",
        end=BackgroundShellResult(facts=SHELL, status="failed", exit_code=-9, detail="d", tail="t"),
    ),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shoal" / "runs" / "s-1" / "journal.jsonl"


def make_note(text: str, agent: AgentId = LEAD_ID) -> events.NoteAdded:
    return events.NoteAdded(agent=agent, text=text)


async def follow_to_end(path: Path) -> list[JournalEvent]:
    return [recorded.event async for recorded in follow_journal(path)]


def test_every_kind_of_event_is_read_as_it_was_written(path: Path, clock: FixedClock):
    assert {type(event) for event in EVENTS} == set(events.JournaledEvent.__subclasses__())
    journal = FileJournal(path, clock)
    for event in EVENTS:
        journal.append(event)
    recorded = list(read_journal(path))
    assert [line.event for line in recorded] == EVENTS
    assert {line.at for line in recorded} == {clock.now()}
    raw = json.loads(path.read_bytes().splitlines()[1])
    assert (raw["at"], raw["type"], raw["agent"]) == ("2023-11-14T22:13:20.000Z", "turn_started", "lead")
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_number_of_an_event_is_its_byte_offset(path: Path, clock: FixedClock):
    journal = FileJournal(path, clock)
    assert journal.get_position() == 0
    ends = []
    for event in EVENTS[:4]:
        journal.append(event)
        ends.append(journal.get_position())
    recorded = list(read_journal(path))
    assert [line.offset for line in recorded] == [0, *ends[:-1]]
    assert [line.next for line in recorded] == ends
    assert [line.event for line in read_journal(path, recorded[2].offset)] == EVENTS[2:4]
    assert list(read_journal(path, ends[-1])) == []


def test_a_reader_never_sees_half_a_line(path: Path, clock: FixedClock):
    FileJournal(path, clock).append(make_note("one"))
    line = encode_journal_line(make_note("two"), clock.now())
    with path.open("ab", buffering=0) as file:
        file.write(line[:30])
        assert [line.event.text for line in read_journal(path)] == ["one"]
        file.write(line[30:])
    assert [line.event.text for line in read_journal(path)] == ["one", "two"]


def test_unreadable_lines_are_skipped_and_reported(path: Path, clock: FixedClock):
    journal = FileJournal(path, clock)
    journal.append(make_note("one"))
    with path.open("ab") as file:
        file.write(b'{"at":"2030-01-01T00:00:00.000Z","type":"teleported","agent":"x","to":[1]}\n')
        file.write(b'garbage\n[1]\n{"type":"noted"}\n\n')
        file.write(b'{"at":"2030-01-01T00:00:00.000Z","type":"noted","agent":"x","text":{"now":"rich"}}\n')
    journal.append(make_note("two"))
    reports = []
    one, future, changed, two = (line.event for line in read_journal(path, report_problem=reports.append))
    assert (one, two) == (make_note("one"), make_note("two"))
    assert future == UnknownJournalEvent(
        type="teleported", raw={"type": "teleported", "agent": "x", "to": [1]}
    )
    assert isinstance(changed, UnknownJournalEvent)
    assert len(reports) == 4
    assert "an event (noted) with fields of other types" in reports[-1]


@pytest.mark.parametrize("create", [os.mkfifo, os.mkdir], ids=["pipe", "directory"])
def test_a_journal_that_is_not_a_regular_file_is_an_error_with_its_path(
    path: Path, create: Callable[[Path], None]
):
    path.parent.mkdir(parents=True, exist_ok=True)
    create(path)
    with pytest.raises(StateFileError, match=re.escape(str(path))):
        list(read_journal(path))


def test_an_event_after_a_torn_line_is_not_lost(path: Path, clock: FixedClock):
    other = FileJournal(path, clock)
    other.append(make_note("one"))
    with path.open("ab") as file:
        file.write(encode_journal_line(EVENTS[9], clock.now())[:-9])
    other.append(make_note("two"))  # was open before and does not know about the torn line
    with path.open("ab") as file:
        file.write(b'{"at":"20')
    FileJournal(path, clock).append(make_note("three"))  # is opened later and starts a new line
    reports = []
    recorded = list(read_journal(path, report_problem=reports.append))
    assert [line.event.text for line in recorded] == ["one", "two", "three"]
    assert len(reports) == 2


@pytest.mark.parametrize("torn", [b"", b"{"])
def test_a_reopened_journal_starts_a_new_line_only_after_a_torn_one(
    path: Path, clock: FixedClock, torn: bytes
):
    journal = FileJournal(path, clock)
    journal.append(make_note("one"))
    journal.close()
    with path.open("ab") as file:
        file.write(torn)
    FileJournal(path, clock).append(make_note("two"))
    lines = path.read_bytes().split(b"\n")
    assert [len(line) > 1 for line in lines] == [True, *([False] if torn else []), True, False]


def test_a_full_disk_is_an_error_and_the_next_event_starts_a_new_line(path: Path, clock: FixedClock):
    journal = FileJournal(path, clock)
    journal.append(make_note("one"))
    with (
        limit_file_size(path.stat().st_size + 20),
        pytest.raises(StateFileError, match="File too large"),
    ):
        journal.append(make_note("lost"))
    journal.append(make_note("two"))
    assert [line.event.text for line in read_journal(path)] == ["one", "two"]
    assert json.loads(path.read_bytes().splitlines()[-1])["text"] == "two"


@pytest.mark.spec("USR-03")
@pytest.mark.parametrize("later", [True, False])
def test_retained_work_that_did_not_fit_on_the_disk_is_written_when_there_is_room(
    path: Path, clock: FixedClock, *, later: bool
):
    journal = FileJournal(path, clock)
    journal.append(make_note("one"))
    work = RetainedWorktreeWork(path="/there", branch="b")
    with limit_file_size(path.stat().st_size + 20):
        with pytest.raises(StateFileError, match="File too large"):
            journal.append(events.WorktreeWorkRetained(agent=AgentId("a1"), work=work))
        with pytest.raises(StateFileError, match="File too large"):
            journal.append(make_note("lost"))
    if later:
        journal.append(make_note("two"))
    journal.close()
    first, *rest = [recorded.event for recorded in read_journal(path)]
    assert first.text == "one"
    assert rest[0] == events.WorktreeWorkRetained(agent=AgentId("a1"), work=work)
    assert [event.text for event in rest[1:]] == (["two"] if later else [])


RETAINED = events.WorktreeWorkRetained(
    agent=AgentId("a1"), work=RetainedWorktreeWork(path="/there", branch="b")
)


@pytest.mark.spec("LIM-15")
def test_an_event_that_is_written_again_after_a_full_disk_is_not_reported_as_lost(
    path: Path, clock: FixedClock
):
    journal, other = FileJournal(path, clock), FileJournal(path, clock)
    journal.append(make_note("one"))
    other.append(make_note("two"))
    for room in (40, 90):  # too little for the event, twice
        with limit_file_size(path.stat().st_size + room), pytest.raises(StateFileError):
            journal.append(RETAINED)
    other.append(make_note("three"))  # does not know about the torn line
    assert len(path.read_bytes().splitlines()) == 4, "the second part starts a new line"
    journal.close()
    reports: list[str] = []
    recorded = [record.event for record in read_journal(path, report_problem=reports.append)]
    assert recorded[:3] == [make_note("one"), make_note("two"), make_note("three")]
    assert recorded[3:] == [RETAINED, RETAINED], "each call wrote its event once"
    assert reports == []


@pytest.mark.spec("LIM-15")
@pytest.mark.parametrize(
    ("size", "passed_time"), [(25, 0), (60, 1), (120, 1)], ids=["no time", "little", "nearly all"]
)
def test_a_torn_event_that_is_not_written_again_is_reported_as_lost(
    path: Path, clock: FixedClock, size: int, passed_time: int
):
    FileJournal(path, clock).append(make_note("one"))
    with path.open("ab") as file:
        file.write(encode_journal_line(RETAINED, clock.now())[:size])
    offset = path.read_bytes().rindex(b"\n") + 1
    clock.time += passed_time
    FileJournal(path, clock).append(RETAINED)  # a later event of the same kind
    reports: list[str] = []
    recorded = [record.event for record in read_journal(path, report_problem=reports.append)]
    assert recorded == [make_note("one"), RETAINED]
    assert reports == [f"The journal has an incomplete event at offset {offset} ({size} bytes)."]


@pytest.mark.spec("LIM-15")
@pytest.mark.parametrize("end", [b"", b'{"at":"20'])
def test_an_event_that_may_still_be_written_is_not_reported_as_damage(home: Path, end: bytes):
    session = SessionId("s-1")
    path = get_journal_path(home, session)
    lock = SessionLock(home, session)
    path.write_bytes(end)
    reports: list[str] = []
    token = journal_damage.set(lambda _, problem: reports.append(problem))
    try:
        assert list(read_journal(path)) == []
        assert reports == [], "the process that holds the lock may be writing it"
        lock.release()
        assert list(read_journal(path)) == []
    finally:
        journal_damage.reset(token)
    assert reports == ["The end of the journal is missing." if end else "It is empty."]


def test_only_some_torn_events_are_compared_with_later_lines(path: Path, clock: FixedClock):
    torn = b"".join(encode_journal_line(make_note(str(n)), clock.now())[:-4] + b"\n" for n in range(100))
    path.parent.mkdir(parents=True)
    path.write_bytes(torn)
    reports: list[str] = []
    assert list(read_journal(path, report_problem=reports.append)) == []
    offsets = [int(report.split("offset ")[1].split()[0]) for report in reports]
    assert offsets == sorted({match.start() for match in re.finditer(rb"(?m)^\{", torn)})


@pytest.mark.parametrize("later", [True, False])
def test_an_event_that_is_written_and_not_flushed_is_not_written_twice(
    path: Path, clock: FixedClock, monkeypatch: pytest.MonkeyPatch, *, later: bool
):
    journal = FileJournal(path, clock, durable=True)
    journal.append(make_note("one"))

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patches:
        patches.setattr(os, "fdatasync", fail)
        for event in (RETAINED, make_note("two")):
            with pytest.raises(StateFileError, match="Input/output error"):
                journal.append(event)
    if later:
        journal.append(make_note("three"))
    journal.close()
    assert [record.event for record in read_journal(path)] == [
        make_note("one"),
        RETAINED,
        make_note("two"),
        *([make_note("three")] if later else []),
    ]


APPENDER_SCRIPT = """
import sys
from pathlib import Path
from shoal.core.clock import SystemClock
from shoal.core.events import NoteAdded
from shoal.stores.files.sessions.file_journal import FileJournal
journal = FileJournal(Path(sys.argv[1]), SystemClock())
sys.stdin.readline()
for number in range(500):
    journal.append(NoteAdded(agent=sys.argv[2], text=f"{number} " + "x" * (number % 300)))
"""


def test_concurrent_processes_do_not_tear_each_others_lines(path: Path):
    path.parent.mkdir(parents=True)
    children = [
        subprocess.Popen([sys.executable, "-c", APPENDER_SCRIPT, str(path), name], stdin=subprocess.PIPE)
        for name in ("a", "b", "c")
    ]
    for child in children:
        child.stdin.write(b"go\n")
        child.stdin.flush()
    for child in children:
        child.communicate()
        assert child.returncode == 0
    reports = []
    recorded = list(read_journal(path, report_problem=reports.append))
    assert reports == []
    for name in ("a", "b", "c"):
        numbers = [int(r.event.text.split()[0]) for r in recorded if r.event.agent == name]
        assert numbers == list(range(500))


@pytest.mark.spec("USR-30")
def test_the_same_seed_and_clock_give_the_same_bytes(tmp_path: Path, clock: FixedClock):
    def write_journal(path: Path) -> bytes:
        ids = IdGenerator(7)
        journal = FileJournal(path, clock)
        for _ in range(20):
            clock.time += ids.random.randrange(1000)
            journal.append(
                events.ModelRequestSent(agent=ids.new_agent_id(), request=ids.new_request_id(), model="m")
            )
        return path.read_bytes()

    start = clock.time
    first = write_journal(tmp_path / "one.jsonl")
    clock.time = start
    assert write_journal(tmp_path / "two.jsonl") == first


async def test_a_follower_gets_an_event_at_once_and_ends_with_the_run(path: Path, clock: FixedClock):
    journal = FileJournal(path, clock)
    journal.append(make_note("before"))
    received = asyncio.Queue()

    async def follow() -> None:
        async for recorded in follow_journal(path):
            received.put_nowait(recorded.event)

    started = time.monotonic()
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        assert await received.get() == make_note("before")
        for number in range(20):
            # The follower has read everything and waits: only a file event can wake it.
            journal.append(make_note(f"{number}"))
            assert await received.get() == make_note(f"{number}")
        journal.append(events.SessionEnded(agent=LEAD_ID))
    assert received.get_nowait() == events.SessionEnded(agent=LEAD_ID)
    # Twenty polls, one second apart, would take far longer.
    assert time.monotonic() - started < 10


async def test_a_follower_waits_for_a_journal_that_does_not_exist_yet(path: Path, clock: FixedClock):
    path.parent.mkdir(parents=True)

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        received = tasks.create_task(follow_to_end(path))
        await asyncio.sleep(0)
        journal = FileJournal(path, clock)
        journal.append(make_note("one"))
        journal.append(events.SessionEnded(agent=LEAD_ID))
    assert received.result() == [make_note("one"), events.SessionEnded(agent=LEAD_ID)]


async def test_a_follower_reads_past_an_earlier_end_and_stops_when_the_run_is_not_running(
    path: Path, clock: FixedClock
):
    journal = FileJournal(path, clock)
    for event in (events.SessionEnded(agent=LEAD_ID), make_note("resumed")):
        journal.append(event)
    async with asyncio.timeout(10):
        received = [r.event async for r in follow_journal(path, is_running=lambda: False)]
    assert received == [events.SessionEnded(agent=LEAD_ID), make_note("resumed")]


async def test_a_follower_ends_when_the_writer_dies_without_an_end_event(path: Path, clock: FixedClock):
    FileJournal(path, clock).append(make_note("one"))
    living = [True]
    async with asyncio.timeout(10):
        async for recorded in follow_journal(path, is_running=lambda: living[0]):
            assert recorded.event == make_note("one")
            asyncio.get_running_loop().call_soon(living.clear)
            asyncio.get_running_loop().call_soon(living.append, False)


async def test_a_follower_polls_where_no_file_events_arrive(path: Path, clock: FixedClock):
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        received = tasks.create_task(follow_to_end(path))
        await asyncio.sleep(0)
        # The directory did not exist when the watch started.
        FileJournal(path, clock).append(events.SessionEnded(agent=LEAD_ID))
    assert received.result() == [events.SessionEnded(agent=LEAD_ID)]


async def test_a_follower_leaves_no_watch_behind(path: Path, clock: FixedClock):
    FileJournal(path, clock).append(events.SessionEnded(agent=LEAD_ID))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        assert [r async for r in follow_journal(path)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_encoding_a_line_is_fast(clock: FixedClock):
    event = EVENTS[7]
    best = float("inf")
    for _ in range(20):
        start = time.process_time()
        for _ in range(500):
            encode_journal_line(event, clock.now())
        best = min(best, (time.process_time() - start) / 500)
    assert best < 15e-6  # about 1.5 µs on a quiet machine


def test_growth_is_reported_with_the_size_after_a_fixed_number_of_events(tmp_path: Path) -> None:
    sizes: list[int] = []
    path = tmp_path / "journal.jsonl"
    journal = FileJournal(path, FixedClock())
    journal.add_growth_listener(sizes.append)
    note = events.NoteAdded(agent=LEAD_ID, text="x")
    for _ in range(GROWTH_CHECK - 1):
        journal.append(note)
    assert sizes == []
    journal.append(note)
    assert sizes == [path.stat().st_size]
    journal.append_all([note] * GROWTH_CHECK)
    assert sizes[1:] == [path.stat().st_size]
    journal.close()
