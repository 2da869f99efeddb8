"""The run view behind every user interface: live, from view deltas, and from the journal."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent_scripts import call_tool, run_all_turns
from shoal.app.run_access.run_follower import RunFollower
from shoal.app.run_access.run_handle import RunHandle
from shoal.app.run_view import run_view as pictures
from shoal.app.run_view.mail_table import RunViewMailState
from shoal.app.run_view.run_view import RunView, build_run_view
from shoal.app.run_view.view_rows import ViewDelta
from shoal.app.session.run_controller import LocalRunController, RemoteRunController
from shoal.app.session.session_changes import interrupt_agent
from shoal.app.teams.team_store import TeamStore
from shoal.core.budgets.usage import Usage
from shoal.core.clock import SystemClock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import (
    AgentStarted,
    Event,
    MailPosted,
    MailTaken,
    MemberWentIdle,
    ModelRequestSettled,
    NoteAdded,
    QuestionAnswered,
    QuestionAsked,
    SessionStarted,
    TaskChanged,
    TurnStarted,
)
from shoal.core.ids import LEAD_ID, AgentId, IdGenerator, RequestId, SessionId
from shoal.core.names import AgentName, TaskId
from shoal.core.permissions.questions import AllowAnswer, PermissionQuestion
from shoal.core.teams.tasks import RANK_KEY, TaskDraft, TaskUpdate
from shoal.stores.files.sessions.file_journal import read_journal
from shoal.testing import FakeClock
from shoal.wire.control_codec import InterruptTurnControlCommand
from team_scripts import get_home, open_session, read_inbox, script_team, send_message, spawn_member

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
    """Rows by key, built from view deltas only."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[Any, Any]] = {name: {} for name in _KEYS}
        self.offset = 0

    def apply_delta(self, delta: ViewDelta) -> None:
        for name, key in _KEYS.items():
            for row in getattr(delta, name):
                self.rows[name][tuple(getattr(row, part) for part in key)] = row
        self.offset = delta.offset


def fill_hole_when_asked(request: ModelRequest) -> Any:
    """Bob waits until ann tells him that the task is his."""
    made = any(block.id == "u4" for message in request.messages for block in message.tool_uses)
    yours = any("yours now" in message.text for message in request.messages)
    return call_tool("TaskUpdate", "u4", taskId="2", status="completed") if yours and not made else "I wait"


def script_digging_team() -> Any:
    """Script a lead and two members with a blocked task and one mail message."""
    return script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            call_tool("TaskCreate", "t1", subject="Dig", description="a hole"),
            call_tool("TaskCreate", "t2", subject="Fill", description="the hole"),
            call_tool("TaskUpdate", "u1", taskId="2", addBlockedBy=["1"], owner="bob"),
            spawn_member("bob"),
            spawn_member("ann"),
            "They work.",
        ],
        ann=[
            call_tool("TaskUpdate", "u2", taskId="1", owner="ann", status="in_progress"),
            send_message("bob", "I am digging", "digging"),
            call_tool("TaskUpdate", "u3", taskId="1", status="completed"),
            "dug",
        ],
        bob=[fill_hole_when_asked],
    )


