"""Runs seen from another process: their facts, their followers and the paths of their transcripts."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from agent_scripts import ToolGate, call_tool, run_all_turns, script_agents, spawn_agent
from session_helpers import collect_events, open_session
from shoal.app.run_access.conversation_path import find_agent_transcript_path
from shoal.app.run_access.run_facts import JournaledRunSummary
from shoal.app.run_access.run_follower import RunFollower
from shoal.app.run_access.run_handle import RunHandle
from shoal.core.clock import SystemClock
from shoal.core.events import AgentStarted, JournaledEvent, NoteAdded, QuestionAsked, SessionStarted
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.permissions.questions import PlanApprovalQuestion
from shoal.stores.files.sessions.file_journal import FileJournal
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
