"""Entries of a transcript: messages and marks such as compactions, each linked to the entry before it."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import Message
from shoal.core.ids import EntryId, RequestId


class ModelReplyMetadata(Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """Provider's metadata of a reply."""

    message_id: str
    model: str
    stop_reason: str
    usage: Usage
    request: RequestId | None = None


class TranscriptMessageEntry(Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """Message of a conversation. Memory holds those of ended agents as JSON, which array_like shortens."""

    id: EntryId
    parent: EntryId | None
    at: int
    message: Message
    billing: ModelReplyMetadata | None = None
    meta: bool = False
    """True for a message from the runtime, not from a person: a summary, an interruption, a notification."""
    summary: bool = False
    """True for the first message after a compaction."""
    delivered: str = ""
    """Id of the inbox item delivered with it, so that it is delivered once."""


class TranscriptCompactionMarker(Struct, frozen=True, kw_only=True, gc=False):
    """The conversation restarts here; `before` is the last entry before the compaction."""

    id: EntryId
    before: EntryId | None
    at: int
    trigger: str
    tokens_before: int


class TranscriptRewindMarker(Struct, frozen=True, kw_only=True, gc=False):
    """The conversation was rewound: it continues after `parent`."""

    id: EntryId
    parent: EntryId | None
    at: int
    turn: int


class TranscriptImageMarker(Struct, frozen=True, kw_only=True, gc=False):
    """A provider refused images: the last `count` before this entry are left out of requests."""

    id: EntryId
    parent: EntryId | None
    at: int
    count: int
    notice: str
    """Text in the place of each image."""


TranscriptEntry: TypeAlias = (
    TranscriptMessageEntry | TranscriptCompactionMarker | TranscriptRewindMarker | TranscriptImageMarker
)
