"""Conversation: the messages sent to a model, each written to the transcript first."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.core.clock import Clock
from shoal.core.entries import Billing, Compacted, Rewound, Said
from shoal.core.ids import EntryId, Ids
from shoal.core.messages import INTERRUPTED, Message, ToolResult, ToolUse
from shoal.core.ports import Transcript


def joined(messages: Iterable[Message]) -> list[Message]:
    """Merge adjacent messages of one role, as providers require."""
    out: list[Message] = []
    for message in messages:
        _join(out, message)
    return out


def _join(messages: list[Message], message: Message) -> None:
    if messages and messages[-1].role == message.role:
        messages[-1] = Message(role=message.role, content=messages[-1].content + message.content)
    else:
        messages.append(message)


def unanswered(messages: list[Message]) -> tuple[ToolUse, ...]:
    """Return the tool calls at the end of a conversation that have no result yet."""
    answered: set[str] = set()
    for message in reversed(messages[-2:]):
        if message.role == "assistant":
            return tuple(call for call in message.tool_uses if call.id not in answered)
        answered.update(b.tool_use_id for b in message.content if isinstance(b, ToolResult))
    return ()


class Conversation:
    """Messages of one agent, written to the transcript as one entry per message or tool result."""

    def __init__(
        self,
        transcript: Transcript,
        clock: Clock,
        ids: Ids,
        *,
        messages: Iterable[Message] = (),
        last: EntryId | None = None,
    ) -> None:
        self._transcript = transcript
        self._clock = clock
        self._ids = ids
        self.messages = joined(messages)
        self.last = last
        self._reply: EntryId | None = None
        """Entry of the model's last reply since the conversation was loaded."""

    def add(
        self,
        message: Message,
        *,
        billing: Billing | None = None,
        meta: bool = False,
        summary: bool = False,
        delivered: str = "",
    ) -> EntryId:
        entry = Said(
            id=self._ids.entry(),
            parent=self.last,
            at=self._clock.now(),
            message=message,
            billing=billing,
            meta=meta,
            summary=summary,
            delivered=delivered,
        )
        self._transcript.append(entry)
        self.last = entry.id
        if message.role == "assistant":
            self._reply = entry.id
        _join(self.messages, message)
        return entry.id

    def up_to_reply(self) -> tuple[list[Message], EntryId] | None:
        """Return the messages up to the model's last reply, without its call results, and its entry."""
        if self._reply is None:
            return None
        at = max(index for index, message in enumerate(self.messages) if message.role == "assistant")
        return self.messages[: at + 1], self._reply

    def interrupt(self, why: str = INTERRUPTED) -> Message | None:
        """Add results for the calls that will get none, so that the conversation can continue."""
        open_calls = unanswered(self.messages)
        if not open_calls:
            return None
        results = (ToolResult(tool_use_id=call.id, content=why, is_error=True) for call in open_calls)
        message = Message(role="user", content=tuple(results))
        self.add(message, meta=True)
        return message

    def restart(self, summary: Message, *, trigger: str, tokens_before: int) -> EntryId:
        """Continue from a summary; earlier messages stay on the transcript."""
        boundary = Compacted(
            id=self._ids.entry(),
            before=self.last,
            at=self._clock.now(),
            trigger=trigger,
            tokens_before=tokens_before,
        )
        self._transcript.append(boundary)
        self.last = boundary.id
        self._reply = None
        self.messages = []
        return self.add(summary, meta=True, summary=True)

    def rewind(self, parent: EntryId | None, messages: Iterable[Message], *, turn: int) -> None:
        """Continue after an earlier entry and drop the later messages."""
        entry = Rewound(id=self._ids.entry(), parent=parent, at=self._clock.now(), turn=turn)
        self._transcript.append(entry)
        self.last = entry.id
        self._reply = None
        self.messages = joined(messages)
