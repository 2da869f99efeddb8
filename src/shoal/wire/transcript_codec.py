"""Codec between transcript entries and JSON lines, in the layout that other programs share."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from types import NoneType
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from shoal.core.budgets.usage import Usage
from shoal.core.clock import encode_iso_time
from shoal.core.conversation.transcript_entries import (
    ModelReplyMetadata,
    TranscriptCompactionMarker,
    TranscriptEntry,
    TranscriptImageMarker,
    TranscriptMessageEntry,
    TranscriptRewindMarker,
)
from shoal.core.ids import AgentId, EntryId, RequestId, SessionId
from shoal.wire.json_codec import decode_json, encode_json, parse_conversation_message, parse_iso_timestamp

_ASSISTANT_PREFIX = b'"type":"assistant","message":'
_USER_PREFIX = b'"type":"user","message":'
_OWN_FIRST_FIELDS = ("parentUuid", "uuid")
_FIELD_TYPES: Mapping[str, tuple[type, ...]] = {
    "parentUuid": (str, NoneType),
    "uuid": (str,),
    "logicalParentUuid": (str, NoneType),
    "isSidechain": (bool,),
    "agentId": (str,),
    "userType": (str,),
    "cwd": (str,),
    "sessionId": (str,),
    "version": (str,),
    "gitBranch": (str,),
    "type": (str,),
    "subtype": (str,),
    "isMeta": (bool,),
    "isCompactSummary": (bool,),
    "delivered": (str,),
    "requestId": (str,),
    "timestamp": (str,),
    "content": (str,),
    "compactMetadata": (dict,),
    "turn": (int,),
    "count": (int,),
    "message": (dict,),
}
"""Types of the fields that Shoal writes."""
_MESSAGE_FIELD_TYPES: Mapping[str, tuple[type, ...]] = {
    "id": (str,),
    "type": (str,),
    "role": (str,),
    "model": (str,),
    "stop_reason": (str,),
    "stop_sequence": (NoneType,),
    "usage": (dict,),
}


class TranscriptEncoder:
    """Encodes the lines of one transcript; constant fields are encoded once."""

    def __init__(
        self,
        *,
        session: SessionId,
        cwd: str,
        version: str,
        git_branch: str | None = None,
        agent: AgentId | None = None,
        title: str = "",
    ) -> None:
        constant: dict[str, Any] = {"isSidechain": agent is not None}
        if agent is not None:
            constant["agentId"] = agent
        constant |= {"userType": "external", "cwd": cwd, "sessionId": session, "version": version}
        if git_branch is not None:
            constant["gitBranch"] = git_branch
        self._constant = b"," + encode_json(constant)[1:-1] + b","
        self._session = session
        self._title_line = _encode_title(session, title) if title else b""
        """Line before the next entry; empty once it is encoded."""
        self._last_id: EntryId | None = None
        self._last_encoded_id = b"null"

    def set_title(self, title: str) -> None:
        """Name the session in a line before the next entry."""
        self._title_line = _encode_title(self._session, title)

    def encode_entry(self, entry: TranscriptEntry) -> bytes:
        body: tuple[bytes, ...]
        match entry:
            case TranscriptMessageEntry():
                parent, body = entry.parent, _encode_message_entry(entry)
            case TranscriptCompactionMarker():
                parent, body = None, (_encode_compaction_marker(entry),)
            case TranscriptRewindMarker():
                parent, body = entry.parent, (_encode_rewind_marker(entry),)
            case TranscriptImageMarker():
                parent, body = entry.parent, (_encode_image_marker(entry),)
        title_line, self._title_line = self._title_line, b""
        encoded_parent = self._last_encoded_id if parent == self._last_id else encode_json(parent)
        self._last_id, self._last_encoded_id = entry.id, encode_json(entry.id)
        # Both ids come first: a line joined from two keeps the ids of one, and links to the other break.
        return b"".join(
            (
                title_line,
                b'{"parentUuid":',
                encoded_parent,
                b',"uuid":',
                self._last_encoded_id,
                self._constant,
                *body,
                b',"timestamp":"',
                encode_iso_time(entry.at),
                b'"}\n',
            )
        )


def _encode_title(session: SessionId, title: str) -> bytes:
    return encode_json({"type": "custom-title", "customTitle": title, "sessionId": session}) + b"\n"


def _encode_message_entry(entry: TranscriptMessageEntry) -> tuple[bytes, ...]:
    """Return the pieces of the line: joining them once costs less than formatting."""
    message, billing, flags = entry.message, entry.billing, b""
    if entry.meta:
        flags = b',"isMeta":true'
    if entry.summary:
        flags += b',"isCompactSummary":true'
    if entry.delivered:
        flags += b',"delivered":' + encode_json(entry.delivered)
    if billing is None:
        return (
            _USER_PREFIX if message.role == "user" else _ASSISTANT_PREFIX,
            encode_json(message),
            flags,
        )
    reply = _ApiAssistantMessage(
        id=billing.message_id,
        role=message.role,
        model=billing.model,
        content=message.content,
        stop_reason=billing.stop_reason,
        usage=billing.usage,
    )
    if billing.request is None:
        return _ASSISTANT_PREFIX, encode_json(reply), flags
    return _ASSISTANT_PREFIX, encode_json(reply), b',"requestId":', encode_json(billing.request), flags


def _encode_compaction_marker(entry: TranscriptCompactionMarker) -> bytes:
    return b'"type":"system","subtype":"compact_boundary","logicalParentUuid":%b,%b' % (
        encode_json(entry.before),
        encode_json(
            {
                "content": "Conversation compacted",
                "compactMetadata": {"trigger": entry.trigger, "preTokens": entry.tokens_before},
            }
        )[1:-1],
    )


def _encode_rewind_marker(entry: TranscriptRewindMarker) -> bytes:
    return b'"type":"system","subtype":"shoal_rewind","content":"Conversation rewound","turn":%d' % entry.turn


def _encode_image_marker(entry: TranscriptImageMarker) -> bytes:
    return b'"type":"system","subtype":"shoal_images_left_out","content":%b,"count":%d' % (
        encode_json(entry.notice),
        entry.count,
    )


class _ApiAssistantMessage(Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """Assistant message as the Messages API returns it."""

    id: str
    role: str
    model: str
    content: Any
    stop_reason: str
    stop_sequence: None = None
    usage: Usage


class TranscriptTitleEntry(Struct, frozen=True, kw_only=True):
    """Title of the conversation, chosen by a person or written by another program."""

    text: str
    is_custom: bool = False
    """True if a person chose it."""


class UnknownTranscriptEntry(Struct, frozen=True, kw_only=True):
    """An unknown line. Its links are kept because it may be part of the chain."""

    kind: str
    id: EntryId | None = None
    parent: EntryId | None = None

    @property
    def is_newer(self) -> bool:
        """True if a newer version of Shoal may have written it."""
        return self.kind.startswith("system/shoal_") and self.kind not in _OWN_MARKERS


class ParsedTranscriptLine(Struct, frozen=True, kw_only=True):
    """A parsed line. `left_out` has the types of the blocks that were skipped."""

    entry: (
        TranscriptMessageEntry
        | TranscriptCompactionMarker
        | TranscriptRewindMarker
        | TranscriptImageMarker
        | TranscriptTitleEntry
        | UnknownTranscriptEntry
    )
    left_out: tuple[str, ...] = ()
    session: str = ""
    cwd: str = ""
    agent: str = ""
    is_own: bool = False
    """True if Shoal wrote the line: only Shoal writes both ids first."""
    has_wrong_types: bool = False
    """True if Shoal wrote the line, but a field with another type."""

    @property
    def is_damaged(self) -> bool:
        """True if Shoal wrote the line, but not with this content."""
        entry = self.entry
        if isinstance(entry, UnknownTranscriptEntry):
            return self.is_own and not entry.is_newer
        return self.has_wrong_types


UNTYPED = "untyped"
"""Kind of an entry without a type."""
_OWN_MARKERS = ("system/shoal_rewind", "system/shoal_images_left_out")

RawEntry: TypeAlias = Mapping[str, Any]


def parse_transcript_line(line: bytes) -> ParsedTranscriptLine:
    """Parse a line; raise ValueError if it is not a JSON object."""
    raw = decode_json(line)
    if not isinstance(raw, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - it is the content that is wrong
    entry, left_out = _parse_transcript_entry(raw)
    is_own = tuple(islice(raw, 2)) == _OWN_FIRST_FIELDS
    return ParsedTranscriptLine(
        entry=entry,
        left_out=left_out,
        session=_to_text_or_empty(raw.get("sessionId")),
        cwd=_to_text_or_empty(raw.get("cwd")),
        # Older programs write the lines of sub-agents into the session file without an agent id.
        agent=(_to_text_or_empty(raw.get("agentId")) or "unnamed") if raw.get("isSidechain") is True else "",
        is_own=is_own,
        has_wrong_types=is_own and _has_wrong_types(raw),
    )


def _has_wrong_types(raw: RawEntry) -> bool:
    message = raw.get("message")
    return any(type(value) not in _FIELD_TYPES.get(name, (type(value),)) for name, value in raw.items()) or (
        isinstance(message, dict)
        and any(
            name in message and type(message[name]) not in types
            for name, types in _MESSAGE_FIELD_TYPES.items()
        )
    )


def _parse_transcript_entry(
    raw: RawEntry,
) -> tuple[
    TranscriptMessageEntry
    | TranscriptCompactionMarker
    | TranscriptRewindMarker
    | TranscriptImageMarker
    | TranscriptTitleEntry
    | UnknownTranscriptEntry,
    tuple[str, ...],
]:
    kind, subtype, entry_id = raw.get("type"), raw.get("subtype"), raw.get("uuid")
    if kind == "summary":
        return TranscriptTitleEntry(text=_to_text_or_empty(raw.get("summary"))), ()
    if kind == "custom-title":
        return TranscriptTitleEntry(text=_to_text_or_empty(raw.get("customTitle")), is_custom=True), ()
    try:
        if isinstance(entry_id, str) and kind in ("user", "assistant"):
            return _parse_message_entry(raw)
        if isinstance(entry_id, str) and kind == "system" and subtype == "compact_boundary":
            return _parse_compaction_marker(raw), ()
        if isinstance(entry_id, str) and kind == "system" and subtype == "shoal_rewind":
            return _parse_rewind_marker(raw), ()
        if isinstance(entry_id, str) and kind == "system" and subtype == "shoal_images_left_out":
            return _parse_image_marker(raw), ()
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        pass  # a line of a known type with an unknown layout
    name = "/".join(str(part) for part in (kind, subtype) if part is not None)
    return UnknownTranscriptEntry(
        kind=name or UNTYPED, id=_to_entry_id(entry_id), parent=_to_entry_id(raw.get("parentUuid"))
    ), ()


def _parse_message_entry(raw: RawEntry) -> tuple[TranscriptMessageEntry, tuple[str, ...]]:
    message, left_out = parse_conversation_message(raw["message"])
    if message.role != raw["type"]:
        raise ValueError("the role does not match the type")
    if "content" not in raw["message"]:
        raise ValueError("the message has no content")
    entry = TranscriptMessageEntry(
        id=EntryId(raw["uuid"]),
        parent=_to_entry_id(raw.get("parentUuid")),
        at=parse_iso_timestamp(raw["timestamp"]),
        message=message,
        billing=_parse_reply_metadata(raw) if message.role == "assistant" else None,
        meta=raw.get("isMeta") is True,
        summary=raw.get("isCompactSummary") is True,
        delivered=_to_text_or_empty(raw.get("delivered")),
    )
    return entry, left_out


def _parse_reply_metadata(raw: RawEntry) -> ModelReplyMetadata | None:
    message = raw["message"]
    if not isinstance(message.get("usage"), dict):
        return None
    request = raw.get("requestId")
    counts = {
        key: count for key, count in message["usage"].items() if key in _USAGE_FIELDS and count is not None
    }
    return ModelReplyMetadata(
        message_id=_to_text_or_empty(message.get("id")),
        model=_to_text_or_empty(message.get("model")),
        stop_reason=_to_text_or_empty(message.get("stop_reason")),
        usage=msgspec.convert(counts, Usage),
        request=RequestId(request) if isinstance(request, str) else None,
    )


_USAGE_FIELDS = frozenset(Usage.__struct_fields__)


def _parse_compaction_marker(raw: RawEntry) -> TranscriptCompactionMarker:
    metadata = raw.get("compactMetadata") or {}
    return TranscriptCompactionMarker(
        id=EntryId(raw["uuid"]),
        before=_to_entry_id(raw.get("logicalParentUuid")),
        at=parse_iso_timestamp(raw["timestamp"]),
        trigger=str(metadata.get("trigger", "auto")),
        tokens_before=int(metadata.get("preTokens", 0)),
    )


def _parse_rewind_marker(raw: RawEntry) -> TranscriptRewindMarker:
    return TranscriptRewindMarker(
        id=EntryId(raw["uuid"]),
        parent=_to_entry_id(raw.get("parentUuid")),
        at=parse_iso_timestamp(raw["timestamp"]),
        turn=int(raw["turn"]),
    )


def _parse_image_marker(raw: RawEntry) -> TranscriptImageMarker:
    return TranscriptImageMarker(
        id=EntryId(raw["uuid"]),
        parent=_to_entry_id(raw.get("parentUuid")),
        at=parse_iso_timestamp(raw["timestamp"]),
        count=int(raw["count"]),
        notice=str(raw["content"]),
    )


def _to_entry_id(value: object) -> EntryId | None:
    return EntryId(value) if isinstance(value, str) else None


def _to_text_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""
