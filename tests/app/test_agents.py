"""Agents that a lead starts, waits for and hears of, through the library's door."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

import shoal
from cast import Gate, agent, all_turns, cast, recorded, use
from shoal.agent.conversation import Conversation
from shoal.app.agents.files import AgentFiles
from shoal.core.events import (
    AgentEnded,
    AgentMoved,
    AgentStarted,
    Asked,
    Finished,
    Notified,
    ToolFinished,
    ToolProgress,
    TurnStarted,
)
from shoal.core.ids import AgentId, Ids
from shoal.core.messages import Message, ToolResult, ToolUse, result_text
from shoal.core.questions import Allowed, Denied, MayRun
from shoal.core.requests import Request
from shoal.stores.files.subagents import Remembered
from shoal.stores.memory import NoTranscript
from shoal.testing import FakeClock

E = TypeVar("E")


def opened(tmp_path: Path, model: Any, **options: Any) -> shoal.Session:
    return shoal.open(cwd=tmp_path, model=model, **{"skip_permissions": True, **options})


def results(messages: list[Message]) -> list[ToolResult]:
    return [block for message in messages for block in message.content if isinstance(block, ToolResult)]


def last_result(request: Request) -> str:
    return result_text(results(list(request.messages))[-1])


def only(kind: type[E], events: Sequence[Any]) -> E:
    (found,) = [event for event in events if isinstance(event, kind)]
    return found


@pytest.mark.spec("AGT-09", "AGT-12", "AGT-13", "CTL-07", "RUN-03", "QUE-07")
async def test_an_agent_that_is_waited_for_returns_one_result_with_what_it_took(tmp_path: Path) -> None:
    seen: list[tuple[str, list[str]]] = []

    def child(request: Request) -> str:
        seen.append((request.system, [message.text for message in request.messages]))
        return "it is in main.py:7"

    model = cast(lead=[agent("child where is it?", "c1"), last_result], child=[child])
    async with opened(tmp_path, model) as session:
        text = await all_turns(session)
    events = recorded(session)
    ended = only(AgentEnded, events).completion
    assert text.startswith("it is in main.py:7\n\nagentId: " + ended.agent)
    assert Path(ended.output).read_text().startswith("it is in main.py:7\n")
    assert f"<usage>total_tokens: {ended.usage.total_tokens}\ntool_uses: 0\nduration_ms: " in text
    # Its own system prompt and the prompt are all it starts with, and its result is no message of the queue.
    ((system, said),) = seen
    assert said == ["child where is it?"]
    assert "You carry out one task that another agent gives you" in system
    assert session.agent.system.splitlines()[0] not in system
    assert not [event for event in events if isinstance(event, Notified)]


@pytest.mark.spec("RUN-03")
async def test_what_an_agent_that_is_waited_for_does_is_told_as_progress_of_the_call(tmp_path: Path) -> None:
    look = use("Glob", "g1", pattern="*.py")
    model = cast(lead=[agent("child", "c1"), "end"], child=[look, "found"])
    async with opened(tmp_path, model) as session:
        events = await _drain(session.run("lead"))
    told = only(ToolProgress, events)
    assert (told.agent, told.call, told.text) == ("lead", "c1", "Glob *.py")


@pytest.mark.spec("AGT-09")
async def test_a_one_shot_agent_has_no_trailer_and_one_without_words_gets_a_sentence(
    tmp_path: Path,
) -> None:
    model = cast(
        lead=[[agent("quiet", "c1"), agent("look", "c2", subagent_type="Explore")], lambda r: "end"],
        quiet=[""],
        look=["found"],
    )
    async with opened(tmp_path, model) as session:
        await all_turns(session)
        quiet, look = map(result_text, results(session.agent.conversation.messages))
    assert quiet.startswith("(The agent ended without a report.)")
    assert look == "found"


@pytest.mark.spec("AGT-01", "RUN-02")
async def test_agents_of_one_message_run_side_by_side(tmp_path: Path) -> None:
    first, second = Gate("First"), Gate("Second")
    model = cast(
        lead=[[agent("one", "c1"), agent("two", "c2")], "end"],
        one=[use("First"), "1"],
        two=[use("Second"), "2"],
    )
    async with opened(tmp_path, model, tools=[first.tool, second.tool]) as session:
        turn = session.run("lead")
        heard = asyncio.create_task(_drain(turn))
        await first.wait()
        await second.wait()
        first.opened.set()
        second.opened.set()
        await heard
        assert [result_text(r)[0] for r in results(session.agent.conversation.messages)] == ["1", "2"]


async def _drain(turn: Any) -> list[Any]:
    return [event async for event in turn]


@pytest.mark.spec("QUE-01", "QUE-03", "QUE-04", "QUE-05", "QUE-07", "AGT-09", "RUN-11")
async def test_a_background_agent_is_announced_once_when_it_has_ended(tmp_path: Path) -> None:
    returned: list[str] = []

    def started(request: Request) -> str:
        returned.append(last_result(request))
        return "started"

    model = cast(
        lead=[agent("child do it", "c1", run_in_background=True), started, lambda r: r.messages[-1].text],
        child=[use("Bash", "b1", command="echo hi"), "all done"],
    )
    async with opened(tmp_path, model) as session:
        notice = await all_turns(session)
        launched = result_text(results(session.agent.conversation.messages)[0])
    events = recorded(session)
    ended = only(AgentEnded, events).completion
    assert f"agentId: {ended.agent}" in launched
    assert ended.output in launched
    assert [launched] == returned, "its end is a message of its own and changes no result"
    order = [
        "<task-notification>",
        f"<task-id>{ended.agent}</task-id>",
        "<tool-use-id>c1</tool-use-id>",
        f"<output-file>{ended.output}</output-file>",
        "<status>completed</status>",
        '<summary>Agent "child do it" (general-purpose) completed. 1 tool call.</summary>',
        "<result>all done</result>",
        f"<usage><total_tokens>{ended.usage.total_tokens}</total_tokens><tool_uses>1</tool_uses>"
        f"<duration_ms>{ended.duration_ms}</duration_ms></usage>",
        "</task-notification>",
    ]
    at = [notice.index(each) for each in order]
    assert at == sorted(at)
    assert only(Notified, events).completion == ended.id
    assert sum(isinstance(event, TurnStarted) for event in events) == 2
    assert Path(ended.output).read_text().startswith("· Bash echo hi\n")


@pytest.mark.spec("QUE-02", "QUE-06")
async def test_what_a_person_says_is_heard_before_an_end_that_was_there_first(tmp_path: Path) -> None:
    model = cast(lead=[agent("child", "c1", run_in_background=True), "started", "heard"], child=["done"])
    async with opened(tmp_path, model) as session:
        await _drain(session.run("lead"))
        await session.agents_idle()
        session.steer("one more thing")
        turn = await session.next_turn()
        assert turn is not None
        await _drain(turn)
        *_, heard, _ = session.agent.conversation.messages
    assert heard.text.index("one more thing") < heard.text.index("<task-notification>")


@pytest.mark.spec("USR-24")
async def test_the_end_carries_what_the_runtime_saw_and_words_alone_are_flagged(tmp_path: Path) -> None:
    model = cast(
        lead=[[agent("busy", "c1"), agent("talker", "c2")], "end"],
        busy=[
            use("Write", "w1", file_path="a.txt", content="a"),
            use("Bash", "b1", command="exit 3"),
            "wrote it",
        ],
        talker=["I did everything"],
    )
    async with opened(tmp_path, model) as session:
        await all_turns(session)
        texts = [result_text(r) for r in results(session.agent.conversation.messages)]
    seen = {
        e.completion.description: e.completion.evidence
        for e in recorded(session)
        if isinstance(e, AgentEnded)
    }
    assert seen["busy"].tool_calls == 2
    assert seen["busy"].failed_calls == 1
    assert [Path(file).name for file in seen["busy"].files] == ["a.txt"]
    assert [ran.exit_code for ran in seen["busy"].commands] == [3]
    assert "It made no tool calls" in texts[1]
    assert "It made no tool calls" not in texts[0]


@pytest.mark.spec("RUN-04")
async def test_an_agent_that_takes_long_goes_on_in_the_background_and_repeats_nothing(tmp_path: Path) -> None:
    clock, gate = FakeClock(), Gate()
    model = cast(lead=[agent("slow", "c1"), "go on", "heard"], slow=[use("Gate"), "slow but done"])
    async with opened(tmp_path, model, tools=[gate.tool], clock=clock, persist=False) as session:
        turn = asyncio.create_task(_drain(session.run("lead")))
        await gate.wait()
        await clock.advance(121)
        async with asyncio.timeout(10):
            events = await turn
        assert "goes on in the background" in result_text(results(session.agent.conversation.messages)[0])
        assert isinstance(events[-1], Finished)
        gate.opened.set()
        woken = await session.next_turn()
        assert woken is not None
        await _drain(woken)
    assert gate.calls == 1
    moved, ended = only(AgentMoved, recorded(session)), only(AgentEnded, recorded(session))
    assert moved.agent == ended.agent
    assert "slow but done" in session.agent.conversation.messages[-2].text


@pytest.mark.spec("RUN-04", "RUN-14")
async def test_a_person_moves_it_to_the_background_unless_a_setting_forbids_that(tmp_path: Path) -> None:
    for allowed in (True, False):
        gate = Gate()
        model = cast(lead=[agent("slow", "c1"), "go on"], slow=[use("Gate"), "done"])
        settings = json.dumps({"shoal": {"background_agents": allowed}})
        async with opened(tmp_path, model, tools=[gate.tool], settings=settings) as session:
            schema = session.agent.tools["Agent"].schema.input_schema["properties"]
            assert ("run_in_background" in schema) is allowed
            turn = asyncio.create_task(_drain(session.run("lead")))
            await gate.wait()
            moved = session.parts.crew.move_to_background()
            assert len(moved) == allowed
            if not allowed:
                gate.opened.set()
            await turn
            (result,) = results(session.agent.conversation.messages)
            assert ("goes on in the background" in result_text(result)) is allowed
            gate.opened.set()


@pytest.mark.spec("RUN-04")
async def test_one_that_is_moved_to_the_background_leaves_the_others_waited_for(tmp_path: Path) -> None:
    slow, other = Gate("Slow"), Gate("Other")
    model = cast(
        lead=[[agent("slow", "c1"), agent("other", "c2")], "end", "heard"],
        slow=[use("Slow"), "slow but done"],
        other=[use("Other"), "the other part"],
    )
    async with opened(tmp_path, model, tools=[slow.tool, other.tool]) as session:
        turn = asyncio.create_task(_drain(session.run("lead")))
        await slow.wait()
        await other.wait()
        (one,) = [each.agent for each in session.parts.crew.agents() if each.description == "slow"]
        assert session.move_to_background(one) == (one,)
        other.opened.set()
        await turn
        moved, waited_for = map(result_text, results(session.agent.conversation.messages))
        slow.opened.set()
    assert "goes on in the background" in moved
    assert waited_for.startswith("the other part")
    assert only(AgentMoved, recorded(session)).agent == one


@pytest.mark.spec("RUN-14", "RUN-04")
async def test_with_no_seconds_set_an_agent_is_waited_for_however_long_it_takes(tmp_path: Path) -> None:
    clock, gate = FakeClock(), Gate()
    model = cast(lead=[agent("slow", "c1"), last_result], slow=[use("Gate"), "slow but done"])
    settings = json.dumps({"shoal": {"auto_background": 0}})
    async with opened(
        tmp_path, model, tools=[gate.tool], settings=settings, clock=clock, persist=False
    ) as session:
        turn = asyncio.create_task(_drain(session.run("lead")))
        await gate.wait()
        await clock.advance(1_000_000)
        gate.opened.set()
        finished: Finished
        *_, finished = await turn
    assert finished.text.startswith("slow but done")
    assert not [event for event in recorded(session) if isinstance(event, AgentMoved)]


@pytest.mark.spec("RUN-06", "RUN-12")
async def test_an_interrupt_ends_the_agent_that_was_waited_for_and_no_other(
    tmp_path: Path,
) -> None:
    waited, apart = Gate("Waited"), Gate("Apart")
    model = cast(
        lead=[[agent("apart", "c1", run_in_background=True), agent("waited", "c2")], "end"],
        apart=[use("Apart"), "still here"],
        waited=[["so far so good", use("Waited")], "never said"],
    )
    async with opened(tmp_path, model, tools=[waited.tool, apart.tool]) as session:
        turn = asyncio.create_task(_drain(session.run("lead")))
        await waited.wait()
        await apart.wait()
        assert await session.interrupt()
        events = await turn
        assert events[-1].reason == "interrupted"
        states = {each.description: each.status for each in session.parts.crew.agents()}
        assert states == {"apart": "running", "waited": "killed"}
        apart.opened.set()
        woken = await session.next_turn()
        assert woken is not None
        await _drain(woken)
    assert "still here" in session.agent.conversation.messages[-2].text
    assert "so far so good" not in str(session.agent.conversation.messages), "no partial result"


@pytest.mark.spec("RUN-08", "RUN-12")
async def test_a_failure_after_some_words_returns_them_and_one_without_is_an_error(tmp_path: Path) -> None:
    from shoal.core.errors import BadRequest

    def breaks(_: Request) -> str:
        raise RuntimeError("it breaks here")

    look = use("Glob", pattern="*")
    model = cast(
        lead=[[agent("partly", "c1"), agent("broken", "c2"), agent("mute", "c3")], "end"],
        partly=[["half of it", look], BadRequest("no more")],
        broken=[["a third of it", look], breaks],
        mute=[BadRequest("never")],
    )
    async with opened(tmp_path, model) as session:
        await all_turns(session)
        *partial, mute = results(session.agent.conversation.messages)
    said = (("no more", "half of it"), ("it breaks here", "a third of it"))
    for result, (error, words) in zip(partial, said, strict=True):
        assert error in result_text(result)
        assert words in result_text(result)
        assert not result.is_error
    assert "never" in result_text(mute)
    assert mute.is_error
    calls = {"c1", "c2", "c3"}
    known = {e.agent: e.call for e in recorded(session) if isinstance(e, AgentStarted)}
    for event in recorded(session):
        if isinstance(event, AgentEnded):
            assert event.completion.status == "failed"
            calls.discard(known[event.agent])
        elif isinstance(event, ToolFinished):
            assert event.call not in calls, "the error is on the record before its call returns"
    assert not calls


@pytest.mark.spec("RUN-08")
async def test_a_failure_in_the_background_is_announced_with_its_error_and_what_was_said(
    tmp_path: Path,
) -> None:
    from shoal.core.errors import BadRequest

    model = cast(
        lead=[
            agent("child", "c1", run_in_background=True),
            "wait",
            lambda request: request.messages[-1].text,
        ],
        child=[["half of it", use("Glob", pattern="*")], BadRequest("no more")],
    )
    async with opened(tmp_path, model) as session:
        notice = await all_turns(session)
    assert "<status>failed</status>" in notice
    assert 'Agent "child" (general-purpose) failed: no more.' in notice
    assert "<result>half of it</result>" in notice


def started_id(request: Request) -> str:
    """The id of the agent that the conversation's first call started."""
    first = result_text(results(list(request.messages))[0])
    return first.partition("agentId: ")[2].split()[0].rstrip(",")