@pytest.mark.spec("USR-18", "TRN-03")
async def test_the_run_view_is_equal_live_from_deltas_and_from_the_journal(tmp_path: Path) -> None:
    clock, live, screen = SystemClock(), RunView(), Screen()
    async with open_session(tmp_path, script_digging_team()) as session:
        run = RunHandle(session=session.id, home=get_home())
        session.subscribe(lambda event: live.apply_event(event, clock.now()))
        async with RunFollower(run, clock) as followed:
            await run_all_turns(session, "Go.")
            async for delta in followed.iter_view_deltas():
                screen.apply_delta(delta)
                if delta.offset >= run.journal_path.stat().st_size:
                    break
        own_run = LocalRunController(session).run
        assert (own_run.session, own_run.journal_path) == (run.session, run.journal_path)
    view = build_run_view(read_journal(run.journal_path))
    assert [(row.id, row.subject, row.status, row.owner) for row in view.tasks.values()] == [
        ("1", "Dig", "completed", "ann"),
        ("2", "Fill", "completed", "bob"),
    ]
    assert [move[1:] for move in view.tasks.get("crew", "1").moves][-2:] == [  # type: ignore[union-attr]
        ("in_progress", "ann"),
        ("completed", "ann"),
    ]
    (letter,) = (
        row for row in view.mail.values() if (row.sender, row.to, row.kind) == ("ann", "bob", "message")
    )
    assert (letter.kind, letter.text, letter.summary) == ("message", "I am digging", "digging")
    assert letter.posted <= letter.taken
    assert {row.name for row in view.iter_agent_rows()} == {"lead", "ann", "bob"}
    shown = screen.rows
    assert {row.name: row.tokens for row in shown["agents"].values()} == {
        row.name: row.tokens for row in view.iter_agent_rows()
    }
    assert sum(row.requests for row in shown["costs"].values()) == view.costs.requests
    assert [row.id for row in live.mail.values()] == [row.id for row in view.mail.values()]
    assert msgspec.json.decode(
        msgspec.json.encode(view.get_delta_since(0)), type=ViewDelta
    ) == view.get_delta_since(0)


@pytest.mark.spec("USR-18")
async def test_view_deltas_since_any_offset_lead_to_the_same_state(tmp_path: Path) -> None:
    async with open_session(tmp_path, script_digging_team()) as session:
        await run_all_turns(session, "Go.")
        run = RunHandle(session=session.id, home=get_home())
    recorded = list(read_journal(run.journal_path))
    whole = Screen()
    whole.apply_delta(build_run_view(recorded).get_delta_since(0))
    for cut in range(1, len(recorded), 7):
        screen, view = Screen(), RunView()
        for each in recorded[:cut]:
            view.apply_record(each)
        screen.apply_delta(view.get_delta_since(0))
        for each in recorded[cut:]:
            view.apply_record(each)
        screen.apply_delta(view.get_delta_since(screen.offset))
        assert screen.rows == whole.rows


@pytest.mark.spec("USR-18")
async def test_a_task_change_by_another_program_is_in_the_run_view(tmp_path: Path) -> None:
    async with open_session(tmp_path, script_digging_team()) as session:
        await run_all_turns(session, "Go.")
        view, changed = RunView(), asyncio.Event()

        def handle_event(event: Any) -> None:
            view.apply_event(event, 1)
            changed.set()

        session.subscribe(handle_event)
        other = TeamStore(get_home(), clock=SystemClock(), ids=IdGenerator(9))
        board = other.open_board("crew")
        made = await board.create(TaskDraft(subject="Plant", description="a tree"))
        await board.update(made.id, TaskUpdate(metadata={RANK_KEY: 0.5}), by=AgentName("team-lead"))
        async with asyncio.timeout(10):
            while (row := view.tasks.get("crew", made.id)) is None or row.rank is None:
                await changed.wait()
                changed.clear()
        assert (row.subject, row.rank) == ("Plant", 0.5)
        await board.delete(made.id)
        async with asyncio.timeout(10):
            while view.tasks.get("crew", made.id).status != "deleted":  # type: ignore[union-attr]
                await changed.wait()
                changed.clear()
        await other.aclose()


@pytest.mark.spec("TSK-07")
async def test_a_task_that_the_user_moved_first_is_claimed_first(tmp_path: Path) -> None:
    record = TeamStore(tmp_path, clock=SystemClock(), ids=IdGenerator(1))
    board = record.open_board("garden")
    for subject in ("dig", "sow", "water"):
        await board.create(TaskDraft(subject=subject, description=""))
    await board.update(TaskId("3"), TaskUpdate(metadata={RANK_KEY: 0.5}), by=AgentName("ann"))
    order = []
    while (claim := await board.claim_next(by=AgentName("ann"))) is not None and claim.task is not None:
        order.append(claim.task.subject)
        await board.update(claim.task.id, TaskUpdate(status="completed"), by=AgentName("ann"))
    assert order == ["water", "dig", "sow"]
    await record.aclose()


