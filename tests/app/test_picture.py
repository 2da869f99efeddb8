"""The picture that every surface draws from: live, by frames, and from the journal afterwards."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cast import all_turns, use
from shoal.app.outside.following import Followed
from shoal.app.outside.watching import Run
from shoal.app.picture import picture as pictures
from shoal.app.picture.letters import Letters
from shoal.app.picture.picture import Picture, drawn
from shoal.app.picture.rows import Frame
from shoal.app.session.adjusting import interrupt_agent
from shoal.app.session.helm import FarHelm, OwnHelm
from shoal.app.teams.record import AgentsRecord
from shoal.core.clock import SystemClock
from shoal.core.events import (
    AgentStarted,
    Answered,
    Asked,
    Event,
    MailPosted,
    MailTaken,
    MemberRested,
    Noted,
    RequestSettled,
    SessionStarted,
    TaskChanged,
    TurnStarted,
)
from shoal.core.ids import LEAD, AgentId, Ids, RequestId, SessionId
from shoal.core.names import AgentName, TaskId
from shoal.core.questions import Allowed, MayRun
from shoal.core.requests import Request
from shoal.core.tasks import RANK, Change, Draft
from shoal.core.usage import Usage
from shoal.stores.files.journal import read_journal
from shoal.testing import FakeClock
from shoal.wire.control import Interrupt
from troupe import home, inbox, member, opened, tell, troupe

_KEYS = {
    "agents": ("id",),
    "tasks": ("board", "id"),
    "letters": ("team", "to", "id"),
    "questions": ("id",),
    "costs": ("agent", "model", "board", "task"),
    "spend": ("at",),
    "notes": ("number",),
}


class Screen:
    """What a surface has that knows nothing but frames: rows by key."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[Any, Any]] = {name: {} for name in _KEYS}
        self.offset = 0

    def show(self, frame: Frame) -> None:
        for name, key in _KEYS.items():
            for row in getattr(frame, name):
                self.rows[name][tuple(getattr(row, part) for part in key)] = row
        self.offset = frame.offset


def fills(request: Request) -> Any:
    """Bob's part: he waits until it is his turn, whatever he hears before."""
    made = any(block.id == "u4" for message in request.messages for block in message.tool_uses)
    yours = any("yours now" in message.text for message in request.messages)
    return use("TaskUpdate", "u4", taskId="2", status="completed") if yours and not made else "I wait"


def crew() -> Any:
    """A lead and two teammates: a task that waits for another, a letter from one to the other."""
    return troupe(
        lead=[
            use("TeamCreate", team_name="crew"),
            use("TaskCreate", "t1", subject="Dig", description="a hole"),
            use("TaskCreate", "t2", subject="Fill", description="the hole"),
            use("TaskUpdate", "u1", taskId="2", addBlockedBy=["1"], owner="bob"),
            member("bob"),
            member("ann"),
            "They work.",
        ],
        ann=[
            use("TaskUpdate", "u2", taskId="1", owner="ann", status="in_progress"),
            tell("bob", "I am digging", "digging"),
            use("TaskUpdate", "u3", taskId="1", status="completed"),
            "dug",
        ],
        bob=[fills],
    )


@pytest.mark.spec("USR-18", "TRN-03")
async def test_the_picture_is_the_same_live_by_frames_and_from_the_journal(tmp_path: Path) -> None:
    clock, live, screen = SystemClock(), Picture(), Screen()
    async with opened(tmp_path, crew()) as session:
        run = Run(session=session.id, home=home())
        session.watch(lambda event: live.hear(event, clock.now()))
        async with Followed(run, clock) as followed:
            await all_turns(session, "Go.")
            async for frame in followed.frames():
                screen.show(frame)
                if frame.offset >= run.journal.stat().st_size:
                    break
        assert OwnHelm(session).run == FarHelm(run).run
    picture = drawn(read_journal(run.journal))
    assert [(row.id, row.subject, row.status, row.owner) for row in picture.tasks.values()] == [
        ("1", "Dig", "completed", "ann"),
        ("2", "Fill", "completed", "bob"),
    ]
    assert [move[1:] for move in picture.tasks.get("crew", "1").moves][-2:] == [  # type: ignore[union-attr]
        ("in_progress", "ann"),
        ("completed", "ann"),
    ]
    (letter,) = (
        row for row in picture.letters.values() if (row.sender, row.to, row.kind) == ("ann", "bob", "message")
    )
    assert (letter.kind, letter.text, letter.summary) == ("message", "I am digging", "digging")
    assert letter.posted <= letter.taken
    assert {row.name for row in picture.agents()} == {"lead", "ann", "bob"}
    shown = screen.rows
    assert {row.name: row.tokens for row in shown["agents"].values()} == {
        row.name: row.tokens for row in picture.agents()
    }
    assert sum(row.requests for row in shown["costs"].values()) == picture.costs.requests
    assert [row.id for row in live.letters.values()] == [row.id for row in picture.letters.values()]
    assert msgspec.json.decode(msgspec.json.encode(picture.since(0)), type=Frame) == picture.since(0)


