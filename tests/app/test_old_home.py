"""The home of an earlier commit is opened, resumed and shown: formats outlive the names of classes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import all_turns, cast
from old_home import AGENTS, CUT_OFF, EVERYTHING, SESSIONS, TEAM, WORK, OldHome, unpack_home
from shoal.app.outside.questions import find_cut_off, give_late, open_rows
from shoal.app.picture.picture import Picture, drawn
from shoal.app.quarters.worktrees import worktrees_of
from shoal.app.teams.record import AgentsRecord
from shoal.core.clock import SystemClock
from shoal.core.events import Journaled
from shoal.core.ids import AgentId, Ids, SessionId
from shoal.core.names import AgentName
from shoal.core.questions import Allowed, Chosen
from shoal.models.scripted import ScriptedModel
from shoal.stores.files.journal import read_journal
from shoal.stores.files.places import journal_path
from shoal.stores.files.questions import Questions
from shoal.stores.files.sessions import list_sessions
from shoal.testing import FakeClock
from shoal.wire.journal import journal_line

FORMATS = Path(__file__).parents[1] / "wire" / "pinned_formats.json"


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OldHome:
    found = unpack_home(tmp_path)
    monkeypatch.setenv("SHOAL_HOME", str(found.home))
    return found


def journal(old: OldHome, session: str) -> Path:
    return journal_path(old.home, SessionId(session))


def draw(old: OldHome, session: str) -> Picture:
    return drawn(read_journal(journal(old, session)))


def questions(old: OldHome, session: str) -> Questions:
    return Questions(journal(old, session).parent / "questions")


def texts(session: shoal.Session) -> list[str]:
    return [message.text for message in session.agent.conversation.messages]


def opened(old: OldHome, model: Any, session: str, **options: Any) -> shoal.Session:
    return shoal.open(cwd=old.project, model=model, resume=session, skip_permissions=True, **options)


def clock_after(old: OldHome, session: str) -> FakeClock:
    """Return a clock that stands just behind the session's end: later, its schedules would have expired."""
    return FakeClock(start=draw(old, session).run.last + 1_000)


def holds(new: Any, before: Any) -> bool:
    """Return whether all of `before` is in `new`, which may have more fields."""
    if isinstance(before, dict):
        return isinstance(new, dict) and all(key in new and holds(new[key], before[key]) for key in before)
    if isinstance(before, list):
        return isinstance(new, list) and len(new) == len(before) and all(map(holds, new, before))
    return bool(new == before)


@pytest.mark.parametrize("session", SESSIONS)
def test_every_event_of_an_old_journal_is_known_and_written_as_it_was(old: OldHome, session: str) -> None:
    reports: list[str] = []
    recorded = list(read_journal(journal(old, session), report=reports.append))
    lines = journal(old, session).read_bytes().splitlines()
    assert not reports
    assert len(recorded) == len(lines)
    for each, line in zip(recorded, lines, strict=True):
        assert isinstance(each.event, Journaled), line
        assert holds(json.loads(journal_line(each.event, each.at)), json.loads(line))


def test_the_old_journals_have_an_event_of_every_type_there_was(old: OldHome) -> None:
    lines = journal(old, EVERYTHING).read_text().splitlines()
    assert {json.loads(line)["type"] for line in lines} <= set(json.loads(FORMATS.read_text())["journal"])
    assert len(lines) == 36


def test_old_sessions_are_listed_the_newest_first(old: OldHome) -> None:
    found = list_sessions(old.home, str(old.project), limit=10)
    assert [(each.session, each.prompt) for each in found] == [
        (CUT_OFF, "Make a file"),
        (TEAM, "Dig and fill"),
        (AGENTS, "lead: give the work out"),
        (WORK, "Write the report"),
    ]


async def test_an_old_session_is_resumed_where_it_stood(old: OldHome) -> None:
    async with opened(old, ScriptedModel(["I am back."]), WORK, clock=clock_after(old, WORK)) as session:
        said = texts(session)
        assert "Summary: a report was written and corrected." in said[0]
        assert said[-2:] == ["Say good bye\nOne more thing", "Good bye."]
        assert await all_turns(session, "Go on") == "I am back."
        (due,) = session.parts.timetable.all()
        assert due.schedule.prompt == "look at the build"
    run = draw(old, WORK).run
    assert (run.turns, run.ended) == (6, True)


async def test_files_of_an_old_session_are_brought_back(old: OldHome) -> None:
    report = old.project / "report.txt"
    assert report.read_text() == "second\n"
    async with opened(old, ScriptedModel([]), WORK, clock=clock_after(old, WORK)) as session:
        assert [len(turn.files) for turn in session.turns()] == [1, 1, 0, 0, 0]
        undone = await session.undo(2)
        assert undone.restored == (report,)
        assert report.read_text() == "first\n"
        await session.undo(1)
        assert not report.exists()


async def test_an_old_agent_goes_on_with_its_conversation(old: OldHome) -> None:
    (slow,) = [row for row in draw(old, AGENTS).agents() if row.background]
    model = cast(lead=["It was resumed."], Slow=["Slow but done.", "?", "And this too."])
    async with opened(old, model, AGENTS) as session:
        reached = await session.send(slow.id, "One thing more")
        assert reached.how == "resumed"
        await all_turns(session, None)
        (completion,) = [
            each.completion for each in session.parts.crew.agents() if each.agent == AgentId(slow.id)
        ]
        assert completion is not None
        assert completion.text == "And this too."


