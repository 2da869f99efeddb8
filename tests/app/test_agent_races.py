"""Ends, messages and names of agents at the moments between two steps."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from app_session_helpers import (
    get_started_agent_id,
    list_result_texts,
    list_started_agent_ids,
)

import shoal
from agent_scripts import ToolGate, call_tool, read_events, run_all_turns, script_agents, spawn_agent
from foreign_mail import join_notes
from session_helpers import (
    collect_events,
    get_last_result,
    list_lead_results,
    map_agent_results,
    open_session,
)
from shoal.core.conversation.messages import Message, ToolResultBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import StateFileError
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    Event,
    JournaledEvent,
    QuestionAsked,
    QueueItemAdded,
    RunFinished,
    ToolOutputReturned,
    ToolStarted,
    WorktreeWorkRetained,
)
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.permissions.questions import AllowAnswer, DenyAnswer
from shoal.core.ports import Journal
from team_scripts import get_home


@pytest.mark.spec("USR-01")
async def test_spawning_many_agents_in_batches_asks_once(
    tmp_path: Path,
) -> None:
    calls = [spawn_agent(f"child {n}", f"c{n}") for n in range(4)]
    model = script_agents(
        lead=[[*calls[:2], call_tool("Write", "w", file_path="a.txt", content=""), *calls[2:]], "end"],
        child=["ok"],
    )
    settings = json.dumps({"shoal": {"fan_out_preview": 3}})
    async with open_session(tmp_path, model, attended=True, settings=settings) as session:

        async def say_yes() -> None:
            async for question in session.runtime.question_broker.watch_questions():
                session.runtime.question_broker.submit_answer(question.id, AllowAnswer())

        async with asyncio.TaskGroup() as aside:
            answering = aside.create_task(say_yes())
            await run_all_turns(session)
            answering.cancel()
    assert len([event for event in read_events(session) if isinstance(event, QuestionAsked)]) == 1
    assert len(map_agent_results(session)) == 4


@pytest.mark.spec("USR-01")
async def test_denying_many_agents_with_stop_ends_the_turn(tmp_path: Path) -> None:
    model = script_agents(
        lead=[[spawn_agent(f"child {n}", f"c{n}") for n in range(4)], "I go on."], child=["ok"]
    )
    settings = json.dumps({"shoal": {"fan_out_preview": 3}})
    async with open_session(tmp_path, model, attended=True, settings=settings) as session:

        async def say_no() -> None:
            question = await anext(session.runtime.question_broker.watch_questions())
            session.runtime.question_broker.submit_answer(
                question.id, DenyAnswer(reason="too many", ends_turn=True)
            )

        async with asyncio.TaskGroup() as aside:
            aside.create_task(say_no())
            finished = (await collect_events(session.run("lead")))[-1]
    assert isinstance(finished, RunFinished)
    assert (finished.reason, finished.detail) == ("blocked", "it was told to stop: too many")
    assert not map_agent_results(session)


@pytest.mark.spec("USR-01")
async def test_an_unrecordable_question_about_many_agents_ends_the_turn_with_an_error(
    tmp_path: Path,
) -> None:
    model = script_agents(lead=[[spawn_agent(f"child {n}", f"c{n}") for n in range(4)], "end"], child=["ok"])
    settings = json.dumps({"shoal": {"fan_out_preview": 3}})
    async with open_session(tmp_path, model, attended=True, settings=settings) as session:
        session.runtime.events._journal = FullJournal(session.runtime.store.journal, QuestionAsked)
        finished = (await collect_events(session.run("lead")))[-1]
    assert (finished.reason, finished.detail) == ("store_error", "The disk is full.")  # type: ignore[attr-defined]


class FullJournal:
    """Journal on a disk that is full for one type of event."""

    def __init__(self, journal: Journal, kind: type[JournaledEvent]) -> None:
        self._journal = journal
        self._kind = kind

    def append(self, event: JournaledEvent) -> None:
        if isinstance(event, self._kind):
            raise StateFileError("The disk is full.", path=Path())
        self._journal.append(event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


@pytest.mark.needs("git", "bwrap")
@pytest.mark.spec("CTL-05", "ISO-02", "RUN-11", "QUE-04")
async def test_a_waiter_gets_the_worktree_of_an_agent_in_its_result(
    git_project: Path,
) -> None:
    model = script_agents(
        lead=[spawn_agent("middle", "c1"), "end"],
        middle=[
            spawn_agent("You write", "c2", isolation="worktree", run_in_background=True),
            lambda request: call_tool("TaskOutput", "t1", task_id=get_started_agent_id(request)),
            lambda request: (
                get_last_result(request) + "".join(message.text for message in request.messages[2:])
            ),
            lambda request: request.messages[-1].text,
        ],
        You=[call_tool("Write", "w1", file_path="new.txt", content="new\n"), "written"],
    )
    async with open_session(git_project, model) as session:
        await run_all_turns(session)
    report = map_agent_results(session)["middle"].text
    assert "<worktree><path>" in report.replace("\\", "")
    (done,) = [event for event in read_events(session) if isinstance(event, WorktreeWorkRetained)]
    assert f"<path>{done.work.path}<" in report.replace("\\", "")
    assert f"<branch>{done.work.branch}<" in report.replace("\\", "")


@pytest.mark.spec("USR-03", "USR-08")
async def test_an_agent_whose_end_cannot_be_recorded_leaves_nothing_running(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[spawn_agent("middle", "c1", run_in_background=True), "wait", "end"],
        middle=[
            [
                spawn_agent("below", "c2", run_in_background=True),
                call_tool("Bash", "b1", command="sleep 600", run_in_background=True),
            ],
            call_tool("Until"),
            RuntimeError("it breaks here"),
        ],
        below=[call_tool("Gate"), "never"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool]) as session:
        session.runtime.events._journal = FullJournal(session.runtime.store.journal, AgentEnded)
        await collect_events(session.run("lead"))
        async with asyncio.timeout(10):
            await session.supervisor.wait_until_idle()
        states = {each.description: each.status for each in session.supervisor.list_agents()}
        assert states == {"middle": "failed", "below": "killed"}
        assert [shell.status for shell in session.runtime.processes.shells.list_shells()] == ["stopped"]


@pytest.mark.needs("git")
@pytest.mark.spec("CTL-01", "USR-04")
async def test_a_message_that_arrives_during_the_commit_check_is_read(
    git_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, go_on = tmp_path / "looking", tmp_path / "go-on"
    for pipe in (looking, go_on):
        os.mkfifo(pipe)
    real = shutil.which("git")
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text(
        f'#!/bin/sh\ncase " $* " in *" log "*) echo >{looking}; read x <{go_on};; esac\nexec {real} "$@"\n'
    )
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    model = script_agents(
        lead=[spawn_agent("child", "c1", name="smith", run_in_background=True), "wait", "end"],
        child=[
            call_tool("Bash", "b1", command=f"{real} commit -qm more --allow-empty"),
            "first",
            lambda request: f"heard {request.messages[-1].text}",
        ],
    )
    async with open_session(git_project, model) as session:
        turns = asyncio.create_task(run_all_turns(session))
        await asyncio.to_thread(looking.read_text)
        await session.send("smith", "and a test")
        await asyncio.to_thread(go_on.write_text, "\n")
        await asyncio.to_thread(looking.read_text)
        await asyncio.to_thread(go_on.write_text, "\n")
        await turns
    assert map_agent_results(session)["child"].text == "heard and a test"


@pytest.mark.spec("CTL-01", "USR-04")
async def test_a_result_lists_unread_messages_and_a_resumed_agent_reads_them(
    tmp_path: Path,
) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[spawn_agent("child", "c1", name="smith", run_in_background=True), "wait", "end"],
        child=[call_tool("Gate"), lambda request: " | ".join(m.text for m in request.messages[-1:])],
    )
    async with open_session(tmp_path, model, tools=[gate.tool]) as session:
        await collect_events(session.run("lead"))
        await gate.wait_until_reached()
        await session.send("smith", "one more thing")
        await session.stop_agents()
        assert "1 message to it is unread" in map_agent_results(session)["child"].detail
        await session.send("smith", "go on")
        await run_all_turns(session, None)
    assert "one more thing" in map_agent_results(session)["child"].text


@pytest.mark.spec("TRN-02", "USR-04")
async def test_messages_unread_at_session_end_are_read_after_a_resume(
    tmp_path: Path,
) -> None:
    gate = ToolGate()
    script: dict[str, Any] = {
        "lead": [spawn_agent("child", "c1", name="smith", run_in_background=True), "wait", "end"],
        "child": [call_tool("Gate"), lambda request: " | ".join(m.text for m in request.messages[-1:])],
    }
    async with open_session(tmp_path, script_agents(**script), tools=[gate.tool]) as session:
        await collect_events(session.run("lead"))
        await gate.wait_until_reached()
        await session.send("smith", "one more thing")
    async with open_session(
        tmp_path, script_agents(**script), tools=[gate.tool], resume=session.id
    ) as session:
        await session.send("smith", "go on")
        await run_all_turns(session, None)
    report = map_agent_results(session)["child"].text
    assert report.count("one more thing") == 1
    assert report.index("one more thing") < report.index("go on")


@pytest.mark.spec("USR-03", "QUE-07")
async def test_a_resumed_agent_is_not_notified_again_of_an_agent_it_waited_for(tmp_path: Path) -> None:
    gate = ToolGate()
    script = {
        "lead": [
            spawn_agent("middle", "c1", name="smith"),
            "noted",
            call_tool("SendMessage", "m1", to="smith", message="again", summary="again"),
            "wait",
            "end",
        ],
        "middle": [
            [spawn_agent("below", "c2"), spawn_agent("aside", "c3", run_in_background=True)],
            lambda request: [
                call_tool("Open", "o1"),
                call_tool("TaskOutput", "t1", task_id=list_started_agent_ids(request)[1]),
            ],
            "first",
            lambda request: " | ".join(message.text for message in request.messages),
        ],
        "below": ["the part"],
        "aside": [call_tool("Gate"), "the other part"],
    }
    async with open_session(tmp_path, script_agents(**script), tools=[gate.tool, gate.open_tool]) as session:
        await run_all_turns(session)
    options = {"tools": [gate.tool, gate.open_tool], "resume": session.id}
    async with open_session(tmp_path, script_agents(**script), **options) as session:
        await run_all_turns(session, "again")
    assert "again" in map_agent_results(session)["middle"].text
    assert "task-notification" not in map_agent_results(session)["middle"].text


@pytest.mark.spec("USR-02", "USR-03")
@pytest.mark.parametrize("background", [False, True])
async def test_an_end_is_announced_when_the_waiting_call_was_interrupted(
    tmp_path: Path, background: bool
) -> None:
    gate, quick = ToolGate(), ToolGate("Quick")
    both = [spawn_agent(who, f"c-{who}", run_in_background=background) for who in ("slow", "quick")]

    def look(request: ModelRequest) -> Any:
        return [
            call_tool("TaskOutput", f"t{n}", task_id=each)
            for n, each in enumerate(list_started_agent_ids(request))
        ]

    model = script_agents(
        lead=[both, *([look] if background else []), lambda request: request.messages[-1].text],
        slow=[call_tool("Gate"), "never"],
        quick=[call_tool("Quick"), "quickly found"],
    )
    last = "t1" if background else "c-quick"
    async with open_session(tmp_path, model, tools=[gate.tool, quick.tool]) as session:
        over = asyncio.Event()

        def handle_event(event: Event) -> None:
            if isinstance(event, ToolStarted) and event.call == last:
                quick.is_open.set()
            if isinstance(event, ToolOutputReturned) and event.call == last:
                over.set()

        session.subscribe(handle_event)
        turn = asyncio.create_task(collect_events(session.run("lead")))
        await gate.wait_until_reached()
        await over.wait()
        assert await session.interrupt()
        await turn
        await session.stop_agents()
        text = await run_all_turns(session, None)
    assert "<result>quickly found</result>" in text
    assert text.count("<task-notification>") == (2 if background else 1)


@pytest.mark.spec("AGT-10", "CTL-09")
async def test_a_name_stays_with_its_agent_when_a_new_agent_with_it_fails_to_start(tmp_path: Path) -> None:
    model = script_agents(
        lead=[
            spawn_agent("child", "c1", name="smith"),
            spawn_agent("child", "c2", name="smith", subagent_type="nobody"),
            call_tool("SendMessage", "m1", to="smith", message="again", summary="again"),
            get_last_result,
        ],
        child=["ok"],
    )
    async with open_session(tmp_path, model) as session:
        finished = (await collect_events(session.run("lead")))[-1]
    assert "smith was resumed" in finished.text  # type: ignore[attr-defined]


@pytest.mark.spec("CTL-03")
async def test_a_name_cannot_shadow_an_agent_id_or_the_broadcast_address(tmp_path: Path) -> None:
    model = script_agents(
        lead=[
            spawn_agent("child", "c1"),
            lambda request: spawn_agent("other", "c2", name=get_started_agent_id(request)),
            spawn_agent("other", "c3", name="*"),
            "end",
        ],
        child=["ok"],
        other=["ok"],
    )
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
    first, second, third = [event for event in read_events(session) if isinstance(event, AgentStarted)]
    assert second.name == f"{first.agent}-2"
    assert third.name == "*-2"


@pytest.mark.spec("AGT-04", "PRM-08")
async def test_an_agent_of_a_denied_type_is_not_resumed(tmp_path: Path) -> None:
    script = {
        "lead": [
            spawn_agent("child", "c1", subagent_type="Explore", name="smith"),
            "noted",
            call_tool("SendMessage", "m1", to="smith", message="again", summary="again"),
            get_last_result,
        ],
        "child": ["ok"],
    }
    async with open_session(tmp_path, script_agents(**script)) as session:
        await run_all_turns(session)
    denied = {"disallowed_tools": ["Agent(Explore)"], "resume": session.id}
    async with open_session(tmp_path, script_agents(**script), **denied) as session:
        assert "Agent(Explore)" in await run_all_turns(session, "again")


@pytest.mark.spec("USR-24", "DEF-09")
@pytest.mark.parametrize("accepted", [True, False])
async def test_the_acceptance_command_also_runs_for_an_agent_at_its_turn_limit(
    tmp_path: Path, accepted: bool
) -> None:
    agents = {
        "careful": {
            "description": "d",
            "prompt": "p",
            "maxTurns": 1,
            "acceptance": f"exit {0 if accepted else 3}",
        }
    }
    model = script_agents(
        lead=[spawn_agent("child", "c1", subagent_type="careful"), "end"],
        child=[call_tool("Glob", pattern="*")],
    )
    async with open_session(tmp_path, model, agents=agents) as session:
        await run_all_turns(session)
    done = map_agent_results(session)["child"]
    assert done.status == ("completed" if accepted else "failed")
    assert done.evidence.acceptance is not None


@pytest.mark.spec("USR-07")
async def test_an_agent_cannot_wait_for_itself_or_in_a_cycle(tmp_path: Path) -> None:
    def wait_for(which: str) -> Any:
        def look(request: ModelRequest) -> Any:
            running = [each for each in session.supervisor.list_agents() if each.description == which]
            return call_tool("TaskOutput", f"t-{which}", task_id=running[0].agent, timeout=600_000)

        return look

    model = script_agents(
        lead=[spawn_agent("middle", "c1"), "end"],
        middle=[spawn_agent("below", "c2"), "end"],
        below=[
            wait_for("below"),
            wait_for("middle"),
            lambda request: " | ".join(list_result_texts(list(request.messages))),
        ],
    )
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
    report = map_agent_results(session)["below"].text
    assert report.count("is waiting for you") == 1
    assert "yourself" in report


@pytest.mark.spec("TRN-02")
async def test_a_session_continues_without_open_calls_after_a_full_disk(
    tmp_path: Path,
) -> None:
    asked: list[list[Message]] = []

    def look(request: ModelRequest) -> str:
        asked.append(list(request.messages))
        return "end"

    model = script_agents(lead=[call_tool("Glob", "g1", pattern="*"), look])
    async with open_session(tmp_path, model) as session:
        journal = session.runtime.store.journal
        session.runtime.events._journal = FullJournal(journal, ToolStarted)
        finished = (await collect_events(session.run("lead")))[-1]
        assert finished.reason == "store_error"  # type: ignore[attr-defined]
        session.runtime.events._journal = journal
        await run_all_turns(session, "and now?")
    ((*_, answered),) = asked
    assert isinstance(answered.content[0], ToolResultBlock)
    assert answered.text == "and now?"


@pytest.mark.spec("AGT-07")
async def test_an_agent_with_unreadable_metadata_is_not_resumed(tmp_path: Path) -> None:
    def spoil(request: ModelRequest) -> Any:
        (meta,) = Path(os.environ["SHOAL_HOME"]).glob("projects/*/*/subagents/*.meta.json")
        meta.write_text("{")
        return call_tool(
            "SendMessage", "m1", to=get_started_agent_id(request), message="again", summary="again"
        )

    model = script_agents(
        lead=[spawn_agent("child", "c1", subagent_type="general-purpose"), spoil, get_last_result],
        child=["ok"],
    )
    async with open_session(tmp_path, model) as session:
        assert "is not valid" in await run_all_turns(session)
    assert len([event for event in read_events(session) if isinstance(event, AgentStarted)]) == 1


@pytest.mark.spec("CTL-02", "AGT-13")
async def test_a_resumed_agent_keeps_its_directory_and_is_refused_if_that_is_gone(
    tmp_path: Path,
) -> None:
    place = tmp_path / "part"
    place.mkdir()

    def without_it(request: ModelRequest) -> Any:
        place.rmdir()
        return call_tool("SendMessage", "m2", to="smith", message="again", summary="again")

    model = script_agents(
        lead=[
            spawn_agent("child", "c1", cwd=str(place), name="smith"),
            call_tool("SendMessage", "m1", to="smith", message="again", summary="again"),
            "wait",
            without_it,
            get_last_result,
        ],
        child=["first", call_tool("Bash", "b1", command="pwd"), get_last_result],
    )
    async with open_session(tmp_path, model) as session:
        refused = await run_all_turns(session)
    assert str(place) in map_agent_results(session)["child"].text
    assert "not a directory" in refused


@pytest.mark.spec("USR-12", "USR-30")
async def test_a_resumed_seeded_session_does_not_reuse_agent_ids(
    tmp_path: Path,
) -> None:
    script = {
        "lead": [spawn_agent("child"), "end", spawn_agent("child"), "end", spawn_agent("child"), "end"],
        "child": ["ok"],
    }
    session: shoal.Session | None = None
    for _ in range(3):
        again = {} if session is None else {"resume": session.id}
        async with open_session(tmp_path, script_agents(**script), seed=3, **again) as session:
            await run_all_turns(session)
    assert session is not None
    started = [event.agent for event in read_events(session) if isinstance(event, AgentStarted)]
    assert len(started) == len(set(started)) == 3


@pytest.mark.spec("RUN-08")
async def test_invalid_unicode_text_ends_neither_the_session_nor_other_agents(tmp_path: Path) -> None:
    model = script_agents(
        lead=[[spawn_agent("child", "c1"), spawn_agent("other", "c2")], "end"],
        child=["half a sign \ud83d here"],
        other=["the other part"],
    )
    async with open_session(tmp_path, model) as session:
        assert await run_all_turns(session) == "end"
        first, second = list_result_texts(session.agent.conversation.messages)
    assert first.startswith("The agent failed: ")
    assert second.startswith("the other part")


@pytest.mark.spec("USR-12")
@pytest.mark.parametrize("left", [None, "", '{"type": "user", "mess'])
async def test_an_agent_cut_off_before_its_first_reply_is_not_reported_as_resumable(
    tmp_path: Path, left: str | None
) -> None:
    """Its prompt is in none of the transcripts that its process may have left."""
    goes_on = call_tool("SendMessage", to="a1", message="Go on.", summary="not done yet")
    model = script_agents(lead=["hm", goes_on, "end"])
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
        session.emit_event(
            AgentStarted(
                agent=AgentId("a1"),
                kind="general-purpose",
                name="",
                description="d",
                parent=LEAD_ID,
                call="c1",
                depth=1,
                model="m",
                mode="default",
                background=True,
                cwd=str(tmp_path),
            )
        )
        (main,) = Path(os.environ["SHOAL_HOME"]).glob(f"projects/*/{session.id}.jsonl")
    if left is not None:
        agents = main.with_suffix("") / "subagents"
        agents.mkdir(parents=True)
        (agents / "agent-a1.jsonl").write_text(left)
    async with open_session(tmp_path, model, resume=session.id) as session:
        await run_all_turns(session, "go")
        conversation = str(session.agent.conversation.messages)
    assert "its process ended before the agent did any work; start it again" in conversation
    refusal = "There is no agent 'a1'" if left is None else "The agent 'a1' has no transcript to continue"
    assert refusal in conversation


@pytest.mark.spec("USR-02", "USR-03")
async def test_a_resumed_agent_is_notified_of_an_end_it_missed(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[spawn_agent("middle", "c1", name="smith", run_in_background=True), "wait", "end"],
        middle=[
            [spawn_agent("slow", "c2"), spawn_agent("quick", "c3")],
            lambda request: request.messages[-1].text,
        ],
        slow=[call_tool("Gate"), "never"],
        quick=["quickly found"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool]) as session:
        over = asyncio.Event()

        def handle_event(event: Event) -> None:
            if isinstance(event, ToolOutputReturned) and event.call == "c3":
                over.set()

        session.subscribe(handle_event)
        await collect_events(session.run("lead"))
        await gate.wait_until_reached()
        await over.wait()
        await session.stop_task("smith")
        await session.send("smith", "go on")
        await run_all_turns(session, None)
    assert "<result>quickly found</result>" in map_agent_results(session)["middle"].text.replace("<\\", "<")


@pytest.mark.spec("USR-01")
@pytest.mark.parametrize(("isolation", "reason"), [("worktree", "git"), ("remote", "no Ray cluster")])
async def test_a_failed_start_keeps_neither_its_name_nor_its_place(
    tmp_path: Path, isolation: str, reason: str
) -> None:
    """There is no repository for a worktree and no cluster, so the start fails after its name is reserved."""
    model = script_agents(
        lead=[
            spawn_agent("first", "c1", name="scout", isolation=isolation),
            spawn_agent("second", "c2", name="scout"),
            "done",
        ],
        second=["here"],
    )
    limits = {"max_agents": 1, "max_concurrent": 1}
    async with open_session(tmp_path, model, shoal_settings=limits) as session:
        await collect_events(session.run("lead"))
        await session.supervisor.wait_until_idle()
        first, second = list_lead_results(session)[:2]
        started = [event for event in read_events(session) if isinstance(event, AgentStarted)]
    assert reason in first
    assert second.startswith("here"), second
    assert [event.name for event in started] == ["scout"]


@pytest.mark.spec("USR-01")
async def test_an_agent_that_cannot_be_resumed_keeps_no_place(tmp_path: Path) -> None:
    model = script_agents(
        lead=[spawn_agent("first", "c1", name="scout"), "noted", spawn_agent("second", "c2"), "done"],
        first=["ok"],
        second=["here"],
    )
    async with open_session(tmp_path, model, shoal_settings={"max_concurrent": 1}) as session:
        await run_all_turns(session)
        journal = session.runtime.events._journal
        for event in (QueueItemAdded, AgentStarted):
            session.runtime.events._journal = FullJournal(journal, event)
            with pytest.raises(StateFileError):
                await session.send("scout", "again")
        session.runtime.events._journal = journal
        await run_all_turns(session, "Start another one.")
        assert list_lead_results(session)[-1].startswith("here")


@pytest.mark.spec("USR-02")
async def test_an_agent_does_not_end_before_it_has_read_the_results_of_its_children(tmp_path: Path) -> None:
    gate = ToolGate()

    def open_gate(request: ModelRequest) -> str:
        gate.is_open.set()
        return "waiting"

    model = script_agents(
        lead=[spawn_agent("middle", "c1"), "end"],
        middle=[
            spawn_agent("below", "c2", run_in_background=True),
            open_gate,
            lambda request: request.messages[-1].text,
        ],
        below=[call_tool("Gate"), "the part"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool]) as session:
        await run_all_turns(session)
    assert "the part" in map_agent_results(session)["middle"].text


@pytest.mark.spec("TRN-02")
@pytest.mark.parametrize("is_damaged", [True, False])
async def test_a_resumed_agent_with_a_damaged_conversation_is_reported(
    tmp_path: Path, is_damaged: bool
) -> None:
    script: dict[str, Any] = {
        "lead": [spawn_agent("child", "c1", name="smith"), "noted", "end"],
        "child": [call_tool("Read", "r1", file_path="a.txt"), "ok", "again"],
    }
    (tmp_path / "a.txt").write_text("x")
    async with open_session(tmp_path, script_agents(**script)) as session:
        await run_all_turns(session)
    (transcript,) = get_home().glob("projects/*/*/subagents/agent-*.jsonl")
    lines = transcript.read_bytes().splitlines(keepends=True)
    if is_damaged:
        transcript.write_bytes(b"".join([lines[0], b"{ half\n", *lines[1:]]))
    async with open_session(tmp_path, script_agents(**script), resume=session.id) as session:
        await session.send("smith", "go on")
        await run_all_turns(session, None)
        notes = join_notes(read_events(session))
    damage = f"The conversation {transcript} is damaged: 1 of its lines cannot be read."
    assert (damage in notes) is is_damaged