@pytest.mark.spec("CTL-06", "RUN-08")
async def test_a_stopped_agent_is_announced_with_what_it_had_said(tmp_path: Path) -> None:
    gate = Gate()
    model = cast(
        lead=[
            agent("slow", "c1", run_in_background=True),
            use("Until"),
            lambda request: use("TaskStop", "s1", task_id=started_id(request)),
            lambda request: request.messages[-1].text,
            lambda request: use("TaskStop", "s2", task_id=started_id(request)),
            last_result,
        ],
        slow=[["so far so good", use("Gate")], "never"],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until]) as session:
        notice = await all_turns(session)
        again = await all_turns(session, "stop it again")
    assert only(AgentEnded, recorded(session)).completion.status == "killed"
    assert "<status>killed</status>" in notice
    assert "so far so good" in notice
    assert again.endswith("is not running: it was stopped.")


@pytest.mark.spec("CTL-01", "RUN-10")
async def test_a_message_to_an_agent_at_work_is_heard_at_its_next_step(tmp_path: Path) -> None:
    gate = Gate()

    def heard(request: Request) -> str:
        return f"heard: {request.messages[-1].text}"

    model = cast(
        lead=[
            agent("slow", "c1", run_in_background=True, name="scout"),
            use("Until"),
            use("SendMessage", "m1", to="scout", message="look in lib too", summary="one more place"),
            use("Open"),
            "waiting",
            lambda request: request.messages[-1].text,
        ],
        slow=[use("Gate"), heard, "heard too late"],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until, gate.open]) as session:
        notice = await all_turns(session)
    assert 'heard: <\\teammate-message teammate_id="lead" summary="one more place">' in notice
    assert "look in lib too" in notice
    assert gate.calls == 1


