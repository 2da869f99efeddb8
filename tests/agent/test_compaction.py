"""Compaction: as often as needed, never losing what is on the record."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from rig import rig

from shoal.agent.agent import Bounds
from shoal.agent.compaction import compact, shortened
from shoal.core.entries import Compacted, Said
from shoal.core.errors import ContextTooLong
from shoal.core.events import ConversationCompacted, Heard
from shoal.core.messages import Message, Text, ToolResult, ToolUse, user
from shoal.core.requests import Request
from shoal.core.usage import ModelCard, Price
from shoal.models.scripted import ScriptedModel
from shoal.tools.define import tool

SMALL = ModelCard(id="small", provider="x", window=4_000, max_output=400, price=Price(input=0, output=0))


def is_summary_request(request: Request) -> bool:
    return "about to be replaced by a summary" in request.messages[-1].text


@tool(reads_only=True)
async def page(n: int) -> str:
    """One page of a long book."""
    return f"page {n} " + "word " * 500


class Reader:
    """Reads page after page, in a window that holds only a few; each summary says which page comes next."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.read = 0
        self.largest = 0

    def __call__(self, request: Request) -> Any:
        size = sum(len(str(m.content)) for m in request.messages) // 4
        self.largest = max(self.largest, size)
        if is_summary_request(request):
            return f"read up to page {self.read}"
        if self.read == self.pages:
            return "the end"
        self.read += 1
        return ToolUse(id=f"c{self.read}", name="page", input={"n": self.read})


async def test_a_summary_is_not_heard_as_an_answer() -> None:
    made = rig(None, model=ScriptedModel(Reader(20), card=SMALL), tools=[page])
    await made.run("read the book")
    assert made.of(ConversationCompacted)
    heard = "".join(event.text for event in made.of(Heard) if event.kind == "text")
    assert heard == "the end"


