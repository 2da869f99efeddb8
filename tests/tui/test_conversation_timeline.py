"""One agent's conversation as blocks: a streamed answer and its whole message are one block."""

from __future__ import annotations

from shoal.core.conversation.messages import Message, TextBlock, ThinkingBlock
from shoal.core.events import MessageAdded, PartialReplyDiscarded, TextStreamed
from shoal.core.ids import LEAD_ID, EntryId
from shoal.surfaces.tui.conversation_timeline import ConversationTimelineState, TimelineAgentTextItem


def list_answers(timeline: ConversationTimelineState) -> list[tuple[str, bool]]:
    return [
        (block.text, block.is_broken_off)
        for block in timeline.items
        if isinstance(block, TimelineAgentTextItem)
    ]


def test_a_streamed_answer_and_its_message_are_one_block() -> None:
    timeline = ConversationTimelineState()
    timeline.apply_event(TextStreamed(agent=LEAD_ID, kind="thinking", text="hm"))
    timeline.apply_event(TextStreamed(agent=LEAD_ID, kind="text", text="one "))
    for number in range(9):
        timeline.add_remark(f"agent {number} starts")
    timeline.apply_event(TextStreamed(agent=LEAD_ID, kind="text", text="two"))
    assert list_answers(timeline) == [("hm", False), ("one two", False)]
    whole = Message(
        role="assistant", content=(ThinkingBlock(thinking="hm", signature=""), TextBlock(text="one two"))
    )
    timeline.apply_event(MessageAdded(agent=LEAD_ID, entry=EntryId("e-1"), message=whole, by="model"))
    assert list_answers(timeline) == [("hm", False), ("one two", False)]


def test_a_discarded_answer_is_marked_as_broken_off() -> None:
    timeline = ConversationTimelineState()
    timeline.apply_event(TextStreamed(agent=LEAD_ID, kind="text", text="half"))
    for number in range(9):
        timeline.add_remark(f"agent {number} starts")
    timeline.apply_event(PartialReplyDiscarded(agent=LEAD_ID, reason="lost", retry_in=1.0, attempt=1))
    timeline.apply_event(TextStreamed(agent=LEAD_ID, kind="text", text="whole"))
    assert list_answers(timeline) == [("half", True), ("whole", False)]
