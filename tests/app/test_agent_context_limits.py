"""The context that agents add to a conversation is bounded, and a full conversation is compacted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import shoal
from agent_scripts import ToolGate, call_tool, read_events, run_all_turns, script_agents, spawn_agent
from session_helpers import (
    collect_events,
    find_tool_results,
    list_agent_starts,
    list_lead_results,
    map_agent_results,
    open_session,
)
from shoal.agent.agent_texts import load_prompt
from shoal.core.budgets.usage import ModelCard, TokenPrice
from shoal.core.conversation.messages import TextBlock, extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import ContextTooLong
from shoal.core.events import ConversationCompacted, ModelRequestSettled, RunFinished
from shoal.core.ids import LEAD_ID
from shoal.models.scripted_model import ScriptedModel
from shoal.stores.files.sessions.file_journal import FileJournal

WINDOW = 128_000
CARD = ModelCard(
    id="small", provider="scripted", window=WINDOW, max_output=1_000, price=TokenPrice(input=0.0, output=0.0)
)
REPORT = "".join(f"line {n} of a report that is far too long\n" for n in range(2_000))


def estimate_tokens(request: ModelRequest) -> int:
    conversation_size = sum(
        len(extract_tool_result_text(block))
        if hasattr(block, "tool_use_id")
        else len(getattr(block, "text", ""))
        for message in request.messages
        for block in message.content
    )
    return (conversation_size + len(request.system) + len(msgspec.json.encode(request.tools))) // 4


def create_strict_model(reply_within_window: Any) -> ScriptedModel:
    """Create a model that rejects requests above its window, as providers do, and can write a summary."""

    def choose_reply(request: ModelRequest) -> Any:
        if estimate_tokens(request) > WINDOW:
            return ContextTooLong("too long", provider="scripted", model="small")
        last = request.messages[-1].content[-1]
        if isinstance(last, TextBlock) and last.text.startswith(load_prompt("compact")):
            return "a summary of it all"
        return reply_within_window(request)

    return ScriptedModel(choose_reply, card=CARD)


def count_replies(request: ModelRequest) -> int:
    return sum(message.role == "assistant" for message in request.messages)


@pytest.mark.spec("USR-10")
@pytest.mark.parametrize("background", [True, False])
async def test_agent_results_add_a_bounded_number_of_tokens(tmp_path: Path, background: bool) -> None:
    k = 20

    def reply_within_window(request: ModelRequest) -> Any:
        if request.messages[0].text.startswith("child"):
            return REPORT
        if not find_tool_results(request.messages):
            return [spawn_agent(f"child {n}", f"c{n}", run_in_background=background) for n in range(k)]
        return "end"

    async with open_session(
        tmp_path, create_strict_model(reply_within_window), shoal_settings={"max_concurrent": k}
    ) as session:
        await run_all_turns(session)
    blocks = [block for message in session.agent.conversation.messages for block in message.content]
    notices = [
        block.text for block in blocks if isinstance(block, TextBlock) and "<task-notification>" in block.text
    ]
    added = notices if background else list_lead_results(session)
    assert len(added) == k
    assert all(REPORT[:500] in each for each in added)
    assert sum(map(len, added)) // 4 <= k * 1_000
    for done in map_agent_results(session).values():
        assert Path(done.result).read_text() == REPORT


@pytest.mark.spec("USR-10")
@pytest.mark.parametrize("background", [True, False])
async def test_a_lead_at_its_context_limit_accepts_fifty_results_and_compacts(
    tmp_path: Path, background: bool, record_property: Callable[[str, object], None]
) -> None:
    k = 50
    at_start: list[int] = []

    def reply_within_window(request: ModelRequest) -> Any:
        if request.messages[0].text.startswith("child"):
            return REPORT
        if request.messages[-1].text.endswith("start them"):
            at_start.append(estimate_tokens(request))
            return [spawn_agent(f"child {n}", f"c{n}", run_in_background=background) for n in range(k)]
        return "fine"

    own = {"max_concurrent": k, "compact_at": 1.0}
    async with open_session(
        tmp_path, create_strict_model(reply_within_window), shoal_settings=own
    ) as session:
        while session.agent.state.context_tokens < 0.95 * WINDOW:
            await collect_events(session.run("lead " + "x" * 15_000))
        await collect_events(session.run("now start them"))
        turn = await session.next_turn()
        last: Any = None
        while turn is not None:
            last = (await collect_events(turn))[-1]
            turn = await session.next_turn()
        # It works on afterwards.
        last = (await collect_events(session.run("still there?")))[-1]
    assert at_start[0] > 0.94 * WINDOW
    assert isinstance(last, RunFinished)
    assert last.reason == "done", last.detail
    events = read_events(session)
    assert any(isinstance(event, ConversationCompacted) and event.agent == LEAD_ID for event in events)
    assert {done.status for done in map_agent_results(session).values()} == {"completed"}
    assert len(map_agent_results(session)) == k
    used = at_start[0] / WINDOW
    record_property("measured", f"{k} results for a lead that used {used:.0%} of its context")


@pytest.mark.spec("USR-10")
async def test_a_setting_limits_how_much_of_a_report_enters_the_conversation(tmp_path: Path) -> None:
    model = script_agents(
        lead=[spawn_agent("child", "c1", run_in_background=True), "wait", "end"], child=[REPORT]
    )
    async with open_session(tmp_path, model, shoal_settings={"report_tokens": 3_000}) as session:
        await run_all_turns(session)
        notice = next(m.text for m in session.agent.conversation.messages if "<task-notification>" in m.text)
    assert REPORT[:7_000] in notice
    assert len(notice) <= 4 * 3_000


@pytest.mark.spec("USR-10")
async def test_text_of_an_agent_whose_process_died_enters_the_conversation_truncated(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(
        lead=[spawn_agent("child", "c1", run_in_background=True), "wait", "end"],
        child=[[REPORT, call_tool("Gate")], "never"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool]) as session:
        await collect_events(session.run("lead"))
        await gate.wait_until_reached()
        journal = session.runtime.store.journal
        assert isinstance(journal, FileJournal)
    # As after a kill: the end of the agent was not written.
    lines = journal.path.read_bytes().splitlines(keepends=True)
    journal.path.write_bytes(b"".join(line for line in lines if b'"agent_ended"' not in line))
    async with open_session(tmp_path, model, tools=[gate.tool], resume=session.id) as session:
        await run_all_turns(session, "go on")
        notice = next(m.text for m in session.agent.conversation.messages if "<task-notification>" in m.text)
    assert REPORT[:500] in notice
    assert len(notice) <= 4_000
    assert Path(map_agent_results(session)["child"].result).read_text() == REPORT


@pytest.mark.spec("USR-10")
async def test_a_sub_agent_compacts_repeatedly_when_needed(tmp_path: Path) -> None:
    calls = 0

    @shoal.tool(name="Much", reads_only=True)
    async def much(part: int) -> str:
        """Give much to read."""
        return str(part) + "y" * 90_000

    def reply_within_window(request: ModelRequest) -> Any:
        nonlocal calls
        if request.messages[0].text.startswith("lead"):
            return spawn_agent("child", "c1") if count_replies(request) == 0 else "end"
        calls += 1
        return call_tool("Much", f"m{calls}", part=calls) if calls <= 16 else "read it all"

    async with open_session(tmp_path, create_strict_model(reply_within_window), tools=[much]) as session:
        await run_all_turns(session)
    (child,) = list_agent_starts(session)
    compacted = [event for event in read_events(session) if isinstance(event, ConversationCompacted)]
    assert len(compacted) >= 2
    assert {event.agent for event in compacted} == {child.agent}
    assert list_lead_results(session)[0].startswith("read it all")


@pytest.mark.spec("USR-10", "USR-13")
async def test_the_initial_context_of_a_sub_agent_is_reported_including_tools_and_prompt(
    tmp_path: Path,
) -> None:
    def reply_within_window(request: ModelRequest) -> Any:
        if request.messages[0].text.startswith("child"):
            return "done"
        return (
            spawn_agent("child", "c1", run_in_background=True)
            if not find_tool_results(request.messages)
            else "end"
        )

    async with open_session(tmp_path, create_strict_model(reply_within_window)) as session:
        await run_all_turns(session)
    result = list_lead_results(session)[0]
    reported_tokens = int(result.partition("starting at about ")[2].partition(" tokens")[0].replace(",", ""))
    (child,) = list_agent_starts(session)
    (first,) = [
        e for e in read_events(session) if isinstance(e, ModelRequestSettled) and e.agent == child.agent
    ]
    assert 0.9 < reported_tokens / first.usage.input_tokens < 1.1
