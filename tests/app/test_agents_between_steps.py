"""Ends, messages and names of agents at the moments between two of their steps."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import Gate, agent, all_turns, cast, recorded, use
from shoal.core.agents import Completion
from shoal.core.errors import StoreError
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    Asked,
    Event,
    Finished,
    Journaled,
    ToolReturned,
    ToolStarted,
    WorkKept,
)
from shoal.core.ids import LEAD, AgentId
from shoal.core.messages import Message, ToolResult, result_text
from shoal.core.ports import Journal
from shoal.core.questions import Allowed, Denied
from shoal.core.requests import Request


def opened(place: Path, model: Any, **options: Any) -> shoal.Session:
    return shoal.open(cwd=place, model=model, **{"skip_permissions": True, **options})


def results(messages: list[Message]) -> list[str]:
    blocks = [block for message in messages for block in message.content]
    return [result_text(block) for block in blocks if isinstance(block, ToolResult)]


def last_result(request: Request) -> str:
    return results(list(request.messages))[-1]


def ids(request: Request) -> list[str]:
    """Of the agents that were started, in the order of their calls."""
    told = [text for text in results(list(request.messages)) if "agentId: " in text]
    return [text.partition("agentId: ")[2].split()[0].rstrip(",") for text in told]


def started_id(request: Request) -> str:
    return ids(request)[0]


def ends(session: shoal.Session) -> dict[str, Completion]:
    """The last completion of each agent, by its description."""
    found = [event.completion for event in recorded(session) if isinstance(event, AgentEnded)]
    return {completion.description: completion for completion in found}


async def drain(turn: Any) -> list[Event]:
    return [event async for event in turn]


def git(place: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=place, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    git(place, "config", "user.email", "a@example.org")
    git(place, "config", "user.name", "A")
    git(place, "commit", "-qm", "first", "--allow-empty")
    return place


@pytest.mark.spec("USR-01")
async def test_a_message_that_wants_many_agents_is_asked_about_once_though_they_start_in_parts(
    tmp_path: Path,
) -> None:
    calls = [agent(f"child {n}", f"c{n}") for n in range(4)]
    model = cast(
        lead=[[*calls[:2], use("Write", "w", file_path="a.txt", content=""), *calls[2:]], "end"],
        child=["ok"],
    )
    settings = json.dumps({"shoal": {"fan_out_preview": 3}})
    async with opened(tmp_path, model, attended=True, settings=settings) as session:

        async def say_yes() -> None:
            async for question in session.parts.desk.incoming():
                session.parts.desk.answer(question.id, Allowed())

        async with asyncio.TaskGroup() as aside:
            answering = aside.create_task(say_yes())
            await all_turns(session)
            answering.cancel()
    assert len([event for event in recorded(session) if isinstance(event, Asked)]) == 1
    assert len(ends(session)) == 4


@pytest.mark.spec("USR-01")
async def test_who_says_no_to_many_agents_and_stop_ends_the_turn(tmp_path: Path) -> None:
    model = cast(lead=[[agent(f"child {n}", f"c{n}") for n in range(4)], "I go on."], child=["ok"])
    settings = json.dumps({"shoal": {"fan_out_preview": 3}})
    async with opened(tmp_path, model, attended=True, settings=settings) as session:

        async def say_no() -> None:
            question = await anext(session.parts.desk.incoming())
            session.parts.desk.answer(question.id, Denied(reason="too many", ends_turn=True))

        async with asyncio.TaskGroup() as aside:
            aside.create_task(say_no())
            finished = (await drain(session.run("lead")))[-1]
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.detail) == ("blocked", "it was told to stop: too many")
    assert not ends(session)


@pytest.mark.spec("USR-01")
async def test_a_question_about_many_agents_that_cannot_be_kept_ends_the_turn_with_a_sentence(
    tmp_path: Path,
) -> None:
    model = cast(lead=[[agent(f"child {n}", f"c{n}") for n in range(4)], "end"], child=["ok"])
    settings = json.dumps({"shoal": {"fan_out_preview": 3}})
    async with opened(tmp_path, model, attended=True, settings=settings) as session:
        session.parts.journal = Full(session.parts.journal, Asked)
        finished = (await drain(session.run("lead")))[-1]
    assert (finished.reason, finished.detail) == ("store_error", "The disk is full.")  # type: ignore[attr-defined]


class Full:
    """A journal on a disk that is full when one kind of event comes."""

    def __init__(self, journal: Journal, kind: type[Journaled]) -> None:
        self._journal = journal
        self._kind = kind

    def append(self, event: Journaled) -> None:
        if isinstance(event, self._kind):
            raise StoreError("The disk is full.", path=Path())
        self._journal.append(event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


@pytest.mark.needs("git", "bwrap")
@pytest.mark.spec("CTL-05", "ISO-02", "RUN-11", "QUE-04")
async def test_who_waits_for_an_agent_in_a_worktree_is_told_where_its_work_is_and_goes_on(
    project: Path,
) -> None:
    model = cast(
        lead=[agent("middle", "c1"), "end"],
        middle=[
            agent("You write", "c2", isolation="worktree", run_in_background=True),
            lambda request: use("TaskOutput", "t1", task_id=started_id(request)),
            lambda request: last_result(request) + "".join(message.text for message in request.messages[2:]),
            lambda request: request.messages[-1].text,
        ],
        You=[use("Write", "w1", file_path="new.txt", content="new\n"), "written"],
    )
    async with opened(project, model) as session:
        await all_turns(session)
    told = ends(session)["middle"].text
    assert "<worktree><path>" in told.replace("\\", "")
    (done,) = [event for event in recorded(session) if isinstance(event, WorkKept)]
    assert f"<path>{done.work.path}<" in told.replace("\\", "")
    assert f"<branch>{done.work.branch}<" in told.replace("\\", "")


@pytest.mark.spec("USR-03", "USR-08")
async def test_an_agent_whose_end_cannot_be_written_down_leaves_nothing_running(tmp_path: Path) -> None:
    gate = Gate()
    model = cast(
        lead=[agent("middle", "c1", run_in_background=True), "wait", "end"],
        middle=[
            [
                agent("below", "c2", run_in_background=True),
                use("Bash", "b1", command="sleep 600", run_in_background=True),
            ],
            use("Until"),
            RuntimeError("it breaks here"),
        ],
        below=[use("Gate"), "never"],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until]) as session:
        session.parts.journal = Full(session.parts.journal, AgentEnded)
        await drain(session.run("lead"))
        async with asyncio.timeout(10):
            await session.parts.crew.quiet()
        states = {each.description: each.status for each in session.parts.crew.agents()}
        assert states == {"middle": "failed", "below": "killed"}
        assert [shell.status for shell in session.parts.shells.list()] == ["stopped"]


@pytest.mark.needs("git")
@pytest.mark.spec("CTL-01", "USR-04")
async def test_a_message_that_comes_while_commits_are_looked_for_is_heard(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    model = cast(
        lead=[agent("child", "c1", name="smith", run_in_background=True), "wait", "end"],
        child=[
            use("Bash", "b1", command=f"{real} commit -qm more --allow-empty"),
            "first",
            lambda request: f"heard {request.messages[-1].text}",
        ],
    )
    async with opened(project, model) as session:
        turns = asyncio.create_task(all_turns(session))
        await asyncio.to_thread(looking.read_text)
        await session.send("smith", "and a test")
        await asyncio.to_thread(go_on.write_text, "\n")
        await asyncio.to_thread(looking.read_text)
        await asyncio.to_thread(go_on.write_text, "\n")
        await turns
    assert ends(session)["child"].text == "heard and a test"


@pytest.mark.spec("CTL-01", "USR-04")
async def test_an_end_tells_of_messages_that_were_not_heard_and_a_resumed_agent_hears_them(
    tmp_path: Path,
) -> None:
    gate = Gate()
    model = cast(
        lead=[agent("child", "c1", name="smith", run_in_background=True), "wait", "end"],
        child=[use("Gate"), lambda request: " | ".join(m.text for m in request.messages[-1:])],
    )
    async with opened(tmp_path, model, tools=[gate.tool]) as session:
        await drain(session.run("lead"))
        await gate.wait()
        await session.send("smith", "one more thing")
        await session.stop_agents()
        assert "1 message to it was not heard" in ends(session)["child"].detail
        await session.send("smith", "go on")
        await all_turns(session, None)
    assert "one more thing" in ends(session)["child"].text


@pytest.mark.spec("TRN-02", "USR-04")
async def test_what_an_agent_had_not_heard_when_its_session_ended_it_hears_in_the_next_one(
    tmp_path: Path,
) -> None:
    gate = Gate()
    script: dict[str, Any] = {
        "lead": [agent("child", "c1", name="smith", run_in_background=True), "wait", "end"],
        "child": [use("Gate"), lambda request: " | ".join(m.text for m in request.messages[-1:])],
    }
    async with opened(tmp_path, cast(**script), tools=[gate.tool]) as session:
        await drain(session.run("lead"))
        await gate.wait()
        await session.send("smith", "one more thing")
    async with opened(tmp_path, cast(**script), tools=[gate.tool], resume=session.id) as session:
        await session.send("smith", "go on")
        await all_turns(session, None)
    told = ends(session)["child"].text
    assert told.count("one more thing") == 1
    assert told.index("one more thing") < told.index("go on")


@pytest.mark.spec("USR-03", "QUE-07")
async def test_a_resumed_agent_is_not_told_again_of_an_agent_that_it_waited_for(tmp_path: Path) -> None:
    gate = Gate()
    script = {
        "lead": [
            agent("middle", "c1", name="smith"),
            "noted",
            use("SendMessage", "m1", to="smith", message="again", summary="again"),
            "wait",
            "end",
        ],
        "middle": [
            [agent("below", "c2"), agent("aside", "c3", run_in_background=True)],
            lambda request: [use("Open", "o1"), use("TaskOutput", "t1", task_id=ids(request)[1])],
            "first",
            lambda request: " | ".join(message.text for message in request.messages),
        ],
        "below": ["the part"],
        "aside": [use("Gate"), "the other part"],
    }
    async with opened(tmp_path, cast(**script), tools=[gate.tool, gate.open]) as session:
        await all_turns(session)
    options = {"tools": [gate.tool, gate.open], "resume": session.id}
    async with opened(tmp_path, cast(**script), **options) as session:
        await all_turns(session, "again")
    assert "again" in ends(session)["middle"].text
    assert "task-notification" not in ends(session)["middle"].text


@pytest.mark.spec("USR-02", "USR-03")
@pytest.mark.parametrize("background", [False, True])
async def test_an_end_whose_call_is_interrupted_before_it_is_told_is_announced(
    tmp_path: Path, background: bool
) -> None:
    gate, quick = Gate(), Gate("Quick")
    both = [agent(who, f"c-{who}", run_in_background=background) for who in ("slow", "quick")]

    def look(request: Request) -> Any:
        return [use("TaskOutput", f"t{n}", task_id=each) for n, each in enumerate(ids(request))]

    model = cast(
        lead=[both, *([look] if background else []), lambda request: request.messages[-1].text],
        slow=[use("Gate"), "never"],
        quick=[use("Quick"), "quickly found"],
    )
    last = "t1" if background else "c-quick"
    async with opened(tmp_path, model, tools=[gate.tool, quick.tool]) as session:
        over = asyncio.Event()

        def heard(event: Event) -> None:
            if isinstance(event, ToolStarted) and event.call == last:
                quick.opened.set()
            if isinstance(event, ToolReturned) and event.call == last:
                over.set()

        session.watch(heard)
        turn = asyncio.create_task(drain(session.run("lead")))
        await gate.wait()
        await over.wait()
        assert await session.interrupt()
        await turn
        await session.stop_agents()
        text = await all_turns(session, None)
    assert "<result>quickly found</result>" in text
    assert text.count("<task-notification>") == (2 if background else 1)


@pytest.mark.spec("AGT-10", "CTL-09")
async def test_a_name_stays_with_its_agent_when_another_that_wants_it_cannot_start(tmp_path: Path) -> None:
    model = cast(
        lead=[
            agent("child", "c1", name="smith"),
            agent("child", "c2", name="smith", subagent_type="nobody"),
            use("SendMessage", "m1", to="smith", message="again", summary="again"),
            last_result,
        ],
        child=["ok"],
    )
    async with opened(tmp_path, model) as session:
        finished = (await drain(session.run("lead")))[-1]
    assert "smith is resumed" in finished.text  # type: ignore[attr-defined]


@pytest.mark.spec("CTL-03")
async def test_a_name_never_hides_the_id_of_another_agent_nor_everyone(tmp_path: Path) -> None:
    model = cast(
        lead=[
            agent("child", "c1"),
            lambda request: agent("other", "c2", name=started_id(request)),
            agent("other", "c3", name="*"),
            "end",
        ],
        child=["ok"],
        other=["ok"],
    )
    async with opened(tmp_path, model) as session:
        await all_turns(session)
    first, second, third = [event for event in recorded(session) if isinstance(event, AgentStarted)]
    assert second.name == f"{first.agent}-2"
    assert third.name == "*-2"


@pytest.mark.spec("AGT-04", "PRM-08")
async def test_an_agent_of_a_kind_that_is_denied_is_not_resumed(tmp_path: Path) -> None:
    script = {
        "lead": [
            agent("child", "c1", subagent_type="Explore", name="smith"),
            "noted",
            use("SendMessage", "m1", to="smith", message="again", summary="again"),
            last_result,
        ],
        "child": ["ok"],
    }
    async with opened(tmp_path, cast(**script)) as session:
        await all_turns(session)
    denied = {"disallowed_tools": ["Agent(Explore)"], "resume": session.id}
    async with opened(tmp_path, cast(**script), **denied) as session:
        assert "Agent(Explore)" in await all_turns(session, "again")


@pytest.mark.spec("USR-24", "DEF-09")
@pytest.mark.parametrize("accepted", [True, False])
async def test_an_agent_at_its_turn_limit_is_held_to_its_acceptance_command_too(
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
    model = cast(
        lead=[agent("child", "c1", subagent_type="careful"), "end"], child=[use("Glob", pattern="*")]
    )
    async with opened(tmp_path, model, agents=agents) as session:
        await all_turns(session)
    done = ends(session)["child"]
    assert done.status == ("completed" if accepted else "failed")
    assert done.evidence.acceptance is not None


@pytest.mark.spec("USR-07")
async def test_an_agent_cannot_wait_for_itself_or_for_one_that_waits_for_it(tmp_path: Path) -> None:
    def wait_for(which: str) -> Any:
        def look(request: Request) -> Any:
            running = [each for each in session.parts.crew.agents() if each.description == which]
            return use("TaskOutput", f"t-{which}", task_id=running[0].agent, timeout=600_000)

        return look

    model = cast(
        lead=[agent("middle", "c1"), "end"],
        middle=[agent("below", "c2"), "end"],
        below=[
            wait_for("below"),
            wait_for("middle"),
            lambda request: " | ".join(results(list(request.messages))),
        ],
    )
    async with opened(tmp_path, model) as session:
        await all_turns(session)
    told = ends(session)["below"].text
    assert told.count("waits for you") == 1
    assert "yourself" in told


@pytest.mark.spec("TRN-02")
async def test_after_a_turn_that_a_full_disk_ended_the_session_goes_on_with_no_call_left_open(
    tmp_path: Path,
) -> None:
    asked: list[list[Message]] = []

    def look(request: Request) -> str:
        asked.append(list(request.messages))
        return "end"

    model = cast(lead=[use("Glob", "g1", pattern="*"), look])
    async with opened(tmp_path, model) as session:
        journal = session.parts.journal
        session.parts.journal = Full(journal, ToolStarted)
        finished = (await drain(session.run("lead")))[-1]
        assert finished.reason == "store_error"  # type: ignore[attr-defined]
        session.parts.journal = journal
        await all_turns(session, "and now?")
    ((*_, answered),) = asked
    assert isinstance(answered.content[0], ToolResult)
    assert answered.text == "and now?"


@pytest.mark.spec("AGT-07")
async def test_an_agent_whose_facts_cannot_be_understood_is_not_resumed_as_another(tmp_path: Path) -> None:
    def spoil(request: Request) -> Any:
        (meta,) = Path(os.environ["SHOAL_HOME"]).glob("projects/*/*/subagents/*.meta.json")
        meta.write_text("{")
        return use("SendMessage", "m1", to=started_id(request), message="again", summary="again")

    model = cast(
        lead=[agent("child", "c1", subagent_type="general-purpose"), spoil, last_result], child=["ok"]
    )
    async with opened(tmp_path, model) as session:
        assert "cannot be understood" in await all_turns(session)
    assert len([event for event in recorded(session) if isinstance(event, AgentStarted)]) == 1


@pytest.mark.spec("CTL-02", "AGT-13")
async def test_a_resumed_agent_works_where_it_worked_and_is_refused_where_that_is_gone(
    tmp_path: Path,
) -> None:
    place = tmp_path / "part"
    place.mkdir()

    def without_it(request: Request) -> Any:
        place.rmdir()
        return use("SendMessage", "m2", to="smith", message="again", summary="again")

    model = cast(
        lead=[
            agent("child", "c1", cwd=str(place), name="smith"),
            use("SendMessage", "m1", to="smith", message="again", summary="again"),
            "wait",
            without_it,
            last_result,
        ],
        child=["first", use("Bash", "b1", command="pwd"), last_result],
    )
    async with opened(tmp_path, model) as session:
        refused = await all_turns(session)
    assert str(place) in ends(session)["child"].text
    assert "no directory" in refused


@pytest.mark.spec("USR-12", "USR-30")
async def test_a_session_resumed_with_its_seed_gives_no_agent_the_id_of_an_earlier_one(
    tmp_path: Path,
) -> None:
    script = {"lead": [agent("child"), "end", agent("child"), "end", agent("child"), "end"], "child": ["ok"]}
    session: shoal.Session | None = None
    for _ in range(3):
        again = {} if session is None else {"resume": session.id}
        async with opened(tmp_path, cast(**script), seed=3, **again) as session:
            await all_turns(session)
    assert session is not None
    started = [event.agent for event in recorded(session) if isinstance(event, AgentStarted)]
    assert len(started) == len(set(started)) == 3


@pytest.mark.spec("RUN-08")
async def test_words_that_are_no_text_end_neither_the_session_nor_other_agents(tmp_path: Path) -> None:
    model = cast(
        lead=[[agent("child", "c1"), agent("other", "c2")], "end"],
        child=["half a sign \ud83d here"],
        other=["the other part"],
    )
    async with opened(tmp_path, model) as session:
        assert await all_turns(session) == "end"
        first, second = results(session.agent.conversation.messages)
    assert first.startswith("The agent failed: ")
    assert second.startswith("the other part")


@pytest.mark.spec("USR-12")
@pytest.mark.parametrize("left", [None, "", '{"type": "user", "mess'])
async def test_an_agent_cut_off_before_its_first_words_is_not_said_to_be_resumable(
    tmp_path: Path, left: str | None
) -> None:
    """Whatever its process left of its transcript: its prompt is in none of it."""
    goes_on = use("SendMessage", to="a1", message="Go on.", summary="not done yet")
    model = cast(lead=["hm", goes_on, "end"])
    async with opened(tmp_path, model) as session:
        await all_turns(session)
        session.emit(
            AgentStarted(
                agent=AgentId("a1"),
                kind="general-purpose",
                name="",
                description="d",
                parent=LEAD,
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
    async with opened(tmp_path, model, resume=session.id) as session:
        await all_turns(session, "go")
        said = str(session.agent.conversation.messages)
    assert "its process ended before it had begun; start it again" in said
    assert "There is no agent 'a1'" in said


@pytest.mark.spec("USR-02", "USR-03")
async def test_a_stopped_agent_hears_of_an_end_it_was_not_told_when_it_is_resumed(tmp_path: Path) -> None:
    gate = Gate()
    model = cast(
        lead=[agent("middle", "c1", name="smith", run_in_background=True), "wait", "end"],
        middle=[[agent("slow", "c2"), agent("quick", "c3")], lambda request: request.messages[-1].text],
        slow=[use("Gate"), "never"],
        quick=["quickly found"],
    )
    async with opened(tmp_path, model, tools=[gate.tool]) as session:
        over = asyncio.Event()

        def heard(event: Event) -> None:
            if isinstance(event, ToolReturned) and event.call == "c3":
                over.set()

        session.watch(heard)
        await drain(session.run("lead"))
        await gate.wait()
        await over.wait()
        await session.stop_task("smith")
        await session.send("smith", "go on")
        await all_turns(session, None)
    assert "<result>quickly found</result>" in ends(session)["middle"].text.replace("<\\", "<")