@pytest.mark.spec("USR-18")
async def test_frames_since_any_offset_bring_a_surface_to_the_same_end(tmp_path: Path) -> None:
    async with opened(tmp_path, crew()) as session:
        await all_turns(session, "Go.")
        run = Run(session=session.id, home=home())
    recorded = list(read_journal(run.journal))
    whole = Screen()
    whole.show(drawn(recorded).since(0))
    for cut in range(1, len(recorded), 7):
        screen, picture = Screen(), Picture()
        for each in recorded[:cut]:
            picture.record(each)
        screen.show(picture.since(0))
        for each in recorded[cut:]:
            picture.record(each)
        screen.show(picture.since(screen.offset))
        assert screen.rows == whole.rows


@pytest.mark.spec("USR-18")
async def test_what_another_program_does_with_a_task_is_told_too(tmp_path: Path) -> None:
    async with opened(tmp_path, crew()) as session:
        await all_turns(session, "Go.")
        picture, changed = Picture(), asyncio.Event()

        def hear(event: Any) -> None:
            picture.hear(event, 1)
            changed.set()

        session.watch(hear)
        other = AgentsRecord(home(), clock=SystemClock(), ids=Ids(9))
        board = other.board("crew")
        made = await board.create(Draft(subject="Plant", description="a tree"))
        await board.update(made.id, Change(metadata={RANK: 0.5}), by=AgentName("team-lead"))
        async with asyncio.timeout(10):
            while (row := picture.tasks.get("crew", made.id)) is None or row.rank is None:
                await changed.wait()
                changed.clear()
        assert (row.subject, row.rank) == ("Plant", 0.5)
        await board.delete(made.id)
        async with asyncio.timeout(10):
            while picture.tasks.get("crew", made.id).status != "deleted":  # type: ignore[union-attr]
                await changed.wait()
                changed.clear()
        await other.aclose()


@pytest.mark.spec("TSK-07")
async def test_a_task_that_a_person_put_first_is_claimed_first(tmp_path: Path) -> None:
    record = AgentsRecord(tmp_path, clock=SystemClock(), ids=Ids(1))
    board = record.board("garden")
    for subject in ("dig", "sow", "water"):
        await board.create(Draft(subject=subject, description=""))
    await board.update(TaskId("3"), Change(metadata={RANK: 0.5}), by=AgentName("ann"))
    order = []
    while (claim := await board.claim_next(by=AgentName("ann"))) is not None and claim.task is not None:
        order.append(claim.task.subject)
        await board.update(claim.task.id, Change(status="completed"), by=AgentName("ann"))
    assert order == ["water", "dig", "sow"]
    await record.aclose()


@pytest.mark.spec("USR-18")
async def test_what_happens_is_in_a_frame_within_a_second(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path, troupe(lead=["Done."])) as session:
        await all_turns(session, "Go.")
        async with Followed(Run(session=session.id, home=home()), clock) as followed:
            frames = followed.frames()
            first = await anext(frames)
            session.emit(Noted(agent=LEAD, text="Look here."))
            async with asyncio.timeout(10):
                while followed.picture.offset == first.offset:
                    await asyncio.sleep(0.01)
            coming = asyncio.ensure_future(anext(frames))
            await clock.advance(1)
            frame = await asyncio.wait_for(coming, 30)
    assert [note.text for note in frame.notes] == ["Look here."]


@pytest.mark.spec("USR-18", "LIF-02", "LIF-06", "MSG-02")
async def test_a_teammate_is_interrupted_and_lives_on(tmp_path: Path) -> None:
    model = troupe(
        lead=[use("TeamCreate", team_name="crew"), member("ann"), "She works."],
        ann=[use("Bash", command="sleep 600"), "Never mind."],
    )
    rested, begun = asyncio.Event(), asyncio.Event()
    async with opened(tmp_path, model) as session:

        def hear(event: Any) -> None:
            if getattr(event, "tool", "") == "Bash":
                begun.set()
            if isinstance(event, MemberRested) and event.reason == "interrupted":
                rested.set()

        session.watch(hear)
        async for _ in session.run("Go."):
            pass
        async with asyncio.timeout(20):
            await begun.wait()
            run = Run(session=session.id, home=home())
            assert await FarHelm(run).demand(Interrupt(task_id="ann")) == {"interrupted": True}
            await rested.wait()
        assert not await interrupt_agent(session, "ann")
        assert [(each.name, each.state) for each in session.parts.teams.members()] == [("ann", "idle")]
        (notice,) = [json.loads(each["text"]) for each in inbox("crew", "team-lead")]
        assert (notice["type"], notice["from"]) == ("idle_notification", "ann")
        assert notice["idleReason"] == "interrupted"