@pytest.mark.spec("CTL-02", "CTL-09", "AGT-10", "TRN-02")
@pytest.mark.parametrize("how", ["known", "on disk", "in memory"])
async def test_a_message_to_an_agent_that_ended_resumes_it_with_all_it_knew(tmp_path: Path, how: str) -> None:
    def knows(request: Request) -> str:
        return " | ".join(message.text for message in request.messages)

    first: list[Any] = [agent("child remember 42", "c1", name="elephant", run_in_background=True), "wait"]
    again = use("SendMessage", "m1", to="elephant", message="what was it?", summary="the number")
    child = ["42, noted", knows]
    script: list[str | ToolUse | Callable[[Request], str]]
    script = [*first, "noted", again, "wait", lambda request: request.messages[-1].text]
    options = {"persist": how != "in memory"}
    async with opened(tmp_path, cast(lead=script, child=child), **options) as session:
        await all_turns(session)
        if how != "on disk":
            notice = await all_turns(session, "ask it again")
    if how == "on disk":
        resumed = cast(lead=script, child=child)
        async with opened(tmp_path, resumed, resume=session.id) as session:
            notice = await all_turns(session, "ask it again")
    assert "child remember 42 | 42, noted | <\\teammate-message" in notice
    starts = [event for event in recorded(session) if isinstance(event, AgentStarted)]
    assert [event.resumed for event in starts] == [False, True]
    assert len({event.agent for event in starts}) == 1
    answer = result_text(results(session.agent.conversation.messages)[-1])
    output = [event.completion.output for event in recorded(session) if isinstance(event, AgentEnded)][-1]
    assert f"its output is in {output}." in answer