@pytest.mark.spec("USR-18")
async def test_an_event_is_in_a_view_delta_within_a_second(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_session(tmp_path, script_team(lead=["Done."])) as session:
        await run_all_turns(session, "Go.")
        async with RunFollower(RunHandle(session=session.id, home=get_home()), clock) as followed:
            deltas = followed.iter_view_deltas()
            first = await anext(deltas)
            session.emit_event(NoteAdded(agent=LEAD_ID, text="Look here."))
            async with asyncio.timeout(10):
                while followed.view.offset == first.offset:
                    await asyncio.sleep(0.01)
            coming = asyncio.ensure_future(anext(deltas))
            await clock.advance(1)
            delta = await asyncio.wait_for(coming, 30)
    assert [note.text for note in delta.notes] == ["Look here."]


@pytest.mark.spec("USR-18", "LIF-02", "LIF-06", "MSG-02")
async def test_an_interrupted_member_stays_alive(tmp_path: Path) -> None:
    model = script_team(
        lead=[call_tool("TeamCreate", team_name="crew"), spawn_member("ann"), "She works."],
        ann=[call_tool("Bash", command="sleep 600"), "Never mind."],
    )
    rested, begun = asyncio.Event(), asyncio.Event()
    async with open_session(tmp_path, model) as session:

        def handle_event(event: Any) -> None:
            if getattr(event, "tool", "") == "Bash":
                begun.set()
            if isinstance(event, MemberWentIdle) and event.reason == "interrupted":
                rested.set()

        session.subscribe(handle_event)
        async for _ in session.run("Go."):
            pass
        async with asyncio.timeout(20):
            await begun.wait()
            run = RunHandle(session=session.id, home=get_home())
            assert await RemoteRunController(run).send_command(
                InterruptTurnControlCommand(task_id="ann")
            ) == {"interrupted": True}
            await rested.wait()
        assert not await interrupt_agent(session, "ann")
        assert [(each.name, each.state) for each in session.teams.list_members()] == [("ann", "idle")]
        (notice,) = [json.loads(each["text"]) for each in read_inbox("crew", "team-lead")]
        assert (notice["type"], notice["from"]) == ("idle_notification", "ann")
        assert notice["idleReason"] == "interrupted"


@pytest.mark.spec("USR-18", "USR-05")
async def test_a_dead_run_shows_no_working_agent_and_continues_in_the_same_run_view(tmp_path: Path) -> None:
    async with open_session(tmp_path, script_digging_team()) as session:
        await run_all_turns(session, "Go.")
        run = RunHandle(session=session.id, home=get_home())
    lines = run.journal_path.read_bytes().splitlines(keepends=True)
    asked = next(i for i, line in enumerate(lines) if b'"agent_started"' in line)
    run.journal_path.write_bytes(b"".join(lines[: asked + 6]))
    clock = SystemClock()
    async with RunFollower(run, clock) as followed:
        assert not followed.is_live
        assert not any(
            row.state == "working" for row in followed.view.iter_agent_rows() if row.name != "lead"
        )
        screen = Screen()
        screen.apply_delta(followed.view.get_delta_since(0))
        async with open_session(tmp_path, script_digging_team(), resume=session.id) as again:
            await run_all_turns(again, "Go on.")
        async with asyncio.timeout(10):
            async for delta in followed.iter_view_deltas(screen.offset):
                screen.apply_delta(delta)
                if followed.view.run.ended:
                    break
    assert screen.rows["agents"][("lead",)].requests == followed.view.find_agent_row("lead").requests  # type: ignore


def test_a_question_of_a_dead_process_is_not_open_in_the_next() -> None:
    """Also if it was answered and the process died before the event was written."""
    asked = PermissionQuestion(id="q-1", agent=LEAD_ID, tool_use_id="u", tool="Bash", input={}, reason="")
    again = SessionStarted(
        agent=LEAD_ID, session=SessionId("s"), cwd="/", model="m", mode="default", tools=()
    )
    view = RunView()
    events = (
        again,
        TurnStarted(agent=LEAD_ID, turn=1, prompt="go"),
        QuestionAsked(agent=LEAD_ID, question=asked),
    )
    for at, event in enumerate(events, 1):
        view.apply_event(event, at)
    lead = view.find_agent_row(LEAD_ID)
    assert lead is not None
    assert (lead.state, lead.question) == ("waiting", "q-1")
    offset = view.offset
    view.apply_event(again, 9)
    assert not view.list_open_questions()
    delta = view.get_delta_since(offset)
    assert [(row.id, row.answered) for row in delta.questions] == [("q-1", 9)]
    assert [(row.state, row.question) for row in delta.agents] == [("idle", "")]
    view.apply_event(QuestionAnswered(agent=LEAD_ID, question="q-1", answer=AllowAnswer()), 10)
    known = view.questions.get("q-1")
    assert known is not None
    assert known.answer == AllowAnswer(), "what became of it is told all the same"


@pytest.mark.parametrize(
    ("timestamp", "posted"),
    [
        ("1970-01-01T00:00:02+00:00", 2_000),
        ("0001-01-01T00:00:00+00:00", 0),
        ("9999-01-01", 5_000),
        ("?", 5_000),
    ],
)
def test_a_mail_row_has_the_time_it_was_posted(timestamp: str, posted: int) -> None:
    view = RunView()
    taken = {"mail": "m", "team": "crew", "sender": "x", "to": "ann", "kind": "message", "preview": ""}
    view.apply_event(
        msgspec.convert({**taken, "agent": LEAD_ID, "summary": "", "posted": timestamp}, MailTaken), 5_000
    )
    assert [row.posted for row in view.mail.values()] == [posted]


def make_mail_posted(mail: str, to: str = "ann", *, team: str = "crew") -> MailPosted:
    return MailPosted(
        agent=LEAD_ID, team=team, mail=mail, sender="x", to=to, kind="message", preview=f"{mail} to {to}"
    )


def make_mail_taken(mail: str, to: str = "ann") -> MailTaken:
    return MailTaken(agent=LEAD_ID, team="crew", mail=mail, sender="x", to=to, kind="message", preview="")


def make_task_changed(task: str, status: str, owner: str, board: str = "crew") -> TaskChanged:
    return TaskChanged(
        agent=LEAD_ID, board=board, task=task, subject=f"do {task}", status=status, owner=owner
    )


def make_member_started(name: str, team: str = "crew") -> AgentStarted:
    return AgentStarted(
        agent=AgentId(f"{name}@{team}"),
        kind="worker",
        name=name,
        description="",
        parent=LEAD_ID,
        call="",
        depth=1,
        model="m",
        mode="default",
        background=True,
        cwd="/",
        team=team,
    )


def make_request_settled(name: str, usd: float, team: str = "crew") -> ModelRequestSettled:
    return ModelRequestSettled(
        agent=AgentId(f"{name}@{team}"),
        request=RequestId("r"),
        model="m",
        usage=Usage(input_tokens=1),
        cost_usd=usd,
        duration_ms=1,
    )


def build_view(*events: Event) -> RunView:
    view = RunView()
    for at, event in enumerate(events, 1):
        view.apply_event(event, at)
    return view


def test_one_mail_id_in_two_inboxes_is_two_mail_rows() -> None:
    """Mail without ids gets ids derived from its content."""
    view = build_view(
        make_mail_posted("m-1", "ann"), make_mail_posted("m-1", "bob"), make_mail_taken("m-1", "bob")
    )
    rows = [(row.to, row.text, bool(row.taken)) for row in view.mail.values()]
    assert rows == [("ann", "m-1 to ann", False), ("bob", "m-1 to bob", True)]
    assert [row.to for row in view.get_delta_since(2).letters] == ["bob"]


def test_the_oldest_mail_of_a_long_run_is_dropped_but_still_counted() -> None:
    letters = RunViewMailState(max_rows=3)
    for number in range(6):
        letters.apply_event(make_mail_posted(str(number)), number + 1, number)
        if number != 1:
            letters.apply_event(make_mail_taken(str(number)), number + 1, number)
    assert [row.id for row in letters.values()] == ["1", "4", "5"], "what nobody has taken is held longest"
    assert (letters.total, letters.unread) == (6, 1)
    letters.apply_event(make_mail_taken("0"), 7, 7)
    letters.apply_event(make_mail_taken("1"), 7, 7)
    assert (letters.total, letters.unread, len(letters)) == (6, 0, 3)


def test_untaken_mail_is_dropped_too_and_counted_when_it_is_taken() -> None:
    letters = RunViewMailState(max_rows=2)
    for number in range(4):
        letters.apply_event(make_mail_posted(str(number)), number, number)
    assert ([row.id for row in letters.values()], letters.total, letters.unread) == (["2", "3"], 4, 4)
    for _ in range(2):
        letters.apply_event(make_mail_taken("0"), 9, 9)
    assert (letters.total, letters.unread) == (4, 3)


def test_the_run_view_retains_the_latest_and_all_open_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pictures, "MAX_QUESTIONS", 2)
    events: list[Event] = []
    for number in range(5):
        asked = PermissionQuestion(
            id=f"q-{number}", agent=LEAD_ID, tool_use_id="u", tool="Bash", input={}, reason=""
        )
        events.append(QuestionAsked(agent=LEAD_ID, question=asked))
        if number:
            events.append(QuestionAnswered(agent=LEAD_ID, question=asked.id, answer=AllowAnswer()))
    view = build_view(*events)
    assert [row.id for row in view.questions.values()] == ["q-0", "q-4"]
    assert [row.id for row in view.list_open_questions()] == ["q-0"]
    assert view.get_delta_since(0).questions_in_all == 5