@pytest.mark.spec("USR-18", "USR-05")
async def test_a_run_that_died_leaves_nobody_at_work_and_goes_on_in_the_same_picture(tmp_path: Path) -> None:
    async with opened(tmp_path, crew()) as session:
        await all_turns(session, "Go.")
        run = Run(session=session.id, home=home())
    lines = run.journal.read_bytes().splitlines(keepends=True)
    asked = next(i for i, line in enumerate(lines) if b'"agent_started"' in line)
    run.journal.write_bytes(b"".join(lines[: asked + 6]))
    clock = SystemClock()
    async with Followed(run, clock) as followed:
        assert not followed.live
        assert not any(row.state == "working" for row in followed.picture.agents() if row.name != "lead")
        screen = Screen()
        screen.show(followed.picture.since(0))
        async with opened(tmp_path, crew(), resume=session.id) as again:
            await all_turns(again, "Go on.")
        async with asyncio.timeout(10):
            async for frame in followed.frames(screen.offset):
                screen.show(frame)
                if followed.picture.run.ended:
                    break
    assert screen.rows["agents"][("lead",)].requests == followed.picture.agent("lead").requests  # type: ignore


def test_what_a_process_asked_before_it_died_is_no_question_of_the_next() -> None:
    """Also where its answer was given, and the process died before it could tell."""
    asked = MayRun(id="q-1", agent=LEAD, tool_use_id="u", tool="Bash", input={}, reason="")
    again = SessionStarted(agent=LEAD, session=SessionId("s"), cwd="/", model="m", mode="default", tools=())
    picture = Picture()
    events = (again, TurnStarted(agent=LEAD, turn=1, prompt="go"), Asked(agent=LEAD, question=asked))
    for at, event in enumerate(events, 1):
        picture.hear(event, at)
    lead = picture.agent(LEAD)
    assert lead is not None
    assert (lead.state, lead.question) == ("waiting", "q-1")
    offset = picture.offset
    picture.hear(again, 9)
    assert not picture.open_questions()
    frame = picture.since(offset)
    assert [(row.id, row.answered) for row in frame.questions] == [("q-1", 9)]
    assert [(row.state, row.question) for row in frame.agents] == [("idle", "")]
    picture.hear(Answered(agent=LEAD, question="q-1", answer=Allowed()), 10)
    known = picture.questions.get("q-1")
    assert known is not None
    assert known.answer == Allowed(), "what became of it is told all the same"


@pytest.mark.parametrize(
    ("told", "posted"),
    [
        ("1970-01-01T00:00:02+00:00", 2_000),
        ("0001-01-01T00:00:00+00:00", 0),
        ("9999-01-01", 5_000),
        ("?", 5_000),
    ],
)
def test_a_letter_was_posted_at_a_time_that_can_be_shown(told: str, posted: int) -> None:
    picture = Picture()
    taken = {"mail": "m", "team": "crew", "sender": "x", "to": "ann", "kind": "message", "preview": ""}
    picture.hear(msgspec.convert({**taken, "agent": LEAD, "summary": "", "posted": told}, MailTaken), 5_000)
    assert [row.posted for row in picture.letters.values()] == [posted]


def posted(mail: str, to: str = "ann", *, team: str = "crew") -> MailPosted:
    return MailPosted(
        agent=LEAD, team=team, mail=mail, sender="x", to=to, kind="message", preview=f"{mail} to {to}"
    )


def taken(mail: str, to: str = "ann") -> MailTaken:
    return MailTaken(agent=LEAD, team="crew", mail=mail, sender="x", to=to, kind="message", preview="")


def changed(task: str, status: str, owner: str, board: str = "crew") -> TaskChanged:
    return TaskChanged(agent=LEAD, board=board, task=task, subject=f"do {task}", status=status, owner=owner)


def joined(name: str, team: str = "crew") -> AgentStarted:
    return AgentStarted(
        agent=AgentId(f"{name}@{team}"),
        kind="worker",
        name=name,
        description="",
        parent=LEAD,
        call="",
        depth=1,
        model="m",
        mode="default",
        background=True,
        cwd="/",
        team=team,
    )