async def test_an_agent_in_memory_whose_words_no_file_could_hold_is_resumed_with_them(tmp_path: Path) -> None:
    first = [agent("child remember", "c1", name="elephant", run_in_background=True), "wait"]
    again = use("SendMessage", "m1", to="elephant", message="what was it?", summary="the word")
    said: list[str] = []

    def remembers(request: Request) -> str:
        said.extend(message.text for message in request.messages)
        return "that"

    model = cast(lead=[*first, "noted", again, "wait", "heard"], child=["half \ud83d of it", remembers])
    async with opened(tmp_path, model, persist=False) as session:
        await all_turns(session)
        await all_turns(session, "ask it again")
    assert "half \ud83d of it" in said


def test_an_agent_in_memory_that_said_what_is_nested_too_deeply_is_put_away_all_the_same() -> None:
    clock, ids = FakeClock(), Ids(1)
    deep: dict[str, Any] = {}
    for _ in range(2 * sys.getrecursionlimit()):
        deep = {"in": deep}
    said = [Message(role="assistant", content=(use("Nothing", "n1", **deep),))]
    talk = Conversation(NoTranscript(), clock, ids, messages=said)
    files = AgentFiles(None, durable=False, clock=clock, ids=ids)
    files.put_away(AgentId("a1"), Remembered(agent_type="general-purpose"), talk)


