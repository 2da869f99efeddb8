from __future__ import annotations

import asyncio
import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from store_kit import StandingClock

from shoal.core import events
from shoal.core.agents import Completion, Evidence, KeptWork, Ran
from shoal.core.errors import StoreError
from shoal.core.ids import LEAD, AgentId, Ids, RequestId
from shoal.core.questions import Allowed, Choice, Choose, Chosen, Denied, MayRun, Option
from shoal.core.schedules import Schedule
from shoal.core.shells import ShellEnd, ShellFacts
from shoal.core.usage import Usage
from shoal.stores.files.journal import FileJournal, follow_journal, read_journal
from shoal.wire.journal import Event, Unknown, journal_line

USAGE = Usage(input_tokens=1, output_tokens=2)
CHILD = AgentId("a0123456789abcdef")
SHELL = ShellFacts(shell="bash_1", agent=LEAD, call="c3", command="make", output="/out")
EVENTS = [
    events.SessionStarted(
        agent=LEAD, session="s-1", cwd="/x", model="m", mode="default", tools=("Read", "Bash"), resumed=True
    ),
    events.TurnStarted(agent=LEAD, turn=1, prompt="héllo \n \udcff"),
    events.RequestSent(agent=LEAD, request=RequestId("r-1"), model="m"),
    events.RequestSettled(
        agent=LEAD, request=RequestId("r-1"), model="m", usage=USAGE, cost_usd=None, duration_ms=5
    ),
    events.RequestFailed(agent=LEAD, request=RequestId("r-2"), reason="cut", billed=True, retry_in=0.5),
    events.AssistantSaid(agent=LEAD, entry="e", preview="p", tool_uses=2),
    events.ToolStarted(agent=AgentId("a1"), call="t", tool="Bash", preview="ls"),
    events.ToolFinished(
        agent=AgentId("a1"), call="t", tool="Bash", is_error=True, size=3, duration_ms=1, preview="no"
    ),
    events.PermissionDenied(agent=LEAD, call="t", tool="Bash", reason="r"),
    events.Asked(
        agent=LEAD,
        question=MayRun(id="q", agent=LEAD, tool_use_id="t", tool="Bash", input={"at": "x"}, reason="r"),
    ),
    events.Asked(
        agent=LEAD,
        question=Choose(
            id="q2",
            agent=LEAD,
            choices=(Choice(question="?", header="h", options=(Option(label="a"),), multi_select=True),),
        ),
    ),
    events.Answered(agent=LEAD, question="q", answer=Allowed(remember="session", input={"a": 1})),
    events.Answered(agent=LEAD, question="q", answer=Denied(reason="no", by="policy")),
    events.Answered(agent=LEAD, question="q2", answer=Chosen(answers={"?": "a"})),
    events.ConversationCompacted(agent=LEAD, trigger="auto", tokens_before=7),
    events.FileChanged(agent=LEAD, turn=1, path="/x/y"),
    events.Undone(agent=LEAD, turn=2, conversation=True, restored=("a.py",), left_alone=("b.py",)),
    events.Noted(agent=LEAD, text="n"),
    events.BudgetWarned(agent=LEAD, limit="usd", percent=80, spent=0.85, of=1.0, whose="Explore"),
    events.TurnEnded(agent=LEAD, turn=1, reason="done", requests=1),
    events.SessionEnded(agent=LEAD),
    events.AgentStarted(
        agent=CHILD,
        kind="Explore",
        name="scout",
        description="look",
        parent=LEAD,
        call="c1",
        depth=1,
        model="m",
        mode="default",
        background=True,
        cwd="/project",
    ),
    events.AgentMoved(agent=CHILD),
    events.AgentEnded(
        agent=CHILD,
        completion=Completion(
            id="e1",
            agent=CHILD,
            status="completed",
            kind="Explore",
            description="look",
            report_to=LEAD,
            call="c1",
            text="found it",
            evidence=Evidence(tool_calls=1, commands=(Ran(command="ls", exit_code=0),)),
            worktree=KeptWork(path="/elsewhere", branch="b"),
        ),
    ),
    events.WorkKept(agent=CHILD, work=KeptWork(path="/elsewhere", branch="b", commits=2)),
    events.Notified(agent=LEAD, completion="e1", call="c2"),
    events.MemberRested(agent=CHILD, reason="available"),
    events.HookRan(
        agent=CHILD, event="PreToolUse", hook="check.sh", origin="settings", duration_ms=3, verdict="deny"
    ),
    events.MemberWoken(agent=CHILD),
    events.Queued(agent=CHILD, item="i1", by="agent", text="more"),
    events.Withdrawn(agent=CHILD, item="i1"),
    events.ScheduleMade(
        agent=LEAD, schedule=Schedule(id="s1", agent=LEAD, cron="* * * * *", prompt="p", made=1)
    ),
    events.ScheduleEnded(agent=LEAD, schedule="s1", how="expired"),
    events.MailPosted(agent=LEAD, team="t", mail="m1", sender="ann", to="joe", kind="message", preview="hi"),
    events.MailTaken(agent=LEAD, team="t", mail="m1", sender="ann", to="joe", kind="message", preview="hi"),
    events.TaskChanged(
        agent=LEAD, board="t", task="2", subject="s", status="pending", blocked_by=("1",), rank=0.5
    ),
    events.ModeChanged(agent=LEAD, mode="plan"),
    events.ShellStarted(agent=LEAD, facts=SHELL),
    events.ShellEnded(
        agent=LEAD, id="e2", end=ShellEnd(facts=SHELL, status="failed", exit_code=-9, detail="d", tail="t")
    ),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shoal" / "runs" / "s-1" / "journal.jsonl"


def noted(text: str, agent: AgentId = LEAD) -> events.Noted:
    return events.Noted(agent=agent, text=text)


def test_every_kind_of_event_is_read_as_it_was_written(path: Path, clock: StandingClock):
    assert {type(event) for event in EVENTS} == set(events.Journaled.__subclasses__())
    journal = FileJournal(path, clock)
    for event in EVENTS:
        journal.append(event)
    recorded = list(read_journal(path))
    assert [line.event for line in recorded] == EVENTS
    assert {line.at for line in recorded} == {clock.now()}
    raw = json.loads(path.read_bytes().splitlines()[1])
    assert (raw["at"], raw["type"], raw["agent"]) == ("2023-11-14T22:13:20.000Z", "turn_started", "lead")
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_number_of_an_event_is_its_byte_offset(path: Path, clock: StandingClock):
    journal = FileJournal(path, clock)
    assert journal.position() == 0
    ends = []
    for event in EVENTS[:4]:
        journal.append(event)
        ends.append(journal.position())
    recorded = list(read_journal(path))
    assert [line.offset for line in recorded] == [0, *ends[:-1]]
    assert [line.next for line in recorded] == ends
    assert [line.event for line in read_journal(path, recorded[2].offset)] == EVENTS[2:4]
    assert list(read_journal(path, ends[-1])) == []


def test_a_reader_never_sees_half_a_line(path: Path, clock: StandingClock):
    FileJournal(path, clock).append(noted("one"))
    line = journal_line(noted("two"), clock.now())
    with path.open("ab", buffering=0) as file:
        file.write(line[:30])
        assert [line.event.text for line in read_journal(path)] == ["one"]
        file.write(line[30:])
    assert [line.event.text for line in read_journal(path)] == ["one", "two"]


def test_what_a_reader_does_not_understand_is_skipped_and_reported(path: Path, clock: StandingClock):
    journal = FileJournal(path, clock)
    journal.append(noted("one"))
    with path.open("ab") as file:
        file.write(b'{"at":"2030-01-01T00:00:00.000Z","type":"teleported","agent":"x","to":[1]}\n')
        file.write(b'garbage\n[1]\n{"type":"noted"}\n\n')
        file.write(b'{"at":"2030-01-01T00:00:00.000Z","type":"noted","agent":"x","text":{"now":"rich"}}\n')
    journal.append(noted("two"))
    reports = []
    one, future, changed, two = (line.event for line in read_journal(path, report=reports.append))
    assert (one, two) == (noted("one"), noted("two"))
    assert future == Unknown(type="teleported", raw={"type": "teleported", "agent": "x", "to": [1]})
    assert isinstance(changed, Unknown)
    assert len(reports) == 3


def test_an_event_after_the_torn_one_of_a_killed_process_is_not_lost(path: Path, clock: StandingClock):
    other = FileJournal(path, clock)
    other.append(noted("one"))
    with path.open("ab") as file:
        file.write(journal_line(EVENTS[9], clock.now())[:-9])
    other.append(noted("two"))  # was open before and knows nothing of it
    with path.open("ab") as file:
        file.write(b'{"at":"20')
    FileJournal(path, clock).append(noted("three"))  # opens after it and starts a new line
    reports = []
    recorded = list(read_journal(path, report=reports.append))
    assert [line.event.text for line in recorded] == ["one", "two", "three"]
    assert len(reports) == 2


def test_a_full_disk_is_an_error_and_the_next_event_starts_a_new_line(path: Path, clock: StandingClock):
    journal = FileJournal(path, clock)
    journal.append(noted("one"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, limits[1]))
        with pytest.raises(StoreError, match="File too large"):
            journal.append(noted("lost"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
    journal.append(noted("two"))
    assert [line.event.text for line in read_journal(path)] == ["one", "two"]
    assert json.loads(path.read_bytes().splitlines()[-1])["text"] == "two"


@pytest.mark.spec("USR-03")
@pytest.mark.parametrize("later", [True, False])
def test_an_end_that_did_not_fit_on_the_disk_is_written_when_there_is_room(
    path: Path, clock: StandingClock, *, later: bool
):
    journal = FileJournal(path, clock)
    journal.append(noted("one"))
    work = KeptWork(path="/there", branch="b")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, limits[1]))
        with pytest.raises(StoreError, match="File too large"):
            journal.append(events.WorkKept(agent=AgentId("a1"), work=work))
        with pytest.raises(StoreError, match="File too large"):
            journal.append(noted("lost"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
    if later:
        journal.append(noted("two"))
    journal.close()
    first, *rest = [recorded.event for recorded in read_journal(path)]
    assert first.text == "one"
    assert rest[0] == events.WorkKept(agent=AgentId("a1"), work=work)
    assert [event.text for event in rest[1:]] == (["two"] if later else [])


MANY = """
import sys
from pathlib import Path
from shoal.core.clock import SystemClock
from shoal.core.events import Noted
from shoal.stores.files.journal import FileJournal
journal = FileJournal(Path(sys.argv[1]), SystemClock())
sys.stdin.readline()
for number in range(500):
    journal.append(Noted(agent=sys.argv[2], text=f"{number} " + "x" * (number % 300)))
"""


def test_processes_that_write_at_once_do_not_tear_each_others_lines(path: Path):
    path.parent.mkdir(parents=True)
    children = [
        subprocess.Popen([sys.executable, "-c", MANY, str(path), name], stdin=subprocess.PIPE)
        for name in ("a", "b", "c")
    ]
    for child in children:
        child.stdin.write(b"go\n")
        child.stdin.flush()
    for child in children:
        child.communicate()
        assert child.returncode == 0
    reports = []
    recorded = list(read_journal(path, report=reports.append))
    assert reports == []
    for name in ("a", "b", "c"):
        numbers = [int(r.event.text.split()[0]) for r in recorded if r.event.agent == name]
        assert numbers == list(range(500))


@pytest.mark.spec("USR-30")
def test_the_same_seed_and_clock_give_the_same_bytes(tmp_path: Path, clock: StandingClock):
    def run(path: Path) -> bytes:
        ids = Ids(7)
        journal = FileJournal(path, clock)
        for _ in range(20):
            clock.time += ids.random.randrange(1000)
            journal.append(events.RequestSent(agent=ids.agent(), request=ids.request(), model="m"))
        return path.read_bytes()

    start = clock.time
    first = run(tmp_path / "one.jsonl")
    clock.time = start
    assert run(tmp_path / "two.jsonl") == first


async def test_a_follower_hears_of_an_event_at_once_and_ends_with_the_run(path: Path, clock: StandingClock):
    journal = FileJournal(path, clock)
    journal.append(noted("before"))
    heard = asyncio.Queue()

    async def follow() -> None:
        async for recorded in follow_journal(path):
            heard.put_nowait(recorded.event)

    started = time.monotonic()
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(follow())
        assert await heard.get() == noted("before")
        for number in range(20):
            # The follower has read everything and waits: only a notice can wake it.
            journal.append(noted(f"{number}"))
            assert await heard.get() == noted(f"{number}")
        journal.append(events.SessionEnded(agent=LEAD))
    assert heard.get_nowait() == events.SessionEnded(agent=LEAD)
    # Twenty looks of the safety net, one second apart, would be far longer.
    assert time.monotonic() - started < 10


async def test_a_follower_waits_for_a_journal_that_is_not_there_yet(path: Path, clock: StandingClock):
    path.parent.mkdir(parents=True)

    async def hear() -> list[Event]:
        return [recorded.event async for recorded in follow_journal(path)]

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        heard = tasks.create_task(hear())
        await asyncio.sleep(0)
        journal = FileJournal(path, clock)
        journal.append(noted("one"))
        journal.append(events.SessionEnded(agent=LEAD))
    assert heard.result() == [noted("one"), events.SessionEnded(agent=LEAD)]


async def test_a_follower_goes_on_past_an_earlier_end_and_stops_when_nobody_writes(
    path: Path, clock: StandingClock
):
    journal = FileJournal(path, clock)
    for event in (events.SessionEnded(agent=LEAD), noted("resumed")):
        journal.append(event)
    async with asyncio.timeout(10):
        heard = [r.event async for r in follow_journal(path, alive=lambda: False)]
    assert heard == [events.SessionEnded(agent=LEAD), noted("resumed")]


async def test_a_follower_notices_that_the_writer_died_without_a_word(path: Path, clock: StandingClock):
    FileJournal(path, clock).append(noted("one"))
    living = [True]
    async with asyncio.timeout(10):
        async for recorded in follow_journal(path, alive=lambda: living[0]):
            assert recorded.event == noted("one")
            asyncio.get_running_loop().call_soon(living.clear)
            asyncio.get_running_loop().call_soon(living.append, False)


async def test_a_follower_looks_by_itself_where_the_system_tells_nothing(path: Path, clock: StandingClock):
    async def hear() -> list[Event]:
        return [recorded.event async for recorded in follow_journal(path)]

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        heard = tasks.create_task(hear())
        await asyncio.sleep(0)
        # The directory was not there when the watch began.
        FileJournal(path, clock).append(events.SessionEnded(agent=LEAD))
    assert heard.result() == [events.SessionEnded(agent=LEAD)]


async def test_a_follower_leaves_no_watch_behind(path: Path, clock: StandingClock):
    FileJournal(path, clock).append(events.SessionEnded(agent=LEAD))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        assert [r async for r in follow_journal(path)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_line_costs_little(clock: StandingClock):
    event = EVENTS[7]
    best = float("inf")
    for _ in range(20):
        start = time.process_time()
        for _ in range(500):
            journal_line(event, clock.now())
        best = min(best, (time.process_time() - start) / 500)
    assert best < 15e-6  # about 1.5 µs on a quiet machine