async def test_an_old_team_is_taken_up_again(old: OldHome) -> None:
    async with opened(old, ScriptedModel(lambda _: "I read it."), TEAM) as session:
        await all_turns(session, "Go on")
        assert {each.name for each in session.parts.teams.members()} == {"ann", "bob"}
    record = AgentsRecord(old.home, clock=SystemClock(), ids=Ids(1))
    mail = await record.mailboxes("crew").history(AgentName("bob"))
    await record.aclose()
    assert [each.text for each in mail][:4] == ["Begin.", "I am digging", "Go on.", "Are you there?"]


async def test_an_old_board_has_its_tasks_and_frees_those_of_dead_members(old: OldHome) -> None:
    stored = [json.loads(path.read_text()) for path in sorted((old.home / "tasks" / "crew").glob("*.json"))]
    assert [task["status"] for task in stored] == ["completed", "pending", "in_progress", "in_progress"]
    record = AgentsRecord(old.home, clock=SystemClock(), ids=Ids(1))
    tasks = await record.board("crew").list()
    team = await record.rosters.read("crew")
    await record.aclose()
    assert [(task.subject, task.status, task.owner) for task in tasks] == [
        ("Dig", "completed", "ann"),
        ("Fill", "pending", "bob"),
        ("Paint", "pending", None),
        ("Sweep", "pending", None),
    ]
    assert [member.name for member in team.members] == ["team-lead", "bob", "ann"]


def test_old_questions_are_answered_or_open_as_they_were(old: OldHome) -> None:
    asked = questions(old, WORK)
    chosen = asked.get("q1")
    assert chosen is not None
    assert asked.answer_to(chosen) == Chosen(answers={"Which colour?": "Red"})
    assert asked.open() == ()
    (waiting,) = questions(old, CUT_OFF).open()
    (row,) = open_rows(old.home, SystemClock())
    assert (row.session, row.question, row.live) == (CUT_OFF, waiting, False)


async def test_an_old_question_gets_its_answer_after_a_resume(old: OldHome) -> None:
    (waiting,) = questions(old, CUT_OFF).open()
    async with opened(old, ScriptedModel(["I go on.", "I heard it."]), CUT_OFF) as session:
        assert await all_turns(session, "Go on") == "I go on."
        row = find_cut_off(old.home, waiting.id, SystemClock())
        assert row is not None
        give_late(row, Allowed())
        turn = await session.next_turn()
        assert turn is not None
        async for _ in turn:
            pass
        assert '<permission-granted tool="Bash" tool-use-id="b1">' in texts(session)[-2]


@pytest.mark.needs("git")
async def test_work_that_an_old_agent_left_in_a_worktree_is_found(old: OldHome) -> None:
    worktrees = worktrees_of(old.project, home=old.home, environ=os.environ, clock=SystemClock())
    (standing,) = await worktrees.list()
    assert standing.work is not None
    assert standing.work.uncommitted == ("new.txt",)


def test_the_picture_of_an_old_session_has_its_questions_and_costs(old: OldHome) -> None:
    picture = draw(old, WORK)
    (lead,) = picture.agents()
    assert (lead.requests, lead.tool_calls, round(lead.usd, 4)) == (17, 11, 0.316)
    frame = picture.since(0)
    assert [row.answer is not None for row in frame.questions] == [True, True, True]
    assert [(row.model, row.requests, round(row.usd, 4)) for row in frame.costs] == [("scripted", 17, 0.316)]
    assert [row.kind for row in frame.notes] == ["unsettled", "warning"]
    assert picture.run.prompt == "Write the report"


def test_the_picture_of_old_agents_is_their_tree(old: OldHome) -> None:
    rows = list(draw(old, AGENTS).agents())
    assert [(row.depth, row.state, row.background) for row in rows] == [
        (0, "idle", False),
        (1, "completed", False),
        (1, "completed", False),
        (2, "completed", False),
        (1, "completed", True),
    ]


def test_the_picture_of_an_old_team_has_members_tasks_and_mail(old: OldHome) -> None:
    picture = draw(old, TEAM)
    assert [(row.name, row.team) for row in picture.agents()] == [
        ("lead", ""),
        ("bob", "crew"),
        ("ann", "crew"),
    ]
    frame = picture.since(0)
    assert {row.subject: (row.status, row.owner) for row in frame.tasks} == {
        "Dig": ("completed", "ann"),
        "Fill": ("pending", "bob"),
        "Paint": ("in_progress", "bob"),
        "Rest": ("deleted", ""),
        "Sweep": ("in_progress", "ann"),
    }
    assert (frame.letters_in_all, frame.letters_unread) == (10, 0)
    assert ("ann", "bob", "I am digging") in [(row.sender, row.to, row.text) for row in frame.letters]
    assert picture.run.teams == ("crew",)


def test_the_picture_of_an_old_run_that_died_shows_what_it_asked(old: OldHome) -> None:
    picture = draw(old, CUT_OFF)
    (row,) = picture.open_questions()
    assert (row.name, row.answered) == ("lead", 0)
    assert not picture.run.ended