@pytest.mark.spec("CTL-02", "SND-03", "USR-04")
async def test_a_message_to_a_stranger_and_to_an_agent_without_transcript_is_refused(tmp_path: Path) -> None:
    def transcripts() -> list[Path]:
        return list(Path(os.environ["SHOAL_HOME"]).glob("projects/*/*/subagents/*.jsonl"))

    def ask(request: Request) -> Any:
        for path in transcripts():
            path.unlink()
        return use("SendMessage", "m2", to=started_id(request), message="hi", summary="hi")

    model = cast(
        lead=[
            agent("child", "c1"),
            use("SendMessage", "m1", to="nobody", message="hi", summary="hi"),
            ask,
            "end",
        ],
        child=["done"],
    )
    async with opened(tmp_path, model) as session:
        await all_turns(session)
        _, stranger, gone = results(session.agent.conversation.messages)
    assert stranger.is_error
    assert "There is no agent 'nobody'" in result_text(stranger)
    assert gone.is_error
    assert "no transcript" in result_text(gone)


@pytest.mark.spec("CTL-04")
async def test_a_message_without_a_summary_is_refused(tmp_path: Path) -> None:
    model = cast(lead=[use("SendMessage", "m1", to="lead", message="hi"), last_result])
    async with opened(tmp_path, model) as session:
        assert "needs a summary" in await all_turns(session)


