"""Conversation: a message is written to the transcript before it is added."""

from __future__ import annotations

import pytest
from agent_harness import RecordingTranscript

from shoal.agent.conversation import Conversation, find_unanswered_tool_calls
from shoal.core.clock import SystemClock
from shoal.core.conversation.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock, user_message
from shoal.core.conversation.transcript_entries import (
    TranscriptEntry,
    TranscriptMessageEntry,
    TranscriptRewindMarker,
)
from shoal.core.errors import StateFileError
from shoal.core.ids import IdGenerator


def make_calls(*ids: str) -> Message:
    return Message(role="assistant", content=tuple(ToolUseBlock(id=i, name="t", input={}) for i in ids))


def make_result(call_id: str) -> Message:
    return Message(role="user", content=(ToolResultBlock(tool_use_id=call_id, content="ok"),))


def create_conversation() -> tuple[Conversation, RecordingTranscript]:
    transcript = RecordingTranscript()
    return Conversation(transcript, SystemClock(), IdGenerator(1)), transcript


@pytest.mark.spec("TRN-01")
def test_every_entry_points_to_the_one_before_it() -> None:
    thread, transcript = create_conversation()
    thread.add_message(user_message("a"))
    thread.add_message(make_calls("1", "2"))
    thread.add_message(make_result("1"))
    thread.add_message(make_result("2"))
    thread.add_message(make_calls("3"))
    thread.add_interrupted_call_results()
    thread.add_message(user_message("b"))
    entries = [e for e in transcript.entries if isinstance(e, TranscriptMessageEntry)]
    assert len(entries) == 7
    assert [e.parent for e in entries] == [None, *(e.id for e in entries[:-1])]
    assert len(thread.messages) == 5  # both results are one message for the model


def test_a_message_that_cannot_be_written_is_not_added() -> None:
    class Full(RecordingTranscript):
        def append(self, entry: TranscriptEntry) -> None:
            raise StateFileError("full", path=None)  # type: ignore[arg-type]

    thread = Conversation(Full(), SystemClock(), IdGenerator(1))
    with pytest.raises(StateFileError):
        thread.add_message(user_message("a"))
    assert thread.messages == []
    assert thread.last_entry is None


def test_only_calls_without_a_result_are_interrupted() -> None:
    thread, _ = create_conversation()
    thread.add_message(user_message("a"))
    thread.add_message(make_calls("1", "2", "3"))
    thread.add_message(make_result("1"))
    assert [c.id for c in find_unanswered_tool_calls(thread.messages)] == ["2", "3"]
    thread.add_interrupted_call_results()
    answered = [b.tool_use_id for b in thread.messages[-1].content if isinstance(b, ToolResultBlock)]
    assert answered == ["1", "2", "3"]
    assert thread.add_interrupted_call_results() is None


def test_a_rewound_conversation_continues_after_an_earlier_entry() -> None:
    thread, transcript = create_conversation()
    first = thread.add_message(user_message("a"))
    thread.add_message(Message(role="assistant", content=(TextBlock(text="b"),)))
    thread.rewind_to_entry(first, [user_message("a")], turn=1)
    thread.add_message(user_message("c"))
    assert isinstance(transcript.entries[2], TranscriptRewindMarker)
    assert transcript.entries[2].parent == first
    assert transcript.entries[3].parent == transcript.entries[2].id  # type: ignore[union-attr]
