"""Runs seen from another process: their facts, their followers and the paths of their transcripts."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent_scripts import ToolGate, call_tool, run_all_turns, script_agents, spawn_agent
from session_helpers import collect_events, open_session
from shoal.app.run_access import run_facts, run_follower
from shoal.app.run_access.conversation_path import find_agent_transcript_path
from shoal.app.run_access.run_facts import JournaledAgentSummary, JournaledRunSummary
from shoal.app.run_access.run_follower import RunFollower
from shoal.app.run_access.run_handle import RunHandle, watch_run_events
from shoal.core.budgets.usage import Usage
from shoal.core.clock import SystemClock
from shoal.core.events import (
    AgentStarted,
    JournaledEvent,
    ModelRequestSettled,
    NoteAdded,
    QuestionAsked,
    SessionEnded,
    SessionStarted,
    TaskChanged,
    TextStreamed,
    TurnStarted,
)
from shoal.core.ids import LEAD_ID, AgentId, SessionId
from shoal.core.permissions.questions import PlanApprovalQuestion
from shoal.runs.control_server import RunControlServer
from shoal.stores.files.locks.pid_locks import SessionLock
from shoal.stores.files.sessions.file_journal import FileJournal, read_journal
from shoal.stores.files.sessions.journal_snapshots import SAVE_AFTER, get_snapshot_path
from team_scripts import get_home

ANN, BOB = AgentId("ann@crew"), AgentId("bob@crew")


def ask_about_plan(agent: AgentId, question: str, plan: str) -> QuestionAsked:
    return QuestionAsked(
        agent=agent,
        question=PlanApprovalQuestion(id=question, agent=agent, plan=plan, path="plan.md", digest=""),
    )


def start_agent(agent: AgentId, team: str) -> AgentStarted:
    return AgentStarted(
        agent=agent,
        kind="general-purpose",
        name=agent.partition("@")[0],
        description="d",
        parent=LEAD_ID,
        call="c",
        depth=1,
        model="m",
        mode="default",
        background=True,
        cwd="/",
        team=team,
    )


def write_journal(path: Path, *events: JournaledEvent) -> FileJournal:
    journal = FileJournal(path, SystemClock())
    for event in events:
        journal.append(event)
    return journal


def test_the_facts_of_a_run_have_its_teams_once_and_the_earlier_plan_of_each_agent(tmp_path: Path) -> None:
    path, facts = tmp_path / "journal.jsonl", JournaledRunSummary()
    journal = write_journal(
        path,
        start_agent(ANN, "crew"),
        start_agent(BOB, "crew"),
        start_agent(AgentId("a1"), ""),
        ask_about_plan(ANN, "q1", "dig"),
        ask_about_plan(BOB, "q2", "fill"),
    )
    facts.read_new_journal_events(path)
    assert facts.teams == ["crew"]
    assert facts.earlier_plans == {}
    journal.append(ask_about_plan(ANN, "q3", "dig deeper"))
    facts.read_new_journal_events(path)
    assert facts.earlier_plans == {"q3": "dig"}
    assert facts.offset == path.stat().st_size


def test_the_facts_of_a_replaced_journal_are_those_of_the_new_one(tmp_path: Path) -> None:
    path, facts = tmp_path / "journal.jsonl", JournaledRunSummary()
    write_journal(path, start_agent(ANN, "crew"), ask_about_plan(ANN, "q1", "dig"))
    facts.read_new_journal_events(path)
    path.unlink()
    facts.read_new_journal_events(path)
    assert facts.teams == ["crew"]
    write_journal(path, start_agent(BOB, "hands"))
    facts.read_new_journal_events(path)
    assert facts.teams == ["hands"]
    assert set(facts.agents) == {LEAD_ID, BOB}


def test_facts_of_a_long_journal_are_saved_and_those_of_a_short_one_are_not(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = write_journal(path, start_agent(ANN, "crew"))
    snapshot = get_snapshot_path(path, JournaledRunSummary.snapshot_name)
    JournaledRunSummary().read_new_journal_events(path)
    assert not snapshot.exists()
    note = NoteAdded(agent=LEAD_ID, text="x" * (SAVE_AFTER // 8))
    for _ in range(9):
        journal.append(note)
    journal.append(start_agent(BOB, "hands"))
    facts = JournaledRunSummary()
    facts.read_new_journal_events(path)
    assert snapshot.exists()
    assert facts.teams == ["crew", "hands"]
    journal.append(start_agent(AgentId("eve@late"), "late"))
    facts.read_new_journal_events(path)
    assert facts.teams == ["crew", "hands", "late"]


def settle(usd: float | None, **tokens: int) -> ModelRequestSettled:
    return ModelRequestSettled(
        agent=ANN, request="r", model="m", usage=Usage(**tokens), cost_usd=usd, duration_ms=1
    )


def change_task(board: str) -> TaskChanged:
    return TaskChanged(agent=LEAD_ID, board=board, task="1", subject="s", status="pending")


def start_run(cwd: str) -> SessionStarted:
    return SessionStarted(agent=LEAD_ID, session=SessionId("s"), cwd=cwd, model="m", mode="default", tools=())


FACTS: list[tuple[tuple[JournaledEvent, ...], dict[str, object]]] = [
    ((settle(0.5, input_tokens=3, output_tokens=4),), {"usd": 0.5, "tokens": 7}),
    ((settle(0.5, input_tokens=3), settle(None, output_tokens=4)), {"usd": 0.5, "tokens": 7}),
    ((settle(0.5), settle(0.25)), {"usd": 0.75}),
    ((change_task("roof"), change_task("wall"), change_task("roof")), {"boards": {"roof", "wall"}}),
    ((start_run("/a"),), {"cwd": "/a", "ended": False}),
    ((start_run("/a"), SessionEnded(agent=LEAD_ID)), {"cwd": "/a", "ended": True}),
    ((SessionEnded(agent=LEAD_ID), start_run("/b")), {"cwd": "/b", "ended": False}),
    (
        (
            TurnStarted(agent=ANN, turn=1, prompt="hers"),
            TurnStarted(agent=LEAD_ID, turn=1, prompt=""),
            TurnStarted(agent=LEAD_ID, turn=2, prompt="first"),
            TurnStarted(agent=LEAD_ID, turn=3, prompt="second"),
        ),
        {"prompt": "first"},
    ),
    (
        (start_agent(ANN, "crew"), replace(start_agent(BOB, ""), name="")),
        {
            "teams": ["crew"],
            "agents": {
                LEAD_ID: JournaledAgentSummary(name="lead"),
                ANN: JournaledAgentSummary(name="ann", team="crew"),
                BOB: JournaledAgentSummary(name="general-purpose"),
            },
        },
    ),
    ((ask_about_plan(ANN, "q1", "dig"), ask_about_plan(ANN, "q2", "fill")), {"earlier_plans": {"q2": "dig"}}),
]


@pytest.mark.parametrize(("events", "expected"), FACTS)
@pytest.mark.parametrize(
    "way", ["at once", "line by line", "in pieces", "by records", "after another journal"]
)
def test_the_facts_of_a_run_are_those_of_its_events(
    tmp_path: Path,
    events: tuple[JournaledEvent, ...],
    expected: dict[str, object],
    way: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, path, facts = tmp_path / "source.jsonl", tmp_path / "journal.jsonl", JournaledRunSummary()
    empty = JournaledRunSummary()
    write_journal(source, *events).close()
    content = source.read_bytes()
    if way == "after another journal":
        every = [event for others, _ in FACTS for event in others]
        write_journal(path, *every, NoteAdded(agent=LEAD_ID, text="long")).close()
        facts.read_new_journal_events(path)
    if way == "in pieces":
        monkeypatch.setattr(run_facts, "_CHUNK", 7)
    if way == "line by line":
        for line in content.splitlines(keepends=True):
            with path.open("ab") as file:
                file.write(line[: len(line) // 2])
            facts.read_new_journal_events(path)
            with path.open("ab") as file:
                file.write(line[len(line) // 2 :])
            facts.read_new_journal_events(path)
    elif way == "by records":
        for record in read_journal(source):
            facts.apply_record(record)
    else:
        path.write_bytes(content + b'{"at":"2')
        facts.read_new_journal_events(path)
    for name in ("cwd", "prompt", "ended", "usd", "tokens", "teams", "boards", "agents", "earlier_plans"):
        assert getattr(facts, name) == expected.get(name, getattr(empty, name)), name
    assert facts.offset == (0 if way == "by records" else len(content))
    assert facts.began == next(read_journal(source)).at


def test_a_line_that_only_looks_like_an_event_is_no_fact(tmp_path: Path) -> None:
    path, facts = tmp_path / "journal.jsonl", JournaledRunSummary()
    write_journal(path, NoteAdded(agent=LEAD_ID, text="note")).close()
    with path.open("ab") as file:
        file.write(b'{"at":"2026-01-01T00:00:00.000Z","type":"session_started","no":1}\n')
        file.write(b'{"at":"2026-01-01T00:00:00.000Z","type":"session_started"\n')
        file.write(b'{"at":"yesterday","type":"session_ended","agent":"lead"}\n')
    facts.read_new_journal_events(path)
    assert (facts.began, facts.cwd, facts.ended) == (0, "", False)


async def test_a_follower_gives_others_their_turn_after_each_slice_of_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_follower, "EVENTS_PER_SLICE", 10)
    run = RunHandle(session=SessionId("s"), home=tmp_path)
    journal = write_journal(run.journal_path, start_run("/"))
    lock = SessionLock(tmp_path, run.session)
    async with asyncio.timeout(30), RunFollower(run, SystemClock()) as followed:
        offsets = [followed.view.offset]
        deltas = followed.iter_view_deltas()
        first = await anext(deltas)
        assert (first.live, first.offset, followed.is_over) == (True, offsets[0], False)
        for number in range(25):
            journal.append(NoteAdded(agent=LEAD_ID, text=str(number)))
            offsets.append(run.journal_path.stat().st_size)
        assert (await anext(deltas)).offset == offsets[10]
        assert (await anext(deltas)).offset == offsets[25]
        following = asyncio.ensure_future(anext(deltas))
        lock.release()
        journal.append(NoteAdded(agent=LEAD_ID, text="by nobody"))
        last = await following
        assert (last.live, followed.is_live, followed.is_over) == (False, False, True)
        # It is resumed, starts an agent and is lost again.
        lock = SessionLock(tmp_path, run.session)
        for event in (start_run("/"), start_agent(ANN, "")):
            journal.append(event)
        while not followed.is_live or ANN not in followed.view.statuses.all:
            await anext(deltas)
        assert not followed.view.statuses.all[ANN].is_gone
        lock.release()
        journal.append(NoteAdded(agent=LEAD_ID, text="by nobody"))
        while followed.is_live:
            await anext(deltas)
        assert followed.view.statuses.all[ANN].is_gone
    journal.close()


async def test_an_event_that_was_journaled_but_not_sent_is_seen_once(tmp_path: Path) -> None:
    """The process of the run dies between the journal and its clients."""
    run = RunHandle(session=SessionId("s"), home=tmp_path)
    journal = write_journal(run.journal_path, start_run("/"))
    lock = SessionLock(tmp_path, run.session)
    seen: list[str] = []

    async def watch() -> None:
        async for event in watch_run_events(run, SystemClock()):
            if isinstance(event.event, NoteAdded | TextStreamed):
                seen.append(event.event.text)  # noqa: PERF401 - it is read while it grows

    async def wait_for(count: int) -> None:
        while len(seen) < count:
            await asyncio.sleep(0.005)

    async with asyncio.timeout(60):
        server = RunControlServer(
            run.directory / "control.sock",
            handle=lambda _: None,  # type: ignore[arg-type,return-value]
            steer=lambda _: None,
            position=lambda: run.journal_path.stat().st_size,
        )
        async with server:
            server.start_serving()
            journal.append(NoteAdded(agent=LEAD_ID, text="past"))
            watching = asyncio.create_task(watch())
            await wait_for(1)
            for text in ("one", "two"):
                note = NoteAdded(agent=LEAD_ID, text=text)
                journal.append(note)
                server.publish_event(note)
            server.publish_event(TextStreamed(agent=LEAD_ID, kind="text", text="live"))
            await wait_for(4)
            journal.append(NoteAdded(agent=LEAD_ID, text="unsent"))
        await wait_for(5)
        journal.append(NoteAdded(agent=LEAD_ID, text="later"))
        await wait_for(6)
        lock.release()
        journal.append(SessionEnded(agent=LEAD_ID))
        await watching
    journal.close()
    assert seen == ["past", "one", "two", "live", "unsent", "later"]


@pytest.mark.spec("USR-18")
async def test_a_followed_run_is_lost_only_when_no_process_works_on_it(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[spawn_agent("child", "c1", run_in_background=True), "out"], child=[call_tool("Gate"), "done"]
    )
    async with open_session(tmp_path, model, tools=[gate.tool]) as session:
        run = RunHandle(session=session.id, home=get_home())
        async with RunFollower(run, SystemClock()) as followed:
            await collect_events(session.run("lead"))
            await gate.wait_until_reached()
            async with asyncio.timeout(30):
                async for _ in followed.iter_view_deltas():
                    if followed.view.offset >= run.journal_path.stat().st_size:
                        break
            assert [each.is_gone for each in followed.view.statuses.iter_agents_except_lead()] == [False]
            assert [each.agent for each in followed.view.statuses.list_working_agents()] != []
            assert not followed.is_over
            tasks = asyncio.all_tasks()
            following = {task for task in tasks if "_follow_journal" in str(task.get_coro())}
            assert following
        assert all(task.done() for task in following)
        gate.is_open.set()
        await run_all_turns(session, None)


@pytest.mark.spec("USR-18")
async def test_the_agents_of_a_run_that_a_dead_process_left_are_gone(tmp_path: Path) -> None:
    run = RunHandle(session="6f1c0f0a-0000-4000-8000-0000000000aa", home=tmp_path)  # type: ignore[arg-type]
    run.directory.mkdir(parents=True)
    write_journal(
        run.journal_path,
        SessionStarted(agent=LEAD_ID, session=run.session, cwd="/", model="m", mode="default", tools=()),
        start_agent(AgentId("a1"), ""),
    )
    async with RunFollower(run, SystemClock()) as followed:
        assert [each.is_gone for each in followed.view.statuses.iter_agents_except_lead()] == [True]
        assert followed.is_over


async def test_the_transcript_of_a_moved_project_is_found(tmp_path: Path) -> None:
    project, moved = tmp_path / "project", tmp_path / "moved"
    project.mkdir()
    model = script_agents(lead=[spawn_agent("child", "c1"), "end"], child=["done"])
    async with open_session(project, model) as session:
        await run_all_turns(session)
        (child,) = (each.agent for each in session.supervisor.list_agents())
    run = RunHandle(session=session.id, home=get_home())
    shutil.move(project, moved)
    for cwd in (project, moved):
        assert "child" in find_agent_transcript_path(run, str(cwd), child).read_text()
        assert "child" in find_agent_transcript_path(run, str(cwd), LEAD_ID).read_text()
    unknown = RunHandle(session="6f1c0f0a-0000-4000-8000-0000000000ab", home=get_home())  # type: ignore[arg-type]
    assert not find_agent_transcript_path(unknown, str(moved), LEAD_ID).exists()
