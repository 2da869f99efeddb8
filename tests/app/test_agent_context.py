"""What agents add to a conversation is bounded, and no conversation dies of being full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import shoal
from cast import Gate, agent, all_turns, cast, recorded, use
from crew_rig import drain, ends, opened, results, starts, texts
from shoal.agent.compaction import PROMPT
from shoal.core.errors import ContextTooLong
from shoal.core.events import ConversationCompacted, Finished, RequestSettled
from shoal.core.ids import LEAD
from shoal.core.messages import Text, result_text
from shoal.core.requests import Request
from shoal.core.usage import ModelCard, Price
from shoal.models.scripted import ScriptedModel
from shoal.stores.files.journal import FileJournal

WINDOW = 128_000
CARD = ModelCard(
    id="small", provider="scripted", window=WINDOW, max_output=1_000, price=Price(input=0.0, output=0.0)
)
REPORT = "".join(f"line {n} of a report that is far too long\n" for n in range(2_000))


def tokens(request: Request) -> int:
    said = sum(
        len(result_text(block)) if hasattr(block, "tool_use_id") else len(getattr(block, "text", ""))
        for message in request.messages
        for block in message.content
    )
    return (said + len(request.system) + len(msgspec.json.encode(request.tools))) // 4


def strict(think: Any) -> ScriptedModel:
    """A model that refuses what its window cannot hold, as providers do, and that can write a summary."""

    def mind(request: Request) -> Any:
        if tokens(request) > WINDOW:
            return ContextTooLong("too long", provider="scripted", model="small")
        last = request.messages[-1].content[-1]
        if isinstance(last, Text) and last.text.startswith(PROMPT):
            return "a summary of it all"
        return think(request)

    return ScriptedModel(mind, card=CARD)


def spoken(request: Request) -> int:
    return sum(message.role == "assistant" for message in request.messages)


@pytest.mark.spec("USR-10")
@pytest.mark.parametrize("background", [True, False])
async def test_so_many_results_add_at_most_so_many_thousand_tokens(tmp_path: Path, background: bool) -> None:
    k = 20

    def think(request: Request) -> Any:
        if request.messages[0].text.startswith("child"):
            return REPORT
        if not results(request.messages):
            return [agent(f"child {n}", f"c{n}", run_in_background=background) for n in range(k)]
        return "end"

    async with opened(tmp_path, strict(think), own={"max_concurrent": k}) as session:
        await all_turns(session)
    said = [block for message in session.agent.conversation.messages for block in message.content]
    notices = [
        block.text for block in said if isinstance(block, Text) and "<task-notification>" in block.text
    ]
    added = notices if background else texts(session)
    assert len(added) == k
    assert all(REPORT[:500] in each for each in added)
    assert sum(map(len, added)) // 4 <= k * 1_000
    for done in ends(session).values():
        assert Path(done.result).read_text() == REPORT


@pytest.mark.spec("USR-10")
@pytest.mark.parametrize("background", [True, False])
async def test_a_lead_at_its_limit_still_takes_fifty_results_and_compacts(
    tmp_path: Path, background: bool
) -> None:
    k = 50
    at_start: list[int] = []

    def think(request: Request) -> Any:
        if request.messages[0].text.startswith("child"):
            return REPORT
        if request.messages[-1].text.endswith("start them"):
            at_start.append(tokens(request))
            return [agent(f"child {n}", f"c{n}", run_in_background=background) for n in range(k)]
        return "fine"

    own = {"max_concurrent": k, "compact_at": 1.0}
    async with opened(tmp_path, strict(think), own=own) as session:
        while session.agent.context_tokens < 0.95 * WINDOW:
            await drain(session.run("lead " + "x" * 15_000))
        await drain(session.run("now start them"))
        turn = await session.next_turn()
        last: Any = None
        while turn is not None:
            last = (await drain(turn))[-1]
            turn = await session.next_turn()
        # It works on afterwards.
        last = (await drain(session.run("still there?")))[-1]
    assert at_start[0] > 0.94 * WINDOW
    assert isinstance(last, Finished)
    assert last.reason == "done", last.detail
    events = recorded(session)
    assert any(isinstance(event, ConversationCompacted) and event.agent == LEAD for event in events)
    assert {done.status for done in ends(session).values()} == {"completed"}
    assert len(ends(session)) == k


@pytest.mark.spec("USR-10")
async def test_a_setting_says_how_much_of_a_report_enters(tmp_path: Path) -> None:
    model = cast(lead=[agent("child", "c1", run_in_background=True), "wait", "end"], child=[REPORT])
    async with opened(tmp_path, model, own={"report_tokens": 3_000}) as session:
        await all_turns(session)
        notice = next(m.text for m in session.agent.conversation.messages if "<task-notification>" in m.text)
    assert REPORT[:7_000] in notice
    assert len(notice) <= 4 * 3_000


@pytest.mark.spec("USR-10")
async def test_what_an_agent_had_said_when_its_process_died_enters_in_part(tmp_path: Path) -> None:
    gate = Gate()
    model = cast(
        lead=[agent("child", "c1", run_in_background=True), "wait", "end"],
        child=[[REPORT, use("Gate")], "never"],
    )
    async with opened(tmp_path, model, tools=[gate.tool]) as session:
        await drain(session.run("lead"))
        await gate.wait()
        journal = session.parts.journal
        assert isinstance(journal, FileJournal)
    # As it is when the process is killed: nobody wrote down how the agent ended.
    lines = journal.path.read_bytes().splitlines(keepends=True)
    journal.path.write_bytes(b"".join(line for line in lines if b'"agent_ended"' not in line))
    async with opened(tmp_path, model, tools=[gate.tool], resume=session.id) as session:
        await all_turns(session, "go on")
        notice = next(m.text for m in session.agent.conversation.messages if "<task-notification>" in m.text)
    assert REPORT[:500] in notice
    assert len(notice) <= 4_000
    assert Path(ends(session)["child"].result).read_text() == REPORT


@pytest.mark.spec("USR-10")
async def test_a_child_compacts_as_often_as_it_must(tmp_path: Path) -> None:
    calls = 0

    @shoal.tool(name="Much", reads_only=True)
    async def much() -> str:
        """Give much to read."""
        return "y" * 90_000

    def think(request: Request) -> Any:
        nonlocal calls
        if request.messages[0].text.startswith("lead"):
            return agent("child", "c1") if spoken(request) == 0 else "end"
        calls += 1
        return use("Much", f"m{calls}") if calls <= 16 else "read it all"

    async with opened(tmp_path, strict(think), tools=[much]) as session:
        await all_turns(session)
    (child,) = starts(session)
    compacted = [event for event in recorded(session) if isinstance(event, ConversationCompacted)]
    assert len(compacted) >= 2
    assert {event.agent for event in compacted} == {child.agent}
    assert texts(session)[0].startswith("read it all")


@pytest.mark.spec("USR-10", "USR-13")
async def test_what_a_child_starts_with_is_told_tools_and_prompt_included(tmp_path: Path) -> None:
    def think(request: Request) -> Any:
        if request.messages[0].text.startswith("child"):
            return "done"
        return agent("child", "c1", run_in_background=True) if not results(request.messages) else "end"

    async with opened(tmp_path, strict(think)) as session:
        await all_turns(session)
    said = texts(session)[0]
    told = int(said.partition("starting at about ")[2].partition(" tokens")[0].replace(",", ""))
    (child,) = starts(session)
    (first,) = [e for e in recorded(session) if isinstance(e, RequestSettled) and e.agent == child.agent]
    assert 0.9 < told / first.usage.input_tokens < 1.1
