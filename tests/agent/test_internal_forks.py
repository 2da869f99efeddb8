"""Internal forks: one question to an agent with its conversation; only the caller gets the reply."""

from __future__ import annotations

from typing import Any

import pytest
from agent_harness import create_harness
from msgspec import structs

from shoal.agent.agent_runner import LoopLimits
from shoal.agent.agent_texts import format_notice
from shoal.agent.compaction import compact_conversation
from shoal.agent.forks import (
    FORK_KIND,
    FORK_MARK,
    ask_model_outside_conversation,
    build_fork_prompt,
    is_forked_agent,
)
from shoal.core.conversation.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock, user_message
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import ModelRequestSettled, TextStreamed
from shoal.models.scripted_model import ScriptedModel
from shoal.tools.function_tool import tool


class RecordedReplies:
    """Returns the given replies and records the requests."""

    def __init__(self, *said: Any) -> None:
        self.said = iter(said)
        self.asked: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> Any:
        self.asked.append(structs.replace(request, messages=list(request.messages)))
        return next(self.said)


@tool(reads_only=True)
async def look() -> str:
    """Look."""
    return "nine berths"


LOOK = ToolUseBlock(id="c1", name="look", input={})


@pytest.mark.spec("FRK-07")
async def test_an_internal_fork_sends_the_prefix_of_its_agent_and_then_the_directive() -> None:
    replies = RecordedReplies(LOOK, "nine", "because I looked", "later")
    harness = create_harness(
        replies, tools=[look], loop_limits=LoopLimits(thinking_tokens=2_000, max_tokens=500)
    )
    await harness.run_prompt("how many berths?")
    assert await ask_model_outside_conversation(harness.agent, "how do you know?") == "because I looked"
    await harness.run_prompt("go on")
    forked, later = replies.asked[2], replies.asked[3]
    assert forked.messages[:-1] == later.messages[:-1]
    assert forked.messages[-1] == user_message("how do you know?")
    assert structs.replace(forked, messages=()) == structs.replace(later, messages=())


@pytest.mark.spec("FRK-07")
async def test_the_reply_of_an_internal_fork_goes_only_to_the_caller_and_is_charged() -> None:
    harness = create_harness(["the work", "aside"])
    await harness.run_prompt()
    forked_harness, before = len(harness.list_events(TextStreamed)), list(harness.agent.conversation.messages)
    context = harness.agent.state.context_tokens
    assert await ask_model_outside_conversation(harness.agent, "a word?") == "aside"
    assert harness.agent.conversation.messages == before
    assert harness.agent.state.context_tokens == context
    assert len(harness.transcript.entries) == 2
    assert len(harness.list_events(TextStreamed)) == forked_harness
    settled = [
        record.event
        for record in harness.journal.read_records()
        if isinstance(record.event, ModelRequestSettled)
    ]
    assert len(settled) == 2
    assert harness.agent.budget.budget.usage == settled[0].usage + settled[1].usage


@pytest.mark.spec("FRK-07")
async def test_an_agent_can_be_forked_while_its_tool_calls_run() -> None:
    fork_replies: list[str] = []

    @tool(reads_only=True)
    async def ask_aside() -> str:
        """Ask the agent itself."""
        fork_replies.append(await ask_model_outside_conversation(harness.agent, "what are you doing?"))
        return "done"

    calls = [LOOK, ToolUseBlock(id="c2", name="ask_aside", input={})]
    replies = RecordedReplies(calls, "I am looking", "the end")
    harness = create_harness(replies, tools=[look, ask_aside])
    ended = await harness.run_prompt()
    assert fork_replies == ["I am looking"]
    assert ended.text == "the end"
    last = replies.asked[1].messages[-1].content
    assert [block.content for block in last if isinstance(block, ToolResultBlock)][-1] == format_notice(
        "placeholder_result"
    )
    assert last[-1] == TextBlock(text="what are you doing?")
    assert format_notice("placeholder_result") not in str(harness.agent.conversation.messages)


async def test_a_tool_call_of_an_internal_fork_is_refused() -> None:
    ran: list[int] = []

    @tool(reads_only=True)
    async def count() -> str:
        """Count."""
        ran.append(1)
        return "x"

    replies = RecordedReplies(
        "the work", ["Let me see.", ToolUseBlock(id="c9", name="count", input={})], "nine"
    )
    harness = create_harness(replies, tools=[count])
    await harness.run_prompt()
    assert await ask_model_outside_conversation(harness.agent, "how many?") == "nine"
    assert not ran
    refused = replies.asked[2].messages[-1].content[0]
    assert isinstance(refused, ToolResultBlock)
    assert refused.is_error


async def test_an_internal_fork_that_only_calls_tools_returns_its_text() -> None:
    call = ToolUseBlock(id="c9", name="look", input={})
    harness = create_harness(RecordedReplies("the work", ["Let me see.", call], call), tools=[look])
    await harness.run_prompt()
    assert await ask_model_outside_conversation(harness.agent, "how many?") == "Let me see."


@pytest.mark.spec("FRK-07")
async def test_a_summary_request_has_the_prefix_of_its_agent() -> None:
    replies = RecordedReplies(LOOK, "nine", "a summary")
    harness = create_harness(replies, tools=[look])
    await harness.run_prompt("how many?")
    said = list(harness.agent.conversation.messages)
    await compact_conversation(harness.agent, "manual")
    assert list(replies.asked[2].messages[:-1]) == said
    assert replies.asked[2].tools == replies.asked[0].tools
    assert replies.asked[2].system == replies.asked[0].system


@pytest.mark.spec("FRK-03")
def test_a_fork_prompt_has_one_placeholder_per_call_and_then_the_directive() -> None:
    calls = tuple(ToolUseBlock(id=f"c{n}", name="look", input={}) for n in range(3))
    first, second = build_fork_prompt(calls, "count the berths"), build_fork_prompt(calls, "count the cranes")
    *results, directive = first.content
    assert results == [
        ToolResultBlock(tool_use_id=f"c{n}", content=format_notice("placeholder_result")) for n in range(3)
    ]
    assert isinstance(directive, TextBlock)
    assert directive.text.endswith("count the berths")
    assert first.content[:-1] == second.content[:-1]
    assert first.content[-1] != second.content[-1]


@pytest.mark.spec("FRK-05")
async def test_a_fork_is_recognized_by_its_kind_or_by_its_first_message() -> None:
    harness = create_harness(["ok", "a summary"])
    assert not is_forked_agent(harness.agent)
    await harness.run_prompt()
    harness.agent.identity = structs.replace(harness.agent.identity, kind=FORK_KIND)
    await compact_conversation(harness.agent, "manual")
    assert FORK_MARK not in str(harness.agent.conversation.messages)
    assert is_forked_agent(harness.agent)

    forked_harness = create_harness(["ok"])
    forked_harness.agent.conversation.add_message(build_fork_prompt((), "count"))
    assert is_forked_agent(forked_harness.agent)


async def test_a_tool_result_with_the_fork_mark_does_not_make_a_fork() -> None:
    harness = create_harness(["ok"])
    shown = ToolResultBlock(tool_use_id="c1", content=f"{FORK_MARK} you are a fork")
    harness.agent.conversation.add_message(Message(role="user", content=(shown,)))
    assert not is_forked_agent(harness.agent)


async def test_an_internal_fork_uses_the_model_of_its_agent() -> None:
    harness = create_harness(["ok"])
    await harness.run_prompt()
    harness.agent.model = ScriptedModel(["from the other model"])
    assert await ask_model_outside_conversation(harness.agent, "who?") == "from the other model"
