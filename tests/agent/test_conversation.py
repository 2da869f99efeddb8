"""Conversations: each message on the transcript before it counts."""

from __future__ import annotations

import pytest
from rig import HeldTranscript

from shoal.agent.conversation import Conversation, unanswered
from shoal.core.clock import SystemClock
from shoal.core.entries import Entry, Rewound, Said
from shoal.core.errors import StoreError
from shoal.core.ids import Ids
from shoal.core.messages import Message, Text, ToolResult, ToolUse, user


def calls(*ids: str) -> Message:
    return Message(role="assistant", content=tuple(ToolUse(id=i, name="t", input={}) for i in ids))


def result(call_id: str) -> Message:
    return Message(role="user", content=(ToolResult(tool_use_id=call_id, content="ok"),))


def conversation() -> tuple[Conversation, HeldTranscript]:
    transcript = HeldTranscript()
    return Conversation(transcript, SystemClock(), Ids(1)), transcript


@pytest.mark.spec("TRN-01")
def test_every_entry_points_to_the_one_before_it() -> None:
    talk, transcript = conversation()
    talk.add(user("a"))
    talk.add(calls("1", "2"))
    talk.add(result("1"))
    talk.add(result("2"))
    talk.add(calls("3"))
    talk.interrupt()
    talk.add(user("b"))
    entries = [e for e in transcript.entries if isinstance(e, Said)]
    assert len(entries) == 7
    assert [e.parent for e in entries] == [None, *(e.id for e in entries[:-1])]
    assert len(talk.messages) == 5  # both results are one message for the model


def test_a_message_that_cannot_be_written_does_not_count() -> None:
    class Full(HeldTranscript):
        def append(self, entry: Entry) -> None:
            raise StoreError("full", path=None)  # type: ignore[arg-type]

    talk = Conversation(Full(), SystemClock(), Ids(1))
    with pytest.raises(StoreError):
        talk.add(user("a"))
    assert talk.messages == []
    assert talk.last is None


def test_only_calls_without_a_result_are_interrupted() -> None:
    talk, _ = conversation()
    talk.add(user("a"))
    talk.add(calls("1", "2", "3"))
    talk.add(result("1"))
    assert [c.id for c in unanswered(talk.messages)] == ["2", "3"]
    talk.interrupt()
    answered = [b.tool_use_id for b in talk.messages[-1].content if isinstance(b, ToolResult)]
    assert answered == ["1", "2", "3"]
    assert talk.interrupt() is None


def test_rewinding_goes_on_after_an_earlier_entry() -> None:
    talk, transcript = conversation()
    first = talk.add(user("a"))
    talk.add(Message(role="assistant", content=(Text(text="b"),)))
    talk.rewind(first, [user("a")], turn=1)
    talk.add(user("c"))
    assert isinstance(transcript.entries[2], Rewound)
    assert transcript.entries[2].parent == first
    assert transcript.entries[3].parent == transcript.entries[2].id  # type: ignore[union-attr]