@pytest.mark.spec("CTL-05", "QUE-05")
async def test_who_waits_for_the_end_is_not_told_of_it_again(tmp_path: Path) -> None:
    gate = Gate()
    model = cast(
        lead=[
            agent("slow", "c1", run_in_background=True),
            lambda request: use("TaskOutput", "t1", task_id=started_id(request), block=False),
            use("Open"),
            lambda request: use("TaskOutput", "t2", task_id=started_id(request)),
            "end",
        ],
        slow=[use("Gate"), "the end of it"],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.open]) as session:
        await all_turns(session)
        shown = [result_text(result) for result in results(session.agent.conversation.messages)]
    assert shown[1].startswith("status: running")
    assert shown[3].startswith("status: completed")
    assert "the end of it" in shown[3]
    notified = only(Notified, recorded(session))
    assert notified.call == "t2"
    assert "<task-notification>" not in str(session.agent.conversation.messages)


@pytest.mark.spec("QUE-05", "CTL-05")
async def test_an_end_that_was_waited_for_is_not_told_again_when_it_takes_long_to_clear_up(
    tmp_path: Path,
) -> None:
    gate = Gate()
    # It leaves a command that has to be ended: until that is gone, its end is known and not announced.
    leaves = use("Bash", "b1", command="sleep 600", run_in_background=True)
    model = cast(
        lead=[
            agent("slow", "c1", run_in_background=True),
            use("Until"),
            use("Open"),
            lambda request: use("TaskOutput", "t1", task_id=started_id(request)),
            "end",
        ],
        slow=[leaves, use("Gate"), "the end of it"],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until, gate.open]) as session:
        await all_turns(session)
        looks = [result_text(result) for result in results(session.agent.conversation.messages)]
    assert "the end of it" in looks[-1]
    assert only(Notified, recorded(session)).call == "t1"
    assert "<task-notification>" not in str(session.agent.conversation.messages)


@pytest.mark.spec("USR-02", "USR-10")
async def test_a_long_report_is_kept_whole_and_enters_the_conversation_in_part(
    tmp_path: Path,
) -> None:
    whole = "".join(f"line {n} ----------------------------------------\n" for n in range(10_000))
    model = cast(lead=[agent("child", "c1", run_in_background=True), "wait", "got it"], child=[whole])
    async with opened(tmp_path, model) as session:
        await all_turns(session)
        notice = next(m.text for m in session.agent.conversation.messages if "<task-notification>" in m.text)
    done = only(AgentEnded, recorded(session)).completion
    assert Path(done.result).read_text() == whole
    assert done.size == len(whole) > 450_000
    assert f"{len(whole):,} characters" in notice
    assert done.result in notice
    assert done.digest[:16] in notice
    assert len(notice) <= 4_000 + 500


@pytest.mark.spec("DEF-09")
async def test_a_turn_limit_of_the_definition_ends_it_with_a_clear_result(tmp_path: Path) -> None:
    agents = {"short": {"description": "d", "prompt": "p", "maxTurns": 2, "initialPrompt": "First of all:"}}
    seen: list[str] = []

    def again(request: Request) -> Any:
        seen.append(request.messages[0].text)
        return use("Glob", pattern="*")

    model = cast(lead=[agent("child", "c1", subagent_type="short"), last_result], First=[again])
    async with opened(tmp_path, model, agents=agents) as session:
        text = await all_turns(session)
    assert "it reached its turn limit of 2" in text
    assert seen == ["First of all:\nchild"] * 2


@pytest.mark.spec("AGT-04", "AGT-08", "USR-13")
@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            {"subagent_type": "Explorer"},
            "Is Explore meant? There are: lame, Bash, Explore, Plan, general-purpose, shoal-guide, ",
        ),
        ({"subagent_type": "lame"}, "NoSuchTool"),
        ({"model": "nobody:nothing"}, "nobody"),
        ({"isolation": "remote"}, "none is configured"),
        ({"isolation": "worktree", "cwd": "/"}, "cwd"),
        ({"effort": "heroic"}, "heroic"),
    ],
)
async def test_what_cannot_be_had_fails_the_spawn_and_is_named(
    tmp_path: Path, more: dict[str, Any], why: str
) -> None:
    agents = {"lame": {"description": "d", "prompt": "p", "tools": ["Read", "NoSuchTool"]}}
    model = cast(lead=[agent("child", "c1", **more), "end"], child=["never"])
    async with opened(tmp_path, model, agents=agents) as session:
        await all_turns(session)
        (result,) = results(session.agent.conversation.messages)
    assert result.is_error
    assert why in result_text(result)
    assert not [event for event in recorded(session) if isinstance(event, AgentStarted)]


