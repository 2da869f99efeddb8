"""Conversation: the messages sent to a model, each written to the transcript first."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.core.clock import Clock
from shoal.core.conversation.left_out_images import count_images, leave_out_images
from shoal.core.conversation.messages import INTERRUPTED_RESULT, Message, ToolResultBlock, ToolUseBlock
from shoal.core.conversation.transcript_entries import (
    ModelReplyMetadata,
    TranscriptCompactionMarker,
    TranscriptImageMarker,
    TranscriptMessageEntry,
    TranscriptRewindMarker,
)
from shoal.core.ids import EntryId, IdGenerator
from shoal.core.ports import Transcript


def merge_adjacent_messages(messages: Iterable[Message]) -> list[Message]:
    """Merge adjacent messages of one role, as providers require."""
    merged: list[Message] = []
    for message in messages:
        _append_or_merge_message(merged, message)
    return merged


def _append_or_merge_message(messages: list[Message], message: Message) -> None:
    if messages and messages[-1].role == message.role:
        messages[-1] = Message(role=message.role, content=messages[-1].content + message.content)
    else:
        messages.append(message)


def find_unanswered_tool_calls(messages: list[Message]) -> tuple[ToolUseBlock, ...]:
    """Return the tool calls at the end of a conversation that have no result yet."""
    answered_ids: set[str] = set()
    for message in reversed(messages[-2:]):
        if message.role == "assistant":
            return tuple(call for call in message.tool_uses if call.id not in answered_ids)
        answered_ids.update(b.tool_use_id for b in message.content if isinstance(b, ToolResultBlock))
    return ()


class Conversation:
    """Messages of one agent, written to the transcript as one entry per message or tool result."""

    def __init__(
        self,
        transcript: Transcript,
        clock: Clock,
        ids: IdGenerator,
        *,
        messages: Iterable[Message] = (),
        last: EntryId | None = None,
    ) -> None:
        self._transcript = transcript
        self._clock = clock
        self._ids = ids
        self.messages = merge_adjacent_messages(messages)
        self.left_out_images = 0
        """Number of images that were left out since the conversation was opened."""
        self.last_entry = last
        self._reply: EntryId | None = None
        """Entry of the model's last reply since the conversation was loaded."""
        self._given_id: tuple[Message, EntryId] | None = None

    def set_entry_id(self, message: Message, entry: EntryId) -> None:
        """Use this id, which must be new, for the entry of a message that is about to be added."""
        self._given_id = message, entry

    def _choose_entry_id(self, message: Message) -> EntryId:
        if self._given_id is not None and self._given_id[0] is message:
            entry, self._given_id = self._given_id[1], None
            return entry
        return self._ids.new_entry_id()

    def add_message(
        self,
        message: Message,
        *,
        billing: ModelReplyMetadata | None = None,
        meta: bool = False,
        summary: bool = False,
        delivered: str = "",
    ) -> EntryId:
        entry = TranscriptMessageEntry(
            id=self._ids.new_entry_id() if self._given_id is None else self._choose_entry_id(message),
            parent=self.last_entry,
            at=self._clock.now(),
            message=message,
            billing=billing,
            meta=meta,
            summary=summary,
            delivered=delivered,
        )
        self._transcript.append(entry)
        self.last_entry = entry.id
        if message.role == "assistant":
            self._reply = entry.id
        _append_or_merge_message(self.messages, message)
        return entry.id

    def copy_up_to_last_reply(self) -> tuple[list[Message], EntryId] | None:
        """Return the messages up to the model's last reply, without its call results, and its entry."""
        if self._reply is None:
            return None
        last_index = max(index for index, message in enumerate(self.messages) if message.role == "assistant")
        return self.messages[: last_index + 1], self._reply

    def add_interrupted_call_results(self, why: str = INTERRUPTED_RESULT) -> Message | None:
        """Add results for the calls that will get none, so that the conversation can continue."""
        open_calls = find_unanswered_tool_calls(self.messages)
        if not open_calls:
            return None
        results = (ToolResultBlock(tool_use_id=call.id, content=why, is_error=True) for call in open_calls)
        message = Message(role="user", content=tuple(results))
        self.add_message(message, meta=True)
        return message

    def restart_from_summary(self, summary: Message, *, trigger: str, tokens_before: int) -> EntryId:
        """Continue from a summary; earlier messages stay on the transcript."""
        boundary = TranscriptCompactionMarker(
            id=self._ids.new_entry_id(),
            before=self.last_entry,
            at=self._clock.now(),
            trigger=trigger,
            tokens_before=tokens_before,
        )
        self._transcript.append(boundary)
        self.last_entry = boundary.id
        self._reply = None
        self.messages = []
        return self.add_message(summary, meta=True, summary=True)

    def leave_out_newest_images(self, count: int, notice: str) -> None:
        """Replace the newest images with the notice, now and after a resume."""
        entry = TranscriptImageMarker(
            id=self._ids.new_entry_id(),
            parent=self.last_entry,
            at=self._clock.now(),
            count=count,
            notice=notice,
        )
        self._transcript.append(entry)
        self.last_entry = entry.id
        self.left_out_images += count
        for index in range(len(self.messages) - 1, -1, -1):
            found = count_images(self.messages[index])
            if found and count > 0:
                self.messages[index] = leave_out_images(self.messages[index], notice)
                count -= found

    def rewind_to_entry(self, parent: EntryId | None, messages: Iterable[Message], *, turn: int) -> None:
        """Continue after an earlier entry and drop the later messages."""
        entry = TranscriptRewindMarker(
            id=self._ids.new_entry_id(), parent=parent, at=self._clock.now(), turn=turn
        )
        self._transcript.append(entry)
        self.last_entry = entry.id
        self._reply = None
        self.messages = merge_adjacent_messages(messages)
