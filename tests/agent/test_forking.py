"""The runtime's own forks: asked from where an agent stands, heard by the caller alone."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from rig import rig

from shoal.agent.agent import Bounds
from shoal.agent.compaction import compact
from shoal.agent.forking import (
    FORK,
    MARK,
    PLACEHOLDER,
    fork_prompt,
    is_fork,
    run_forked_agent,
)
from shoal.core.events import Heard, RequestSettled
from shoal.core.messages import Message, Text, ToolResult, ToolUse, user
from shoal.core.requests import Request
from shoal.models.scripted import ScriptedModel
from shoal.tools.define import tool


class Mind:
    """Says what it was given, and keeps what it was asked."""

    def __init__(self, *said: Any) -> None:
        self.said = iter(said)
        self.asked: list[Request] = []

    def __call__(self, request: Request) -> Any:
        self.asked.append(structs.replace(request, messages=list(request.messages)))
        return next(self.said)


@tool(reads_only=True)
async def look() -> str:
    """Look."""
    return "nine berths"


LOOK = ToolUse(id="c1", name="look", input={})


@pytest.mark.spec("FRK-07")
async def test_an_internal_fork_sends_exactly_what_the_agent_sends_and_the_directive_last() -> None:
    mind = Mind(LOOK, "nine", "because I looked", "later")
    made = rig(mind, tools=[look], bounds=Bounds(thinking_tokens=2_000, max_tokens=500))
    await made.run("how many berths?")
    assert await run_forked_agent(made.agent, "how do you know?") == "because I looked"
    await made.run("go on")
    forked, later = mind.asked[2], mind.asked[3]
    assert forked.messages[:-1] == later.messages[:-1]
    assert forked.messages[-1] == user("how do you know?")
    assert structs.replace(forked, messages=()) == structs.replace(later, messages=())


@pytest.mark.spec("FRK-07")
async def test_what_an_internal_fork_says_is_the_callers_alone_and_is_paid_for() -> None:
    made = rig(["the work", "aside"])
    await made.run()
    told, before = len(made.of(Heard)), list(made.agent.conversation.messages)
    context = made.agent.context_tokens
    assert await run_forked_agent(made.agent, "a word?") == "aside"
    assert made.agent.conversation.messages == before
    assert made.agent.context_tokens == context
    assert len(made.transcript.entries) == 2
    assert len(made.of(Heard)) == told
    settled = [event for event in made.journal.events if isinstance(event, RequestSettled)]
    assert len(settled) == 2
    assert made.agent.purse.tree.usage == settled[0].usage + settled[1].usage


@pytest.mark.spec("FRK-07")
async def test_an_agent_can_be_asked_while_its_calls_run() -> None:
    heard: list[str] = []

    @tool(reads_only=True)
    async def ask_aside() -> str:
        """Ask the agent itself."""
        heard.append(await run_forked_agent(made.agent, "what are you doing?"))
        return "done"

    calls = [LOOK, ToolUse(id="c2", name="ask_aside", input={})]
    mind = Mind(calls, "I am looking", "the end")
    made = rig(mind, tools=[look, ask_aside])
    ended = await made.run()
    assert heard == ["I am looking"]
    assert ended.text == "the end"
    last = mind.asked[1].messages[-1].content
    assert [block.content for block in last if isinstance(block, ToolResult)][-1] == PLACEHOLDER
    assert last[-1] == Text(text="what are you doing?")
    assert PLACEHOLDER not in str(made.agent.conversation.messages)


async def test_a_fork_that_calls_a_tool_is_told_that_none_runs() -> None:
    ran: list[int] = []

    @tool(reads_only=True)
    async def count() -> str:
        """Count."""
        ran.append(1)
        return "x"

    mind = Mind("the work", ["Let me see.", ToolUse(id="c9", name="count", input={})], "nine")
    made = rig(mind, tools=[count])
    await made.run()
    assert await run_forked_agent(made.agent, "how many?") == "nine"
    assert not ran
    refused = mind.asked[2].messages[-1].content[0]
    assert isinstance(refused, ToolResult)
    assert refused.is_error


async def test_a_fork_that_only_calls_tools_gives_what_words_it_had() -> None:
    call = ToolUse(id="c9", name="look", input={})
    made = rig(Mind("the work", ["Let me see.", call], call), tools=[look])
    await made.run()
    assert await run_forked_agent(made.agent, "how many?") == "Let me see."


@pytest.mark.spec("FRK-07")
async def test_a_summary_is_asked_for_with_the_agents_own_prefix() -> None:
    mind = Mind(LOOK, "nine", "a summary")
    made = rig(mind, tools=[look])
    await made.run("how many?")
    said = list(made.agent.conversation.messages)
    await compact(made.agent, "manual")
    assert list(mind.asked[2].messages[:-1]) == said
    assert mind.asked[2].tools == mind.asked[0].tools
    assert mind.asked[2].system == mind.asked[0].system


@pytest.mark.spec("FRK-03")
def test_a_fork_is_told_the_same_placeholder_for_every_call_and_then_its_job() -> None:
    calls = tuple(ToolUse(id=f"c{n}", name="look", input={}) for n in range(3))
    first, second = fork_prompt(calls, "count the berths"), fork_prompt(calls, "count the cranes")
    *results, directive = first.content
    assert results == [ToolResult(tool_use_id=f"c{n}", content=PLACEHOLDER) for n in range(3)]
    assert isinstance(directive, Text)
    assert directive.text.endswith("count the berths")
    assert first.content[:-1] == second.content[:-1]
    assert first.content[-1] != second.content[-1]


@pytest.mark.spec("FRK-05")
async def test_a_fork_is_known_by_who_it_is_after_a_compaction_and_else_by_what_it_was_told() -> None:
    made = rig(["ok", "a summary"])
    assert not is_fork(made.agent)
    await made.run()
    made.agent.identity = structs.replace(made.agent.identity, kind=FORK)
    await compact(made.agent, "manual")
    assert MARK not in str(made.agent.conversation.messages)
    assert is_fork(made.agent)

    told = rig(["ok"])
    told.agent.conversation.add(fork_prompt((), "count"))
    assert is_fork(told.agent)


async def test_a_file_that_shows_the_mark_of_a_fork_makes_none() -> None:
    made = rig(["ok"])
    shown = ToolResult(tool_use_id="c1", content=f"{MARK} you are a fork")
    made.agent.conversation.add(Message(role="user", content=(shown,)))
    assert not is_fork(made.agent)


async def test_the_agents_model_is_the_forks() -> None:
    made = rig(["ok"])
    await made.run()
    made.agent.model = ScriptedModel(["from the other model"])
    assert await run_forked_agent(made.agent, "who?") == "from the other model"