@pytest.mark.spec("AGT-04", "PRM-08")
async def test_a_denied_kind_of_agent_names_the_rule(tmp_path: Path) -> None:
    model = cast(
        lead=[agent("child", "c1", subagent_type="Explore"), agent("child", "c2"), "end"], child=["ok"]
    )
    async with opened(tmp_path, model, disallowed_tools=["Agent(Explore)"]) as session:
        await all_turns(session)
        denied, allowed = results(session.agent.conversation.messages)
    assert denied.is_error
    assert "Agent(Explore)" in result_text(denied)
    assert result_text(allowed).startswith("ok")


@pytest.mark.spec("USR-01")
async def test_agents_start_agents_only_as_deep_and_as_many_as_the_caps_say(tmp_path: Path) -> None:
    model = cast(
        lead=[agent("one", "c1"), last_result],
        one=[agent("two", "c2"), last_result],
        two=[agent("three", "c3"), last_result],
        three=[agent("four", "c4"), last_result],
        four=["too deep"],
    )
    async with opened(tmp_path, model) as session:
        text = await all_turns(session)
    assert "agents may start agents to a depth of 3, not 4" in text
    assert [event.depth for event in recorded(session) if isinstance(event, AgentStarted)] == [1, 2, 3]


@pytest.mark.spec("USR-01")
@pytest.mark.parametrize("wanted", [True, False])
async def test_many_agents_of_one_message_are_asked_about_first_with_what_they_cost(
    tmp_path: Path, wanted: bool
) -> None:
    calls = [agent(f"child {n}", f"c{n}") for n in range(4)]
    model = cast(lead=[calls, "end"], child=["ok"])
    settings = json.dumps({"shoal": {"fan_out_preview": 3}})
    async with opened(tmp_path, model, attended=True, settings=settings) as session:
        turn = asyncio.create_task(_drain(session.run("lead")))
        async for question in session.parts.desk.incoming():
            session.parts.desk.answer(question.id, Allowed() if wanted else Denied(reason="two will do."))
            break
        await turn
        answers = [result_text(result) for result in results(session.agent.conversation.messages)]
    assert isinstance(question, MayRun)
    assert "it would start 4 agents at once, about $0.00 in all" in question.reason
    asked = [event for event in recorded(session) if isinstance(event, Asked)]
    assert len(asked) == 1, "one question for all of them"
    started = [event for event in recorded(session) if isinstance(event, AgentStarted)]
    assert len(started) == (4 if wanted else 0)
    assert all(("ok" if wanted else "two will do.") in answer for answer in answers)


@pytest.mark.spec("DEF-05", "AGT-07", "PRM-08", "USR-13", "USR-05")
async def test_a_definition_decides_which_tools_there_are_and_which_calls_may_run(
    tmp_path: Path,
) -> None:
    agents = {
        "narrow": {
            "description": "d",
            "prompt": "p",
            "tools": ["Bash(echo:*)", "Read", "Glob"],
            "disallowedTools": ["Glob", "Bash(echo secret:*)"],
        }
    }
    model = cast(
        lead=[agent("child", "c1", subagent_type="narrow"), "end"],
        child=[
            [
                use("Bash", "b1", command="echo fine"),
                use("Bash", "b2", command="date"),
                use("Bash", "b3", command="echo secret"),
                use("Glob", "g1", pattern="*"),
            ],
            lambda request: "\n--\n".join(result_text(result) for result in results(list(request.messages))),
        ],
    )
    async with opened(tmp_path, model, agents=agents) as session:
        await all_turns(session)
        report = result_text(results(session.agent.conversation.messages)[0])
    fine, date, secret, glob = report.split("\n--\n")
    assert fine == "fine"
    assert "its definition gives it Bash only as Bash(echo:*)" in date
    assert "the rule Bash(echo secret:*) (its definition) forbids it" in secret
    assert "There is no tool named 'Glob'" in glob
    assert only(AgentStarted, recorded(session)).tools == ("Read", "Bash")


