"""The home of an earlier commit can be opened, resumed and shown: formats outlive class names."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import run_all_turns, script_agents
from old_home import AGENTS, CUT_OFF, EVERYTHING, SESSIONS, TEAM, WORK, OldHome
from shoal.app.isolation.repository_worktrees import open_worktrees
from shoal.app.run_access.pending_questions import (
    find_interrupted_question,
    list_pending_questions,
    submit_late_answer,
)
from shoal.app.run_view.run_view import RunView, build_run_view
from shoal.app.settings.configured_store import open_home_store
from shoal.app.teams.team_store import TeamStore
from shoal.core.clock import SystemClock
from shoal.core.events import JournaledEvent
from shoal.core.ids import AgentId, IdGenerator, SessionId
from shoal.core.names import AgentName
from shoal.core.permissions.questions import AllowAnswer, ChoiceAnswer
from shoal.models.scripted_model import ScriptedModel
from shoal.stores.files.home.home_paths import get_journal_path
from shoal.stores.files.sessions.file_journal import read_journal
from shoal.stores.files.sessions.question_files import QuestionFiles
from shoal.stores.files.sessions.session_files import list_sessions
from shoal.testing import FakeClock
from shoal.wire.journal_codec import encode_journal_line

FORMATS = Path(__file__).parents[1] / "wire" / "pinned_formats.json"


def get_journal(old_home: OldHome, session: str) -> Path:
    return get_journal_path(old_home.home, SessionId(session))


def build_old_view(old_home: OldHome, session: str) -> RunView:
    return build_run_view(read_journal(get_journal(old_home, session)))


def open_questions(old_home: OldHome, session: str) -> QuestionFiles:
    return QuestionFiles(get_journal(old_home, session).parent / "questions")


def list_texts(session: shoal.Session) -> list[str]:
    return [message.text for message in session.agent.conversation.messages]


def open_old_session(old_home: OldHome, model: Any, session: str, **options: Any) -> shoal.Session:
    return shoal.open(cwd=old_home.project, model=model, resume=session, skip_permissions=True, **options)


def create_clock_after(old_home: OldHome, session: str) -> FakeClock:
    """Create a clock just after the session's end; later its schedules would have expired."""
    return FakeClock(start=build_old_view(old_home, session).run.last + 1_000)


def contains(new: Any, before: Any) -> bool:
    """Return True if `new` has everything in `before`; it may have more fields."""
    if isinstance(before, dict):
        return isinstance(new, dict) and all(key in new and contains(new[key], before[key]) for key in before)
    if isinstance(before, list):
        return isinstance(new, list) and len(new) == len(before) and all(map(contains, new, before))
    return bool(new == before)


@pytest.mark.parametrize("session", SESSIONS)
def test_every_event_of_an_old_journal_is_decoded_and_encoded_unchanged(
    old_home: OldHome, session: str
) -> None:
    reports: list[str] = []
    recorded = list(read_journal(get_journal(old_home, session), report_problem=reports.append))
    lines = get_journal(old_home, session).read_bytes().splitlines()
    assert not reports
    assert len(recorded) == len(lines)
    for each, line in zip(recorded, lines, strict=True):
        assert isinstance(each.event, JournaledEvent), line
        assert contains(json.loads(encode_journal_line(each.event, each.at)), json.loads(line))


def test_the_old_journals_contain_an_event_of_every_old_type(old_home: OldHome) -> None:
    lines = get_journal(old_home, EVERYTHING).read_text().splitlines()
    assert {json.loads(line)["type"] for line in lines} <= set(json.loads(FORMATS.read_text())["journal"])
    assert len(lines) == 36


def test_old_sessions_are_listed_the_newest_first(old_home: OldHome) -> None:
    found = list_sessions(old_home.home, str(old_home.project), limit=10)
    assert [(each.session, each.prompt) for each in found] == [
        (CUT_OFF, "Make a file"),
        (TEAM, "Dig and fill"),
        (AGENTS, "lead: give the work out"),
        (WORK, "Write the report"),
    ]


async def test_an_old_session_is_resumed_with_its_state(old_home: OldHome) -> None:
    async with open_old_session(
        old_home, ScriptedModel(["I am back."]), WORK, clock=create_clock_after(old_home, WORK)
    ) as session:
        texts = list_texts(session)
        assert "Summary: a report was written and corrected." in texts[0]
        assert texts[-2:] == ["Say good bye\nOne more thing", "Good bye."]
        assert await run_all_turns(session, "Go on") == "I am back."
        (due,) = session.runtime.inbox.scheduler.list_schedules()
        assert due.schedule.prompt == "look at the build"
    run = build_old_view(old_home, WORK).run
    assert (run.turns, run.ended) == (6, True)


async def test_undo_restores_files_of_an_old_session(old_home: OldHome) -> None:
    report = old_home.project / "report.txt"
    assert report.read_text() == "second\n"
    async with open_old_session(
        old_home, ScriptedModel([]), WORK, clock=create_clock_after(old_home, WORK)
    ) as session:
        assert [len(turn.files) for turn in session.list_undoable_turns()] == [1, 1, 0, 0, 0]
        undone = await session.undo(2)
        assert undone.restored == (report,)
        assert report.read_text() == "first\n"
        await session.undo(1)
        assert not report.exists()


async def test_an_old_agent_is_resumed_with_its_conversation(old_home: OldHome) -> None:
    (slow,) = [row for row in build_old_view(old_home, AGENTS).iter_agent_rows() if row.background]
    model = script_agents(lead=["It was resumed."], Slow=["Slow but done.", "?", "And this too."])
    async with open_old_session(old_home, model, AGENTS) as session:
        reached = await session.send(slow.id, "One thing more")
        assert reached.how == "resumed"
        await run_all_turns(session, None)
        (completion,) = [
            each.completion for each in session.supervisor.list_agents() if each.agent == AgentId(slow.id)
        ]
        assert completion is not None
        assert completion.text == "And this too."


