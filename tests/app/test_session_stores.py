"""Sessions on a store that the program chooses: all state is in it, and sessions resume from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import call_tool, read_events, run_all_turns, script_agents, spawn_agent
from postgres_server import get_clean_database
from session_helpers import open_session
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import SessionNotFound, SettingsError, StateFileError
from shoal.core.events import QuestionAnswered, ScheduleCreated
from shoal.core.ids import LEAD_ID
from shoal.core.permissions.questions import DenyAnswer, PermissionQuestion
from shoal.core.store import Store
from shoal.models.scripted_model import ScriptedModel
from team_scripts import get_home

PLACES = ["memory", "files", pytest.param("postgres", marks=pytest.mark.needs("postgres", "asyncpg"))]


@pytest.fixture(params=PLACES)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    if request.param == "memory":
        yield shoal.MemoryStore()
    elif request.param == "files":
        yield shoal.FileStore(tmp_path_factory.mktemp("elsewhere"))
    else:
        from shoal.stores.postgres.database_client import DatabaseClient
        from shoal.stores.postgres.postgres_store import PostgresStore

        client = DatabaseClient(get_clean_database())
        yield PostgresStore(client, tmp_path_factory.mktemp("elsewhere"))
        client.close()


async def test_an_agent_and_its_report_survive_a_resume_from_the_same_store(
    tmp_path: Path, store: Store
) -> None:
    texts: list[str] = []

    def answer_again(request: ModelRequest) -> str:
        texts.extend(message.text for message in request.messages)
        return "it was blue"

    first = [
        spawn_agent("child look at the sky", "c1", name="lookout", run_in_background=True),
        "wait",
        "noted",
    ]
    report = "blue " * 20_000
    async with open_session(tmp_path, script_agents(lead=first, child=[report]), store=store) as session:
        await run_all_turns(session)
    again = call_tool("SendMessage", "m1", to="lookout", message="which colour?", summary="colour")
    model = script_agents(lead=[*first, again, "wait", "heard"], child=[report, answer_again])
    async with open_session(tmp_path, model, store=store, resume=session.id) as resumed:
        await run_all_turns(resumed, "ask it again")
        assert "it was blue" in "\n".join(m.text for m in resumed.agent.conversation.messages)
        assert any((resumed.runtime.store.directory / "results").iterdir())
    assert report.strip() in [text.strip() for text in texts]
    assert not any((get_home() / place).exists() for place in ("projects", "shoal", "tasks", "teams"))


async def test_questions_schedules_and_spending_come_back_from_the_same_store(
    tmp_path: Path, store: Store
) -> None:
    schedule = call_tool("CronCreate", "s1", cron="0 9 * * *", prompt="look again", recurring=True)
    async with open_session(tmp_path, ScriptedModel([schedule, "set"]), store=store) as session:
        await run_all_turns(session)
        spent = session.runtime.budget.usage
        created = [event for event in read_events(session) if isinstance(event, ScheduleCreated)]
    assert len(created) == 1
    question = PermissionQuestion(
        id="q1", agent=LEAD_ID, tool_use_id="c1", tool="Bash", input={"command": "make"}, reason="r"
    )
    store.find_session(session.id).open_questions().store_question(question)
    async with open_session(tmp_path, ScriptedModel(["on"]), store=store, continue_last=True) as resumed:
        assert resumed.id == session.id
        assert [each.schedule.id for each in resumed.runtime.inbox.scheduler.list_schedules()] == [
            created[0].schedule.id
        ]
        (answered,) = [event for event in read_events(resumed) if isinstance(event, QuestionAnswered)]
        assert resumed.runtime.budget.usage == spent
    assert isinstance(answered.answer, DenyAnswer)


async def test_a_session_is_open_once_and_is_forked_within_its_store(tmp_path: Path, store: Store) -> None:
    async with open_session(tmp_path, ScriptedModel(["one"]), store=store) as session:
        await run_all_turns(session, "first")
        with pytest.raises(StateFileError, match="in use"):
            await open_session(tmp_path, ScriptedModel(["x"]), store=store, resume=session.id).__aenter__()
    async with open_session(
        tmp_path, ScriptedModel(["two"]), store=store, resume=session.id, fork=True
    ) as fork:
        await run_all_turns(fork, "second")
        assert [m.text for m in fork.agent.conversation.messages] == ["first", "one", "second", "two"]
    async with open_session(tmp_path, ScriptedModel(["three"]), store=store, resume=session.id) as resumed:
        assert [m.text for m in resumed.agent.conversation.messages] == ["first", "one"]
    with pytest.raises(SessionNotFound):
        await open_session(tmp_path, ScriptedModel(["x"]), resume=session.id).__aenter__()


async def test_a_turn_is_undone_with_its_conversation_in_any_store(tmp_path: Path, store: Store) -> None:
    write = call_tool("Write", "w1", file_path=str(tmp_path / "new.txt"), content="new")
    async with open_session(tmp_path, ScriptedModel([write, "done"]), store=store) as session:
        await run_all_turns(session, "write it")
        assert (tmp_path / "new.txt").exists()
        await session.undo(conversation=True)
        assert not (tmp_path / "new.txt").exists()
        assert session.agent.conversation.messages == []
    async with open_session(tmp_path, ScriptedModel(["x"]), store=store, resume=session.id) as resumed:
        assert resumed.agent.conversation.messages == []


async def test_a_session_that_keeps_nothing_resumes_a_copy(tmp_path: Path) -> None:
    async with open_session(tmp_path, ScriptedModel(["one"])) as session:
        await run_all_turns(session, "first")
    (transcript,) = get_home().glob("projects/*/*.jsonl")
    before = transcript.read_bytes()
    async with open_session(tmp_path, ScriptedModel(["two"]), resume=session.id, persist=False) as copy:
        await run_all_turns(copy, "second")
        assert [m.text for m in copy.agent.conversation.messages] == ["first", "one", "second", "two"]
        directory = copy.runtime.store.directory
    assert transcript.read_bytes() == before
    assert not directory.exists()


async def test_a_teammate_of_a_session_in_memory_cannot_have_a_process_of_its_own(tmp_path: Path) -> None:
    given = json.dumps({"shoal": {"teammate_mode": "process"}})
    spawn = call_tool("Agent", "a1", description="ann works", prompt="Begin.", name="ann")
    model = script_agents(lead=[call_tool("TeamCreate", team_name="crew"), spawn, "told"])
    async with open_session(tmp_path, model, store="memory:", settings=given) as session:
        await run_all_turns(session)
        texts = json.dumps([repr(message) for message in session.agent.conversation.messages])
    assert "in its own process" in texts


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"store": 5}, "store: expected a store or its address, got 5"),
        ({"store": "mysql://db/shoal"}, "There is no store 'mysql://db/shoal'"),
        ({"store": "memory:", "persist": False}, "store: persist=False stores nothing"),
    ],
)
async def test_a_store_that_cannot_be_used_is_refused(
    tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(SettingsError, match=problem.replace("(", r"\(")):
        await open_session(tmp_path, ScriptedModel(["x"]), **options).__aenter__()