def test_costs_of_tasks_with_equal_ids_on_two_boards_are_separate() -> None:
    view = build_view(
        make_member_started("ann", "north"),
        make_member_started("ann", "south"),
        make_task_changed("1", "in_progress", "ann", "north"),
        make_task_changed("1", "in_progress", "ann", "south"),
        make_request_settled("ann", 1.0, "north"),
        make_request_settled("ann", 2.0, "south"),
    )
    rows = [(row.agent, row.board, row.task, row.usd) for row in view.costs.rows.values()]
    assert rows == [("ann@north", "north", "1", 1.0), ("ann@south", "south", "1", 2.0)]
    assert [(row.board, row.usd) for row in view.tasks.values()] == [("north", 1.0), ("south", 2.0)]


def test_the_lead_s_costs_of_two_boards_are_two_rows() -> None:
    def lead(usd: float) -> ModelRequestSettled:
        return msgspec.structs.replace(make_request_settled("x", usd), agent=LEAD_ID)

    view = build_view(
        make_task_changed("1", "in_progress", "team-lead", "north"),
        lead(1.0),
        make_task_changed("1", "completed", "team-lead", "north"),
        make_task_changed("1", "in_progress", "team-lead", "south"),
        lead(2.0),
    )
    assert [(row.board, row.usd) for row in view.costs.rows.values()] == [("north", 1.0), ("south", 2.0)]


def test_a_member_that_completes_a_task_returns_to_the_one_started_before() -> None:
    view = build_view(
        make_member_started("ann"),
        make_task_changed("1", "in_progress", "ann"),
        make_task_changed("2", "in_progress", "ann"),
        make_request_settled("ann", 1.0),
        make_task_changed("2", "completed", "ann"),
        make_request_settled("ann", 2.0),
    )
    ann = view.find_agent_row(AgentId("ann@crew"))
    assert ann is not None
    assert ann.task == "#1 do 1"
    assert [(row.id, row.usd) for row in view.tasks.values()] == [("1", 2.0), ("2", 1.0)]