def spent(name: str, usd: float, team: str = "crew") -> RequestSettled:
    return RequestSettled(
        agent=AgentId(f"{name}@{team}"),
        request=RequestId("r"),
        model="m",
        usage=Usage(input_tokens=1),
        cost_usd=usd,
        duration_ms=1,
    )


def told(*events: Event) -> Picture:
    picture = Picture()
    for at, event in enumerate(events, 1):
        picture.hear(event, at)
    return picture


def test_one_identity_in_two_inboxes_is_two_letters() -> None:
    """Programs that write no ids into their mail get them made of what it says."""
    picture = told(posted("m-1", "ann"), posted("m-1", "bob"), taken("m-1", "bob"))
    rows = [(row.to, row.text, bool(row.taken)) for row in picture.letters.values()]
    assert rows == [("ann", "m-1 to ann", False), ("bob", "m-1 to bob", True)]
    assert [row.to for row in picture.since(2).letters] == ["bob"]


def test_the_oldest_letters_of_a_long_run_are_let_go_of_and_counted_still() -> None:
    letters = Letters(most=3)
    for number in range(6):
        letters.hear(posted(str(number)), number + 1, number)
        if number != 1:
            letters.hear(taken(str(number)), number + 1, number)
    assert [row.id for row in letters.values()] == ["1", "4", "5"], "what nobody has taken is held longest"
    assert (letters.in_all, letters.unread) == (6, 1)
    letters.hear(taken("0"), 7, 7)
    letters.hear(taken("1"), 7, 7)
    assert (letters.in_all, letters.unread, len(letters)) == (6, 0, 3)


def test_letters_that_nobody_takes_are_let_go_of_too_and_counted_when_they_are_taken() -> None:
    letters = Letters(most=2)
    for number in range(4):
        letters.hear(posted(str(number)), number, number)
    assert ([row.id for row in letters.values()], letters.in_all, letters.unread) == (["2", "3"], 4, 4)
    for _ in range(2):
        letters.hear(taken("0"), 9, 9)
    assert (letters.in_all, letters.unread) == (4, 3)


def test_of_very_many_questions_the_latest_and_all_that_are_open_are_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pictures, "MOST_QUESTIONS", 2)
    events: list[Event] = []
    for number in range(5):
        asked = MayRun(id=f"q-{number}", agent=LEAD, tool_use_id="u", tool="Bash", input={}, reason="")
        events.append(Asked(agent=LEAD, question=asked))
        if number:
            events.append(Answered(agent=LEAD, question=asked.id, answer=Allowed()))
    picture = told(*events)
    assert [row.id for row in picture.questions.values()] == ["q-0", "q-4"]
    assert [row.id for row in picture.open_questions()] == ["q-0"]
    assert picture.since(0).questions_in_all == 5


def test_what_two_boards_spend_on_tasks_of_one_number_is_told_apart() -> None:
    picture = told(
        joined("ann", "north"),
        joined("ann", "south"),
        changed("1", "in_progress", "ann", "north"),
        changed("1", "in_progress", "ann", "south"),
        spent("ann", 1.0, "north"),
        spent("ann", 2.0, "south"),
    )
    rows = [(row.agent, row.board, row.task, row.usd) for row in picture.costs.rows.values()]
    assert rows == [("ann@north", "north", "1", 1.0), ("ann@south", "south", "1", 2.0)]
    assert [(row.board, row.usd) for row in picture.tasks.values()] == [("north", 1.0), ("south", 2.0)]


def test_the_lead_s_costs_of_two_boards_are_two_rows() -> None:
    def lead(usd: float) -> RequestSettled:
        return msgspec.structs.replace(spent("x", usd), agent=LEAD)

    picture = told(
        changed("1", "in_progress", "team-lead", "north"),
        lead(1.0),
        changed("1", "completed", "team-lead", "north"),
        changed("1", "in_progress", "team-lead", "south"),
        lead(2.0),
    )
    assert [(row.board, row.usd) for row in picture.costs.rows.values()] == [("north", 1.0), ("south", 2.0)]


def test_who_ends_a_task_is_at_the_one_begun_before_it_again() -> None:
    picture = told(
        joined("ann"),
        changed("1", "in_progress", "ann"),
        changed("2", "in_progress", "ann"),
        spent("ann", 1.0),
        changed("2", "completed", "ann"),
        spent("ann", 2.0),
    )
    ann = picture.agent(AgentId("ann@crew"))
    assert ann is not None
    assert ann.task == "#1 do 1"
    assert [(row.id, row.usd) for row in picture.tasks.values()] == [("1", 2.0), ("2", 1.0)]