@pytest.mark.spec("USR-10")
async def test_a_conversation_is_compacted_every_time_it_nears_the_window() -> None:
    reader = Reader(40)
    made = rig(None, model=ScriptedModel(reader, card=SMALL), tools=[page])
    ended = await made.run("read the book")
    assert ended.text == "the end"
    assert len(made.of(ConversationCompacted)) >= 5
    assert reader.largest < SMALL.window
    assert all(e.tokens_before > SMALL.window // 2 for e in made.of(ConversationCompacted))


async def test_the_persons_words_outlast_any_number_of_long_summaries() -> None:
    def mind(request: Request) -> Any:
        said = reader(request)
        return "a long summary " * 400 if is_summary_request(request) else said

    reader = Reader(40)
    made = rig(
        None,
        model=ScriptedModel(mind, card=structs.replace(SMALL, window=6_000)),
        tools=[page],
    )
    await made.run("read the book")
    assert len(made.of(ConversationCompacted)) >= 5
    summaries = [e.message.text for e in made.transcript.entries if isinstance(e, Said) and e.summary]
    assert all(text.endswith("word for word:\nread the book") for text in summaries)


async def test_a_model_that_calls_a_tool_instead_of_writing_a_summary_is_asked_again() -> None:
    summaries = iter([ToolUse(id="x", name="page", input={"n": 1}), "the second time"])
    made = rig(["one", "two"], tools=[page])
    await made.run("first")
    made.agent.model = ScriptedModel(lambda _: next(summaries))
    await compact(made.agent, "manual")
    assert "the second time" in made.agent.conversation.messages[0].text


async def test_without_any_summary_the_conversation_goes_on_from_the_last_words() -> None:
    made = rig(["the harbour has nine berths"], tools=[page])
    await made.run("how many berths?")
    made.agent.model = ScriptedModel(lambda _: ToolUse(id="x", name="page", input={"n": 1}))
    await compact(made.agent, "manual")
    (message,) = made.agent.conversation.messages
    assert "the harbour has nine berths" in message.text
    assert "how many berths?" in message.text


async def test_what_was_said_before_a_compaction_stays_on_the_transcript() -> None:
    made = rig(None, model=ScriptedModel(Reader(10), card=SMALL), tools=[page])
    await made.run("read the book")
    said = [entry for entry in made.transcript.entries if isinstance(entry, Said)]
    pages = [b for e in said for b in e.message.content if isinstance(b, ToolResult)]
    assert len(pages) == 10
    boundary = next(i for i, e in enumerate(made.transcript.entries) if isinstance(e, Compacted))
    after = made.transcript.entries[boundary + 1]
    assert isinstance(after, Said)
    assert after.summary
    assert after.parent == made.transcript.entries[boundary].id


async def test_the_last_request_of_the_person_is_kept_word_for_word() -> None:
    made = rig(["fine", "a summary"])
    await made.run("name it Übergröße, not size")
    await compact(made.agent, "manual", wish="keep names")
    (first,) = made.agent.conversation.messages
    assert "name it Übergröße, not size" in first.text
    assert "a summary" in first.text


async def test_a_request_too_long_to_be_kept_is_cut_for_all_to_see() -> None:
    made = rig(["fine", "a summary", "another"])
    await made.run("word " * 2_000)
    await compact(made.agent, "manual")
    await compact(made.agent, "manual")
    (first,) = made.agent.conversation.messages
    assert "[… cut, 10,000 characters in all]" in first.text


@pytest.mark.spec("USR-10")
async def test_a_history_the_provider_refuses_as_too_long_is_compacted_and_asked_again() -> None:
    refused = False

    def mind(request: Request) -> Any:
        nonlocal refused
        if is_summary_request(request):
            return "the summary"
        if len(request.messages) > 2 and not refused:
            refused = True
            return ContextTooLong("too long")
        return "answered" if refused else "first answer"

    made = rig(mind)
    await made.run("one")
    ended = await made.run("two")
    assert ended.text == "answered"
    assert [e.trigger for e in made.of(ConversationCompacted)] == ["overflow"]


async def test_a_summary_request_that_is_too_long_itself_is_shortened_until_it_fits() -> None:
    sizes: list[int] = []

    def mind(request: Request) -> Any:
        size = sum(len(str(m.content)) for m in request.messages)
        if is_summary_request(request):
            sizes.append(size)
            return ContextTooLong("too long") if size > 5_000 else "short summary"
        if len(sizes) == 0 and len(request.messages) > 8:
            return ContextTooLong("too long")
        return "x" * 1000

    made = rig(mind, tools=[page])
    for n in range(5):
        await made.run(f"prompt {n}")
    assert sizes[-1] <= 5_000
    assert sizes == sorted(sizes, reverse=True)
    assert "short summary" in made.agent.conversation.messages[0].text


def test_shortening_first_takes_the_bulk_of_tool_results_and_then_old_messages() -> None:
    history = [
        user("a"),
        Message(role="assistant", content=(ToolUse(id="1", name="page", input={}),)),
        Message(role="user", content=(ToolResult(tool_use_id="1", content="y" * 5000),)),
        Message(role="assistant", content=(Text(text="b"),)),
        user("c"),
        Message(role="assistant", content=(Text(text="d"),)),
    ]
    lean = shortened(history)
    assert len(lean) == len(history)
    assert "5,000 characters in all" in str(lean[2].content)
    shorter = shortened(lean)
    assert shorter[0] == user("c")
    assert shortened(shorter[:1]) == shorter[:1]


async def test_one_long_turn_of_calls_is_summarised_by_a_model_whose_window_holds_little_of_it() -> None:
    """No message of it but the first is without a result, so that none could begin what is left."""

    def mind(request: Request) -> Any:
        if sum(len(str(message.content)) for message in request.messages) > 20_000:
            raise ContextTooLong("too long")
        first = {block.tool_use_id for block in request.messages[0].content if isinstance(block, ToolResult)}
        assert not first, "a result whose call is not there"
        return "a summary" if is_summary_request(request) else "done"

    made = rig(None, model=ScriptedModel(mind), tools=[page])
    made.agent.conversation.add(user("write the book"))
    for n in range(40):
        call = ToolUse(id=f"c{n}", name="page", input={"n": n, "text": "word " * 500})
        made.agent.conversation.add(Message(role="assistant", content=(call,)))
        result = ToolResult(tool_use_id=call.id, content=f"page {n} is written")
        made.agent.conversation.add(Message(role="user", content=(result,)))
    ended = await made.run("go on")
    assert (ended.reason, ended.text) == ("done", "done")
    assert "a summary" in made.agent.conversation.messages[0].text


async def test_compaction_can_be_turned_off_by_a_setting() -> None:
    made = rig(
        None, model=ScriptedModel(Reader(5), card=SMALL), tools=[page], bounds=Bounds(compact_at=100.0)
    )
    await made.run()
    assert not made.of(ConversationCompacted)


async def test_the_answer_is_limited_to_what_the_history_leaves_of_the_window() -> None:
    asked: list[int | None] = []

    def mind(request: Request) -> str:
        asked.append(request.max_tokens)
        return "short"

    card = ModelCard(id="m", provider="x", window=10_000, max_output=6_000, price=Price(input=0, output=0))
    made = rig(None, model=ScriptedModel(mind, card=card), bounds=Bounds(compact_at=1.0))
    await made.run("short")
    await made.run("word " * 4_000)
    assert asked[0] is None
    assert asked[1] is not None
    assert 1_024 <= asked[1] < 5_000
