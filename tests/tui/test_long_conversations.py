"""A conversation that goes on for days: memory is bounded, and the whole conversation can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.core.conversation.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock
from shoal.core.conversation.transcript_entries import TranscriptMessageEntry
from shoal.core.events import AssistantReplied, Event, MessageAdded
from shoal.core.ids import LEAD_ID, EntryId, SessionId
from shoal.models.scripted_model import ScriptedModel
from shoal.surfaces.tui.block_widgets import PromptWidget
from shoal.surfaces.tui.conversation_timeline import (
    MAX_ITEMS,
    ConversationItem,
    ConversationTimelineState,
    TimelineAgentTextItem,
    TimelineToolCallItem,
)
from shoal.surfaces.tui.run_presenter import TuiAgentConversation
from shoal.surfaces.tui.transcript_pager import PagedTranscriptReader
from shoal.wire.transcript_codec import TranscriptEncoder
from tui_driver import drive_tui

ROUNDS = 2 * MAX_ITEMS


class LongConversation:
    """An agent that calls a tool in each of its answers."""

    def __init__(self, path: Path, *, live: bool) -> None:
        self._path = path
        self._live = live
        self._encoder = TranscriptEncoder(session=SessionId("s"), cwd="/", version="1")
        self.conversation = TuiAgentConversation(LEAD_ID, PagedTranscriptReader(path), "")
        self.peak_items = 0

    def run_rounds(self, rounds: int) -> None:
        for number in range(rounds):
            call = ToolUseBlock(id=f"c{number}", name="Read", input={"file_path": f"{number}.py"})
            reply = Message(role="assistant", content=(TextBlock(text=f"word {number}"), call))
            result = ToolResultBlock(tool_use_id=call.id, content=f"line {number}")
            self._add_message(f"a{number}", reply)
            self._add_message(f"u{number}", Message(role="user", content=(result,)))
            self.peak_items = max(self.peak_items, len(self.conversation.timeline.items))

    def _add_message(self, entry: str, message: Message) -> None:
        ident = EntryId(entry)
        with self._path.open("ab") as file:
            file.write(
                self._encoder.encode_entry(
                    TranscriptMessageEntry(id=ident, parent=None, at=0, message=message)
                )
            )
        event: Event = AssistantReplied(agent=LEAD_ID, entry=ident, preview="", tool_uses=1)
        if self._live:
            by = "model" if message.role == "assistant" else "tool"
            event = MessageAdded(agent=LEAD_ID, entry=ident, message=message, by=by)
        self.conversation.apply_event(event)


def get_item_text(block: ConversationItem) -> str:
    match block:
        case TimelineAgentTextItem(text=text):
            return text
        case TimelineToolCallItem(text=text, done=True):
            return text
        case _:
            return f"unfinished: {block}"


@pytest.mark.parametrize("live", [True, False], ids=["from-messages", "from-the-transcript"])
def test_a_long_conversation_is_partly_in_memory_and_can_be_loaded_whole(tmp_path: Path, live: bool) -> None:
    long_conversation = LongConversation(tmp_path / "t.jsonl", live=live)
    long_conversation.run_rounds(ROUNDS)
    conversation = long_conversation.conversation
    assert long_conversation.peak_items < MAX_ITEMS * 3 / 2
    assert get_item_text(conversation.timeline.items[-1]) == f"line {ROUNDS - 1}"
    while conversation.has_older_entries:
        conversation.load_older_entries()
    expected = [f"{kind} {number}" for number in range(ROUNDS) for kind in ("word", "line")]
    assert [get_item_text(block) for block in conversation.timeline.items] == expected
    numbers = [block.number for block in conversation.timeline.items]
    assert numbers == sorted(set(numbers))


def test_a_shown_conversation_is_not_trimmed(tmp_path: Path) -> None:
    long_conversation = LongConversation(tmp_path / "t.jsonl", live=True)
    long_conversation.conversation.is_shown = True
    long_conversation.run_rounds(MAX_ITEMS)
    assert len(long_conversation.conversation.timeline.items) == 2 * MAX_ITEMS


def test_the_oldest_of_thousands_of_remarks_are_dropped() -> None:
    timeline = ConversationTimelineState()
    timeline.add_message("e", Message(role="user", content=(TextBlock(text="go"),)))
    for number in range(3 * MAX_ITEMS):
        timeline.add_remark(f"agent {number} starts")
        if timeline.has_too_many_items:
            timeline.drop_oldest_items()
    assert len(timeline.items) < MAX_ITEMS * 3 / 2
    assert timeline.items[0].number == 1, "prompts stay"


@pytest.mark.slow
async def test_the_screen_unmounts_distant_blocks_and_loads_them_again(
    tmp_path: Path,
) -> None:
    async with drive_tui(tmp_path, ScriptedModel(["yes"])) as at:
        view, timeline = at.app.view, at.app.run_client.presenter.get_conversation(LEAD_ID).timeline
        for number in range(2 * MAX_ITEMS):
            timeline.add_message(
                f"e{number}", Message(role="user", content=(TextBlock(text=f"said {number}"),))
            )
            if number % 100 == 99:
                at.app.schedule_draw()
                await at.wait_until(lambda: not at.app.has_pending_draw, "all is drawn")
        assert len(timeline.items) < MAX_ITEMS * 3 / 2
        await at.wait_for_text(f"said {2 * MAX_ITEMS - 1}")
        for _ in range(3):
            await view.show_earlier_blocks()
        mounted = len(view.query(PromptWidget))
        assert mounted > 300
        view.scroll_home(animate=False)
        await at.wait_for_text(f"said {2 * MAX_ITEMS - mounted}")