@pytest.mark.spec("USR-24")
@pytest.mark.parametrize("mends", [True, False])
async def test_work_with_an_acceptance_command_is_done_only_when_the_runtime_saw_it_pass(
    tmp_path: Path, mends: bool
) -> None:
    agents = {
        "careful": {
            "description": "d",
            "prompt": "p",
            "acceptance": "test -e done.txt || (echo missing; exit 4)",
        }
    }
    told: list[str] = []

    def second(request: Request) -> Any:
        told.append(request.messages[-1].text)
        return use("Write", file_path="done.txt", content="") if mends else "I insist"

    model = cast(
        lead=[agent("child", "c1", subagent_type="careful"), "end"],
        child=["it is done", second, "now it is", "now it is"],
    )
    async with opened(tmp_path, model, agents=agents) as session:
        await all_turns(session)
    done = only(AgentEnded, recorded(session)).completion
    assert "ended with 4" in told[0]
    assert "missing" in told[0]
    assert done.status == ("completed" if mends else "failed")
    assert done.evidence.acceptance is not None
    assert done.evidence.acceptance.exit_code == (0 if mends else 4)


@pytest.mark.spec("USR-24")
async def test_a_task_with_an_acceptance_command_is_completed_only_when_it_passes(tmp_path: Path) -> None:
    accepted = {"acceptance": "test -e made.txt"}
    model = cast(
        lead=[
            use("TaskCreate", "1", subject="make it", description="d", metadata=accepted),
            use("TaskUpdate", "2", taskId="1", status="completed"),
            use("Write", "3", file_path="made.txt", content=""),
            use("TaskUpdate", "4", taskId="1", status="completed"),
            "end",
        ]
    )
    async with opened(tmp_path, model) as session:
        await all_turns(session)
        _, early, _, late = results(session.agent.conversation.messages)
    assert early.is_error
    assert "its acceptance command `test -e made.txt` ended with 1" in result_text(early)
    assert not late.is_error


@pytest.mark.spec("TSK-13")
async def test_the_agents_of_a_session_without_a_team_share_its_board(tmp_path: Path) -> None:
    model = cast(
        lead=[use("TaskCreate", subject="make it", description="d"), agent("child"), use("TaskList"), "end"],
        child=[use("TaskUpdate", taskId="1", status="completed"), "done"],
    )
    async with opened(tmp_path, model) as session:
        await all_turns(session)
        assert result_text(results(session.agent.conversation.messages)[-1]) == "#1 completed: make it"
    (board,) = (Path(os.environ["SHOAL_HOME"]) / "tasks").iterdir()
    assert board.name == session.id


@pytest.mark.spec("AGT-07")
async def test_who_resumes_an_agent_does_not_widen_what_it_was_held_to(tmp_path: Path) -> None:
    agents = {
        "narrow": {"description": "d", "prompt": "p", "tools": ["Bash(echo:*)", "Agent"]},
        "below": {
            "description": "d",
            "prompt": "p",
            "tools": ["Bash"],
            "disallowedTools": ["Bash(echo no:*)"],
        },
    }
    tries = [use("Bash", "b1", command="date"), use("Bash", "b2", command="echo no")]
    model = cast(
        lead=[
            agent("middle", "c1", subagent_type="narrow"),
            use("SendMessage", "m1", to="deep", message="again", summary="again"),
            "wait",
            "end",
        ],
        middle=[agent("leaf", "c2", subagent_type="below", name="deep"), "done"],
        leaf=["first", tries, lambda request: " | ".join(map(result_text, results(list(request.messages))))],
    )
    async with opened(tmp_path, model, agents=agents) as session:
        await all_turns(session)
    last = [event.completion for event in recorded(session) if isinstance(event, AgentEnded)][-1]
    assert last.name == "deep"
    assert "its definition gives it Bash only as Bash(echo:*)" in last.text
    assert "the rule Bash(echo no:*) (its definition) forbids it" in last.text


@pytest.mark.spec("RUN-14")
async def test_where_nothing_runs_in_the_background_no_agent_is_resumed(
    tmp_path: Path,
) -> None:
    model = cast(
        lead=[
            agent("child", "c1", name="once"),
            use("SendMessage", "m1", to="once", message="more", summary="more"),
            last_result,
        ],
        child=["done"],
    )
    settings = json.dumps({"shoal": {"background_agents": False}})
    async with opened(tmp_path, model, settings=settings) as session:
        assert "which is off here" in await all_turns(session)