async def test_an_old_team_is_resumed(old_home: OldHome) -> None:
    async with open_old_session(old_home, ScriptedModel(lambda _: "I read it."), TEAM) as session:
        await run_all_turns(session, "Go on")
        assert {each.name for each in session.teams.list_members()} == {"ann", "bob"}
    record = TeamStore(old_home.home, clock=SystemClock(), ids=IdGenerator(1))
    mail = await record.open_mailboxes("crew").read_history(AgentName("bob"))
    await record.aclose()
    assert [each.text for each in mail][:4] == ["Begin.", "I am digging", "Go on.", "Are you there?"]


async def test_an_old_task_board_keeps_its_tasks_and_releases_those_of_dead_members(
    old_home: OldHome,
) -> None:
    stored = [
        json.loads(path.read_text()) for path in sorted((old_home.home / "tasks" / "crew").glob("*.json"))
    ]
    assert [task["status"] for task in stored] == ["completed", "pending", "in_progress", "in_progress"]
    record = TeamStore(old_home.home, clock=SystemClock(), ids=IdGenerator(1))
    tasks = await record.open_board("crew").list_tasks()
    team = await record.rosters.read_team_roster("crew")
    await record.aclose()
    assert [(task.subject, task.status, task.owner) for task in tasks] == [
        ("Dig", "completed", "ann"),
        ("Fill", "pending", "bob"),
        ("Paint", "pending", None),
        ("Sweep", "pending", None),
    ]
    assert [member.name for member in team.members] == ["team-lead", "bob", "ann"]


def test_old_questions_keep_their_answered_or_open_state(old_home: OldHome) -> None:
    asked = open_questions(old_home, WORK)
    chosen = asked.get("q1")
    assert chosen is not None
    assert asked.read_answer(chosen) == ChoiceAnswer(answers={"Which colour?": "Red"})
    assert asked.list_open_questions() == ()
    (waiting,) = open_questions(old_home, CUT_OFF).list_open_questions()
    (row,) = list_pending_questions(open_home_store(old_home.home), SystemClock())
    assert (row.session, row.question, row.live) == (CUT_OFF, waiting, False)


async def test_an_old_question_can_be_answered_after_a_resume(old_home: OldHome) -> None:
    (waiting,) = open_questions(old_home, CUT_OFF).list_open_questions()
    async with open_old_session(old_home, ScriptedModel(["I go on.", "I heard it."]), CUT_OFF) as session:
        assert await run_all_turns(session, "Go on") == "I go on."
        row = find_interrupted_question(open_home_store(old_home.home), waiting.id, SystemClock())
        assert row is not None
        submit_late_answer(row, AllowAnswer())
        turn = await session.next_turn()
        assert turn is not None
        async for _ in turn:
            pass
        assert '<permission-granted tool="Bash" tool-use-id="b1">' in list_texts(session)[-2]


@pytest.mark.needs("git")
async def test_retained_work_of_an_old_agent_is_found(old_home: OldHome) -> None:
    worktrees = open_worktrees(old_home.project, home=old_home.home, environ=os.environ, clock=SystemClock())
    (standing,) = await worktrees.list_worktrees()
    assert standing.work is not None
    assert standing.work.uncommitted == ("new.txt",)


def test_the_run_view_of_an_old_session_has_its_questions_and_costs(old_home: OldHome) -> None:
    view = build_old_view(old_home, WORK)
    (lead,) = view.iter_agent_rows()
    assert (lead.requests, lead.tool_calls, round(lead.usd, 4)) == (17, 11, 0.316)
    delta = view.get_delta_since(0)
    assert [row.answer is not None for row in delta.questions] == [True, True, True]
    assert [(row.model, row.requests, round(row.usd, 4)) for row in delta.costs] == [("scripted", 17, 0.316)]
    assert [row.kind for row in delta.notes] == ["unsettled", "warning"]
    assert view.run.prompt == "Write the report"


def test_the_run_view_of_an_old_session_has_its_agent_tree(old_home: OldHome) -> None:
    rows = list(build_old_view(old_home, AGENTS).iter_agent_rows())
    assert [(row.depth, row.state, row.background) for row in rows] == [
        (0, "idle", False),
        (1, "completed", False),
        (1, "completed", False),
        (2, "completed", False),
        (1, "completed", True),
    ]


def test_the_run_view_of_an_old_team_has_members_tasks_and_mail(old_home: OldHome) -> None:
    view = build_old_view(old_home, TEAM)
    assert [(row.name, row.team) for row in view.iter_agent_rows()] == [
        ("lead", ""),
        ("bob", "crew"),
        ("ann", "crew"),
    ]
    delta = view.get_delta_since(0)
    assert {row.subject: (row.status, row.owner) for row in delta.tasks} == {
        "Dig": ("completed", "ann"),
        "Fill": ("pending", "bob"),
        "Paint": ("in_progress", "bob"),
        "Rest": ("deleted", ""),
        "Sweep": ("in_progress", "ann"),
    }
    assert (delta.letters_in_all, delta.letters_unread) == (10, 0)
    assert ("ann", "bob", "I am digging") in [(row.sender, row.to, row.text) for row in delta.letters]
    assert view.run.teams == ("crew",)


def test_the_run_view_of_an_old_interrupted_run_shows_its_question(old_home: OldHome) -> None:
    view = build_old_view(old_home, CUT_OFF)
    (row,) = view.list_open_questions()
    assert (row.name, row.answered) == ("lead", 0)
    assert not view.run.ended
