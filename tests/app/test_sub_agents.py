"""Sub-agents that a lead starts, waits for and is notified of, through the public API."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from app_session_helpers import find_event, get_started_agent_id

from agent_scripts import ToolGate, call_tool, read_events, run_all_turns, script_agents, spawn_agent
from session_helpers import (
    collect_events,
    find_tool_results,
    get_last_result,
    list_lead_results,
    open_session,
)
from shoal.core.conversation.messages import ToolUseBlock, extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import (
    AgentEnded,
    AgentMovedToBackground,
    AgentStarted,
    NotificationDelivered,
    QuestionAsked,
    RunFinished,
    ToolFinished,
    ToolProgressed,
    TurnStarted,
)
from shoal.core.permissions.questions import AllowAnswer, DenyAnswer, PermissionQuestion
from shoal.testing import FakeClock


@pytest.mark.spec("AGT-09", "AGT-12", "AGT-13", "CTL-07", "RUN-03", "QUE-07")
async def test_a_foreground_agent_returns_one_result_with_its_usage(tmp_path: Path) -> None:
    requests: list[tuple[str, list[str]]] = []

    def child(request: ModelRequest) -> str:
        requests.append((request.system, [message.text for message in request.messages]))
        return "it is in main.py:7"

    model = script_agents(lead=[spawn_agent("child where is it?", "c1"), get_last_result], child=[child])
    async with open_session(tmp_path, model) as session:
        text = await run_all_turns(session)
    events = read_events(session)
    ended = find_event(AgentEnded, events).completion
    assert text.startswith("it is in main.py:7\n\nagentId: " + ended.agent)
    assert Path(ended.output).read_text().startswith("it is in main.py:7\n")
    assert f"<usage>total_tokens: {ended.usage.total_tokens}\ntool_uses: 0\nduration_ms: " in text
    # Its own system prompt and the prompt are all it starts with, and its result is no message of the queue.
    ((system, texts),) = requests
    assert texts == ["child where is it?"]
    assert "You carry out one task for another agent" in system
    assert session.agent.system.splitlines()[0] not in system
    assert not [event for event in events if isinstance(event, NotificationDelivered)]


@pytest.mark.spec("RUN-03")
async def test_tool_calls_of_a_foreground_agent_are_reported_as_progress_of_its_call(tmp_path: Path) -> None:
    look = call_tool("Glob", "g1", pattern="*.py")
    model = script_agents(lead=[spawn_agent("child", "c1"), "end"], child=[look, "found"])
    async with open_session(tmp_path, model) as session:
        events = await collect_events(session.run("lead"))
    reported = find_event(ToolProgressed, events)
    assert (reported.agent, reported.call, reported.text) == ("lead", "c1", "Glob *.py")


@pytest.mark.spec("AGT-09")
async def test_a_one_shot_result_has_no_trailer_and_an_empty_report_gets_a_placeholder(
    tmp_path: Path,
) -> None:
    model = script_agents(
        lead=[
            [spawn_agent("quiet", "c1"), spawn_agent("look", "c2", subagent_type="Explore")],
            lambda r: "end",
        ],
        quiet=[""],
        look=["found"],
    )
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
        quiet, look = map(extract_tool_result_text, find_tool_results(session.agent.conversation.messages))
    assert quiet.startswith("(The agent ended without a report.)")
    assert look == "found"


@pytest.mark.spec("AGT-01", "RUN-02")
async def test_agents_of_one_message_run_concurrently(tmp_path: Path) -> None:
    first, second = ToolGate("First"), ToolGate("Second")
    model = script_agents(
        lead=[[spawn_agent("one", "c1"), spawn_agent("two", "c2")], "end"],
        one=[call_tool("First"), "1"],
        two=[call_tool("Second"), "2"],
    )
    async with open_session(tmp_path, model, tools=[first.tool, second.tool]) as session:
        turn = session.run("lead")
        received = asyncio.create_task(collect_events(turn))
        await first.wait_until_reached()
        await second.wait_until_reached()
        first.is_open.set()
        second.is_open.set()
        await received
        assert [
            extract_tool_result_text(r)[0] for r in find_tool_results(session.agent.conversation.messages)
        ] == ["1", "2"]


@pytest.mark.spec("QUE-01", "QUE-03", "QUE-04", "QUE-05", "QUE-07", "AGT-09", "RUN-11")
async def test_a_finished_background_agent_is_announced_once(tmp_path: Path) -> None:
    returned: list[str] = []

    def record_launch(request: ModelRequest) -> str:
        returned.append(get_last_result(request))
        return "started"

    model = script_agents(
        lead=[
            spawn_agent("child do it", "c1", run_in_background=True),
            record_launch,
            lambda r: r.messages[-1].text,
        ],
        child=[call_tool("Bash", "b1", command="echo hi"), "all done"],
    )
    async with open_session(tmp_path, model) as session:
        notice = await run_all_turns(session)
        launched = list_lead_results(session)[0]
    events = read_events(session)
    ended = find_event(AgentEnded, events).completion
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
    assert find_event(NotificationDelivered, events).completion == ended.id
    assert sum(isinstance(event, TurnStarted) for event in events) == 2
    assert Path(ended.output).read_text().startswith("· Bash echo hi\n")


@pytest.mark.spec("QUE-02", "QUE-06")
async def test_user_input_comes_before_an_earlier_agent_notification(tmp_path: Path) -> None:
    model = script_agents(
        lead=[spawn_agent("child", "c1", run_in_background=True), "started", "heard"], child=["done"]
    )
    async with open_session(tmp_path, model) as session:
        await collect_events(session.run("lead"))
        await session.wait_agents_idle()
        session.steer("one more thing")
        turn = await session.next_turn()
        assert turn is not None
        await collect_events(turn)
        *_, received, _ = session.agent.conversation.messages
    assert received.text.index("one more thing") < received.text.index("<task-notification>")


@pytest.mark.spec("USR-24")
async def test_an_agent_result_lists_observed_changes_and_flags_unverified_claims(tmp_path: Path) -> None:
    model = script_agents(
        lead=[[spawn_agent("busy", "c1"), spawn_agent("talker", "c2")], "end"],
        busy=[
            call_tool("Write", "w1", file_path="a.txt", content="a"),
            call_tool("Bash", "b1", command="exit 3"),
            "wrote it",
        ],
        talker=["I did everything"],
    )
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
        texts = list_lead_results(session)
    evidence = {
        e.completion.description: e.completion.evidence
        for e in read_events(session)
        if isinstance(e, AgentEnded)
    }
    assert evidence["busy"].tool_calls == 2
    assert evidence["busy"].failed_calls == 1
    assert [Path(file).name for file in evidence["busy"].files] == ["a.txt"]
    assert [ran.exit_code for ran in evidence["busy"].commands] == [3]
    assert "It made no tool calls" in texts[1]
    assert "It made no tool calls" not in texts[0]


@pytest.mark.spec("RUN-04")
async def test_a_slow_agent_moves_to_the_background_without_repeating_work(tmp_path: Path) -> None:
    clock, gate = FakeClock(), ToolGate()
    model = script_agents(
        lead=[spawn_agent("slow", "c1"), "go on", "heard"], slow=[call_tool("Gate"), "slow but done"]
    )
    async with open_session(tmp_path, model, tools=[gate.tool], clock=clock, persist=False) as session:
        turn = asyncio.create_task(collect_events(session.run("lead")))
        await gate.wait_until_reached()
        await clock.advance(121)
        async with asyncio.timeout(10):
            events = await turn
        assert "continues in the background" in list_lead_results(session)[0]
        assert isinstance(events[-1], RunFinished)
        gate.is_open.set()
        woken = await session.next_turn()
        assert woken is not None
        await collect_events(woken)
    assert gate.calls == 1
    moved, ended = (
        find_event(AgentMovedToBackground, read_events(session)),
        find_event(AgentEnded, read_events(session)),
    )
    assert moved.agent == ended.agent
    assert "slow but done" in session.agent.conversation.messages[-2].text


@pytest.mark.spec("RUN-04", "RUN-14")
async def test_a_user_can_move_an_agent_to_the_background_unless_a_setting_forbids_it(tmp_path: Path) -> None:
    for allowed in (True, False):
        gate = ToolGate()
        model = script_agents(lead=[spawn_agent("slow", "c1"), "go on"], slow=[call_tool("Gate"), "done"])
        settings = json.dumps({"shoal": {"background_agents": allowed}})
        async with open_session(tmp_path, model, tools=[gate.tool], settings=settings) as session:
            schema = session.agent.tools["Agent"].schema.input_schema["properties"]
            assert ("run_in_background" in schema) is allowed
            turn = asyncio.create_task(collect_events(session.run("lead")))
            await gate.wait_until_reached()
            moved = session.supervisor.move_to_background()
            assert len(moved) == allowed
            if not allowed:
                gate.is_open.set()
            await turn
            (result,) = find_tool_results(session.agent.conversation.messages)
            assert ("continues in the background" in extract_tool_result_text(result)) is allowed
            gate.is_open.set()


@pytest.mark.spec("RUN-04")
async def test_moving_one_agent_to_the_background_leaves_the_others_in_the_foreground(tmp_path: Path) -> None:
    slow, other = ToolGate("Slow"), ToolGate("Other")
    model = script_agents(
        lead=[[spawn_agent("slow", "c1"), spawn_agent("other", "c2")], "end", "heard"],
        slow=[call_tool("Slow"), "slow but done"],
        other=[call_tool("Other"), "the other part"],
    )
    async with open_session(tmp_path, model, tools=[slow.tool, other.tool]) as session:
        turn = asyncio.create_task(collect_events(session.run("lead")))
        await slow.wait_until_reached()
        await other.wait_until_reached()
        (one,) = [each.agent for each in session.supervisor.list_agents() if each.description == "slow"]
        assert session.move_to_background(one) == (one,)
        other.is_open.set()
        await turn
        moved, waited_for = map(
            extract_tool_result_text, find_tool_results(session.agent.conversation.messages)
        )
        slow.is_open.set()
    assert "continues in the background" in moved
    assert waited_for.startswith("the other part")
    assert find_event(AgentMovedToBackground, read_events(session)).agent == one


@pytest.mark.spec("RUN-14", "RUN-04")
async def test_without_a_time_limit_an_agent_stays_in_the_foreground(tmp_path: Path) -> None:
    clock, gate = FakeClock(), ToolGate()
    model = script_agents(
        lead=[spawn_agent("slow", "c1"), get_last_result], slow=[call_tool("Gate"), "slow but done"]
    )
    settings = json.dumps({"shoal": {"auto_background": 0}})
    async with open_session(
        tmp_path, model, tools=[gate.tool], settings=settings, clock=clock, persist=False
    ) as session:
        turn = asyncio.create_task(collect_events(session.run("lead")))
        await gate.wait_until_reached()
        await clock.advance(1_000_000)
        gate.is_open.set()
        finished: RunFinished
        *_, finished = await turn
    assert finished.text.startswith("slow but done")
    assert not [event for event in read_events(session) if isinstance(event, AgentMovedToBackground)]


@pytest.mark.spec("RUN-06", "RUN-12")
async def test_an_interrupt_stops_only_the_foreground_agent(
    tmp_path: Path,
) -> None:
    waited, apart = ToolGate("Waited"), ToolGate("Apart")
    model = script_agents(
        lead=[[spawn_agent("apart", "c1", run_in_background=True), spawn_agent("waited", "c2")], "end"],
        apart=[call_tool("Apart"), "still here"],
        waited=[["so far so good", call_tool("Waited")], "never said"],
    )
    async with open_session(tmp_path, model, tools=[waited.tool, apart.tool]) as session:
        turn = asyncio.create_task(collect_events(session.run("lead")))
        await waited.wait_until_reached()
        await apart.wait_until_reached()
        assert await session.interrupt()
        events = await turn
        assert events[-1].reason == "interrupted"
        states = {each.description: each.status for each in session.supervisor.list_agents()}
        assert states == {"apart": "running", "waited": "killed"}
        apart.is_open.set()
        woken = await session.next_turn()
        assert woken is not None
        await collect_events(woken)
    assert "still here" in session.agent.conversation.messages[-2].text
    assert "so far so good" not in str(session.agent.conversation.messages), "no partial result"


@pytest.mark.spec("RUN-08", "RUN-12")
async def test_a_failed_agent_returns_its_partial_text_or_an_error(tmp_path: Path) -> None:
    from shoal.core.errors import BadRequest

    def raise_error(_: ModelRequest) -> str:
        raise RuntimeError("it breaks here")

    look = call_tool("Glob", pattern="*")
    model = script_agents(
        lead=[[spawn_agent("partly", "c1"), spawn_agent("broken", "c2"), spawn_agent("mute", "c3")], "end"],
        partly=[["half of it", look], BadRequest("no more")],
        broken=[["a third of it", look], raise_error],
        mute=[BadRequest("never")],
    )
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
        *partial, mute = find_tool_results(session.agent.conversation.messages)
    expected_texts = (("no more", "half of it"), ("it breaks here", "a third of it"))
    for result, (error, words) in zip(partial, expected_texts, strict=True):
        assert error in extract_tool_result_text(result)
        assert words in extract_tool_result_text(result)
        assert not result.is_error
    assert "never" in extract_tool_result_text(mute)
    assert mute.is_error
    calls = {"c1", "c2", "c3"}
    known = {e.agent: e.call for e in read_events(session) if isinstance(e, AgentStarted)}
    for event in read_events(session):
        if isinstance(event, AgentEnded):
            assert event.completion.status == "failed"
            calls.discard(known[event.agent])
        elif isinstance(event, ToolFinished):
            assert event.call not in calls, "the error is on the record before its call returns"
    assert not calls


@pytest.mark.spec("RUN-08")
async def test_a_background_failure_is_announced_with_its_error_and_partial_text(
    tmp_path: Path,
) -> None:
    from shoal.core.errors import BadRequest

    model = script_agents(
        lead=[
            spawn_agent("child", "c1", run_in_background=True),
            "wait",
            lambda request: request.messages[-1].text,
        ],
        child=[["half of it", call_tool("Glob", pattern="*")], BadRequest("no more")],
    )
    async with open_session(tmp_path, model) as session:
        notice = await run_all_turns(session)
    assert "<status>failed</status>" in notice
    assert 'Agent "child" (general-purpose) failed: no more.' in notice
    assert "<result>half of it</result>" in notice


@pytest.mark.spec("CTL-06", "RUN-08")
async def test_a_stopped_agent_is_announced_with_its_partial_text(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[
            spawn_agent("slow", "c1", run_in_background=True),
            call_tool("Until"),
            lambda request: call_tool("TaskStop", "s1", task_id=get_started_agent_id(request)),
            lambda request: request.messages[-1].text,
            lambda request: call_tool("TaskStop", "s2", task_id=get_started_agent_id(request)),
            get_last_result,
        ],
        slow=[["so far so good", call_tool("Gate")], "never"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool]) as session:
        notice = await run_all_turns(session)
        again = await run_all_turns(session, "stop it again")
    assert find_event(AgentEnded, read_events(session)).completion.status == "killed"
    assert "<status>killed</status>" in notice
    assert "so far so good" in notice
    assert again.endswith("is not running: it was stopped.")


@pytest.mark.spec("CTL-01", "RUN-10")
async def test_a_message_to_a_working_agent_is_read_at_its_next_step(tmp_path: Path) -> None:
    gate = ToolGate()

    def quote_last_message(request: ModelRequest) -> str:
        return f"heard: {request.messages[-1].text}"

    model = script_agents(
        lead=[
            spawn_agent("slow", "c1", run_in_background=True, name="scout"),
            call_tool("Until"),
            call_tool("SendMessage", "m1", to="scout", message="look in lib too", summary="one more place"),
            call_tool("Open"),
            "waiting",
            lambda request: request.messages[-1].text,
        ],
        slow=[call_tool("Gate"), quote_last_message, "heard too late"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool, gate.open_tool]) as session:
        notice = await run_all_turns(session)
    assert 'heard: <\\teammate-message teammate_id="lead" summary="one more place">' in notice
    assert "look in lib too" in notice
    assert gate.calls == 1


@pytest.mark.spec("CTL-02", "CTL-09", "AGT-10", "TRN-02")
@pytest.mark.parametrize("how", ["known", "on disk", "in memory"])
async def test_a_message_to_a_finished_agent_resumes_it_with_its_conversation(
    tmp_path: Path, how: str
) -> None:
    def join_messages(request: ModelRequest) -> str:
        return " | ".join(message.text for message in request.messages)

    first: list[Any] = [
        spawn_agent("child remember 42", "c1", name="elephant", run_in_background=True),
        "wait",
    ]
    again = call_tool("SendMessage", "m1", to="elephant", message="what was it?", summary="the number")
    child = ["42, noted", join_messages]
    script: list[str | ToolUseBlock | Callable[[ModelRequest], str]]
    script = [*first, "noted", again, "wait", lambda request: request.messages[-1].text]
    options = {"persist": how != "in memory"}
    async with open_session(tmp_path, script_agents(lead=script, child=child), **options) as session:
        await run_all_turns(session)
        if how != "on disk":
            notice = await run_all_turns(session, "ask it again")
    if how == "on disk":
        resumed = script_agents(lead=script, child=child)
        async with open_session(tmp_path, resumed, resume=session.id) as session:
            notice = await run_all_turns(session, "ask it again")
    assert "child remember 42 | 42, noted | <\\teammate-message" in notice
    starts = [event for event in read_events(session) if isinstance(event, AgentStarted)]
    assert [event.resumed for event in starts] == [False, True]
    assert len({event.agent for event in starts}) == 1
    answer = list_lead_results(session)[-1]
    output = [event.completion.output for event in read_events(session) if isinstance(event, AgentEnded)][-1]
    assert f"its output is in {output}." in answer


async def test_an_in_memory_agent_is_resumed_with_text_that_cannot_be_encoded_in_a_file(
    tmp_path: Path,
) -> None:
    first = [spawn_agent("child remember", "c1", name="elephant", run_in_background=True), "wait"]
    again = call_tool("SendMessage", "m1", to="elephant", message="what was it?", summary="the word")
    texts: list[str] = []

    def record_messages(request: ModelRequest) -> str:
        texts.extend(message.text for message in request.messages)
        return "that"

    model = script_agents(
        lead=[*first, "noted", again, "wait", "heard"], child=["half \ud83d of it", record_messages]
    )
    async with open_session(tmp_path, model, persist=False) as session:
        await run_all_turns(session)
        await run_all_turns(session, "ask it again")
    assert "half \ud83d of it" in texts


@pytest.mark.spec("CTL-02", "SND-03", "USR-04")
async def test_a_message_to_an_unknown_agent_or_one_without_transcript_is_refused(tmp_path: Path) -> None:
    def transcripts() -> list[Path]:
        return list(Path(os.environ["SHOAL_HOME"]).glob("projects/*/*/subagents/*.jsonl"))

    def ask(request: ModelRequest) -> Any:
        for path in transcripts():
            path.unlink()
        return call_tool("SendMessage", "m2", to=get_started_agent_id(request), message="hi", summary="hi")

    model = script_agents(
        lead=[
            spawn_agent("child", "c1"),
            call_tool("SendMessage", "m1", to="nobody", message="hi", summary="hi"),
            ask,
            "end",
        ],
        child=["done"],
    )
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
        _, stranger, gone = find_tool_results(session.agent.conversation.messages)
    assert stranger.is_error
    assert "There is no agent 'nobody'" in extract_tool_result_text(stranger)
    assert gone.is_error
    assert "no transcript" in extract_tool_result_text(gone)


@pytest.mark.spec("CTL-04")
async def test_a_message_without_a_summary_is_refused(tmp_path: Path) -> None:
    model = script_agents(lead=[call_tool("SendMessage", "m1", to="lead", message="hi"), get_last_result])
    async with open_session(tmp_path, model) as session:
        assert "summary is missing" in await run_all_turns(session)


@pytest.mark.spec("CTL-05", "QUE-05")
async def test_an_end_returned_to_a_waiter_is_not_announced_again(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[
            spawn_agent("slow", "c1", run_in_background=True),
            lambda request: call_tool("TaskOutput", "t1", task_id=get_started_agent_id(request), block=False),
            call_tool("Open"),
            lambda request: call_tool("TaskOutput", "t2", task_id=get_started_agent_id(request)),
            "end",
        ],
        slow=[call_tool("Gate"), "the end of it"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.open_tool]) as session:
        await run_all_turns(session)
        shown = list_lead_results(session)
    assert shown[1].startswith("status: running")
    assert shown[3].startswith("status: completed")
    assert "the end of it" in shown[3]
    notified = find_event(NotificationDelivered, read_events(session))
    assert notified.call == "t2"
    assert "<task-notification>" not in str(session.agent.conversation.messages)


@pytest.mark.spec("QUE-05", "CTL-05")
async def test_an_end_returned_to_a_waiter_is_not_announced_again_after_a_slow_cleanup(
    tmp_path: Path,
) -> None:
    gate = ToolGate()
    # It leaves a command that has to be ended: until that is gone, its end is known and not announced.
    leaves = call_tool("Bash", "b1", command="sleep 600", run_in_background=True)
    model = script_agents(
        lead=[
            spawn_agent("slow", "c1", run_in_background=True),
            call_tool("Until"),
            call_tool("Open"),
            lambda request: call_tool("TaskOutput", "t1", task_id=get_started_agent_id(request)),
            "end",
        ],
        slow=[leaves, call_tool("Gate"), "the end of it"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool, gate.open_tool]) as session:
        await run_all_turns(session)
        looks = list_lead_results(session)
    assert "the end of it" in looks[-1]
    assert find_event(NotificationDelivered, read_events(session)).call == "t1"
    assert "<task-notification>" not in str(session.agent.conversation.messages)


@pytest.mark.spec("USR-02", "USR-10")
async def test_a_long_report_is_stored_whole_and_truncated_in_the_conversation(
    tmp_path: Path,
) -> None:
    whole = "".join(f"line {n} ----------------------------------------\n" for n in range(10_000))
    model = script_agents(
        lead=[spawn_agent("child", "c1", run_in_background=True), "wait", "got it"], child=[whole]
    )
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
        notice = next(m.text for m in session.agent.conversation.messages if "<task-notification>" in m.text)
    done = find_event(AgentEnded, read_events(session)).completion
    assert Path(done.result).read_text() == whole
    assert done.size == len(whole) > 450_000
    assert f"{len(whole):,} characters" in notice
    assert done.result in notice
    assert done.digest[:16] in notice
    assert len(notice) <= 4_000 + 500


@pytest.mark.spec("DEF-09")
async def test_the_turn_limit_of_a_definition_ends_the_agent_with_a_clear_result(tmp_path: Path) -> None:
    agents = {
        "short": {"description": "d", "prompt": "p", "maxTurns": 2, "initialPrompt": "Only for a lead."}
    }
    prompts: list[str] = []

    def again(request: ModelRequest) -> Any:
        prompts.append(request.messages[0].text)
        return call_tool("Glob", pattern="*")

    model = script_agents(
        lead=[spawn_agent("child", "c1", subagent_type="short"), get_last_result], child=[again]
    )
    async with open_session(tmp_path, model, agents=agents) as session:
        text = await run_all_turns(session)
    assert "it reached its turn limit of 2" in text
    assert prompts == ["child"] * 2


@pytest.mark.spec("AGT-04", "AGT-08", "USR-13")
@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            {"subagent_type": "Explorer"},
            "Did you mean Explore? Available: lame, Bash, Explore, Plan, general-purpose, shoal-guide, ",
        ),
        ({"subagent_type": "lame"}, "NoSuchTool"),
        ({"model": "nobody:nothing"}, "nobody"),
        ({"isolation": "remote"}, "no Ray cluster is configured"),
        ({"subagent_type": "far"}, "no Ray cluster is configured"),
        ({}, "no Ray cluster is configured"),  # the definition of the default agent wants another machine
        ({"isolation": "worktree", "cwd": "/"}, "cwd"),
        ({"effort": "heroic"}, "heroic"),
    ],
)
async def test_an_unavailable_requirement_fails_the_spawn_and_is_named(
    tmp_path: Path, more: dict[str, Any], why: str
) -> None:
    agents = tmp_path / "agents.json"  # a mapping would be checked at the start
    definitions = {"lame": {"description": "d", "prompt": "p", "tools": ["NoSuchTool"]}}
    if "Ray" in why:
        far = {"description": "d", "prompt": "p", "isolation": "remote"}
        definitions |= {"far": far, "general-purpose": far}
    agents.write_text(json.dumps(definitions))
    model = script_agents(lead=[spawn_agent("child", "c1", **more), "end"], child=["never"])
    async with open_session(tmp_path, model, agents=str(agents)) as session:
        await run_all_turns(session)
        (result,) = find_tool_results(session.agent.conversation.messages)
    assert result.is_error
    assert why in extract_tool_result_text(result)
    assert not [event for event in read_events(session) if isinstance(event, AgentStarted)]


@pytest.mark.spec("AGT-04", "PRM-08")
async def test_the_error_for_a_denied_agent_type_names_the_rule(tmp_path: Path) -> None:
    model = script_agents(
        lead=[spawn_agent("child", "c1", subagent_type="Explore"), spawn_agent("child", "c2"), "end"],
        child=["ok"],
    )
    async with open_session(tmp_path, model, disallowed_tools=["Agent(Explore)"]) as session:
        await run_all_turns(session)
        denied, allowed = find_tool_results(session.agent.conversation.messages)
    assert denied.is_error
    assert "Agent(Explore)" in extract_tool_result_text(denied)
    assert extract_tool_result_text(allowed).startswith("ok")


@pytest.mark.spec("USR-01")
async def test_depth_and_count_limits_apply_to_nested_agents(tmp_path: Path) -> None:
    model = script_agents(
        lead=[spawn_agent("one", "c1"), get_last_result],
        one=[spawn_agent("two", "c2"), get_last_result],
        two=[spawn_agent("three", "c3"), get_last_result],
        three=[spawn_agent("four", "c4"), get_last_result],
        four=["too deep"],
    )
    async with open_session(tmp_path, model) as session:
        text = await run_all_turns(session)
    assert "agents may be nested at most 3 deep, and this one would be at depth 4" in text
    assert [event.depth for event in read_events(session) if isinstance(event, AgentStarted)] == [1, 2, 3]


@pytest.mark.spec("USR-01")
@pytest.mark.parametrize("wanted", [True, False])
async def test_spawning_many_agents_in_one_message_asks_first_with_a_cost_estimate(
    tmp_path: Path, wanted: bool
) -> None:
    calls = [spawn_agent(f"child {n}", f"c{n}") for n in range(4)]
    model = script_agents(lead=[calls, "end"], child=["ok"])
    settings = json.dumps({"shoal": {"fan_out_preview": 3}})
    async with open_session(tmp_path, model, attended=True, settings=settings) as session:
        turn = asyncio.create_task(collect_events(session.run("lead")))
        async for question in session.runtime.question_broker.watch_questions():
            session.runtime.question_broker.submit_answer(
                question.id, AllowAnswer() if wanted else DenyAnswer(reason="two will do.")
            )
            break
        await turn
        answers = list_lead_results(session)
    assert isinstance(question, PermissionQuestion)
    assert "it would start 4 agents at once, about $0.00 in total" in question.reason
    asked = [event for event in read_events(session) if isinstance(event, QuestionAsked)]
    assert len(asked) == 1, "one question for all of them"
    started = [event for event in read_events(session) if isinstance(event, AgentStarted)]
    assert len(started) == (4 if wanted else 0)
    assert all(("ok" if wanted else "two will do.") in answer for answer in answers)


@pytest.mark.spec("DEF-05", "AGT-07", "PRM-08", "USR-13", "USR-05")
async def test_a_definition_limits_the_tools_and_the_calls_they_may_make(
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
    model = script_agents(
        lead=[spawn_agent("child", "c1", subagent_type="narrow"), "end"],
        child=[
            [
                call_tool("Bash", "b1", command="echo fine"),
                call_tool("Bash", "b2", command="date"),
                call_tool("Bash", "b3", command="echo secret"),
                call_tool("Glob", "g1", pattern="*"),
            ],
            lambda request: "\n--\n".join(
                extract_tool_result_text(result) for result in find_tool_results(list(request.messages))
            ),
        ],
    )
    async with open_session(tmp_path, model, agents=agents) as session:
        await run_all_turns(session)
        report = list_lead_results(session)[0]
    fine, date, secret, glob = report.split("\n--\n")
    assert fine == "fine"
    assert "its definition allows only these Bash calls: Bash(echo:*)" in date
    assert "the rule Bash(echo secret:*) (its definition) forbids it" in secret
    assert "There is no tool named 'Glob'" in glob
    assert find_event(AgentStarted, read_events(session)).tools == ("Read", "Bash")


@pytest.mark.spec("USR-24")
@pytest.mark.parametrize("mends", [True, False])
async def test_an_agent_with_an_acceptance_command_is_done_only_after_it_passes(
    tmp_path: Path, mends: bool
) -> None:
    agents = {
        "careful": {
            "description": "d",
            "prompt": "p",
            "acceptance": "test -e done.txt || (echo missing; exit 4)",
        }
    }
    reported: list[str] = []

    def second(request: ModelRequest) -> Any:
        reported.append(request.messages[-1].text)
        return call_tool("Write", file_path="done.txt", content="") if mends else "I insist"

    model = script_agents(
        lead=[spawn_agent("child", "c1", subagent_type="careful"), "end"],
        child=["it is done", second, "now it is", "now it is"],
    )
    async with open_session(tmp_path, model, agents=agents) as session:
        await run_all_turns(session)
    done = find_event(AgentEnded, read_events(session)).completion
    assert "exited with status 4" in reported[0]
    assert "missing" in reported[0]
    assert done.status == ("completed" if mends else "failed")
    assert done.evidence.acceptance is not None
    assert done.evidence.acceptance.exit_code == (0 if mends else 4)


@pytest.mark.spec("USR-24")
async def test_a_task_with_an_acceptance_command_is_completed_only_after_it_passes(tmp_path: Path) -> None:
    accepted = {"acceptance": "test -e made.txt"}
    model = script_agents(
        lead=[
            call_tool("TaskCreate", "1", subject="make it", description="d", metadata=accepted),
            call_tool("TaskUpdate", "2", taskId="1", status="completed"),
            call_tool("Write", "3", file_path="made.txt", content=""),
            call_tool("TaskUpdate", "4", taskId="1", status="completed"),
            "end",
        ]
    )
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
        _, early, _, late = find_tool_results(session.agent.conversation.messages)
    assert early.is_error
    assert "its acceptance command `test -e made.txt` exited with status 1" in extract_tool_result_text(early)
    assert not late.is_error


@pytest.mark.spec("TSK-13")
async def test_the_agents_of_a_session_without_a_team_share_its_board(tmp_path: Path) -> None:
    model = script_agents(
        lead=[
            call_tool("TaskCreate", subject="make it", description="d"),
            spawn_agent("child"),
            call_tool("TaskList"),
            "end",
        ],
        child=[call_tool("TaskUpdate", taskId="1", status="completed"), "done"],
    )
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
        assert list_lead_results(session)[-1] == "#1 completed: make it"
    (board,) = (Path(os.environ["SHOAL_HOME"]) / "tasks").iterdir()
    assert board.name == session.id


@pytest.mark.spec("AGT-07")
async def test_resuming_an_agent_does_not_widen_its_restrictions(tmp_path: Path) -> None:
    agents = {
        "narrow": {"description": "d", "prompt": "p", "tools": ["Bash(echo:*)", "Agent"]},
        "below": {
            "description": "d",
            "prompt": "p",
            "tools": ["Bash"],
            "disallowedTools": ["Bash(echo no:*)"],
        },
    }
    tries = [call_tool("Bash", "b1", command="date"), call_tool("Bash", "b2", command="echo no")]
    model = script_agents(
        lead=[
            spawn_agent("middle", "c1", subagent_type="narrow"),
            call_tool("SendMessage", "m1", to="deep", message="again", summary="again"),
            "wait",
            "end",
        ],
        middle=[spawn_agent("leaf", "c2", subagent_type="below", name="deep"), "done"],
        leaf=[
            "first",
            tries,
            lambda request: " | ".join(
                map(extract_tool_result_text, find_tool_results(list(request.messages)))
            ),
        ],
    )
    async with open_session(tmp_path, model, agents=agents) as session:
        await run_all_turns(session)
    last = [event.completion for event in read_events(session) if isinstance(event, AgentEnded)][-1]
    assert last.name == "deep"
    assert "its definition allows only these Bash calls: Bash(echo:*)" in last.text
    assert "the rule Bash(echo no:*) (its definition) forbids it" in last.text


@pytest.mark.spec("RUN-14")
async def test_agents_are_not_resumed_when_background_work_is_disabled(
    tmp_path: Path,
) -> None:
    model = script_agents(
        lead=[
            spawn_agent("child", "c1", name="once"),
            call_tool("SendMessage", "m1", to="once", message="more", summary="more"),
            get_last_result,
        ],
        child=["done"],
    )
    settings = json.dumps({"shoal": {"background_agents": False}})
    async with open_session(tmp_path, model, settings=settings) as session:
        assert "which are off here" in await run_all_turns(session)
