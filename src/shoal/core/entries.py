"""The lines of a transcript: what was said, chained from each entry to the one before."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from shoal.core.ids import EntryId, RequestId
from shoal.core.messages import Message
from shoal.core.usage import Usage


class Billing(Struct, frozen=True, kw_only=True, gc=False):
    """What a provider said about the reply it gave."""

    message_id: str
    model: str
    stop_reason: str
    usage: Usage
    request: RequestId | None = None


class Said(Struct, frozen=True, kw_only=True, gc=False):
    id: EntryId
    parent: EntryId | None
    at: int
    message: Message
    billing: Billing | None = None
    meta: bool = False
    """Said by the runtime, not by a person: a summary, an interruption, a notification."""
    summary: bool = False
    """The first message after a compaction."""
    delivered: str = ""
    """The identity of what was delivered with it, so that it is delivered once."""


class Compacted(Struct, frozen=True, kw_only=True, gc=False):
    """From here on the conversation starts anew; `before` is where it stood."""

    id: EntryId
    before: EntryId | None
    at: int
    trigger: str
    tokens_before: int


class Rewound(Struct, frozen=True, kw_only=True, gc=False):
    """The conversation went back: it goes on after `parent`."""

    id: EntryId
    parent: EntryId | None
    at: int
    turn: int


Entry: TypeAlias = Said | Compacted | Rewound
