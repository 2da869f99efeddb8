"""Codec between transcript entries and JSON lines, in the layout that other programs share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from shoal.core.clock import iso
from shoal.core.entries import Billing, Compacted, Entry, Rewound, Said
from shoal.core.ids import AgentId, EntryId, RequestId, SessionId
from shoal.core.usage import Usage
from shoal.wire.content import dump, load, message_from, milliseconds

_ASSISTANT = b'"type":"assistant","message":'
_USER = b'"type":"user","message":'


class Lines:
    """Encodes the lines of one transcript; constant fields are encoded once."""

    def __init__(
        self,
        *,
        session: SessionId,
        cwd: str,
        version: str,
        git_branch: str | None = None,
        agent: AgentId | None = None,
    ) -> None:
        constant: dict[str, Any] = {"isSidechain": agent is not None}
        if agent is not None:
            constant["agentId"] = agent
        constant |= {"userType": "external", "cwd": cwd, "sessionId": session, "version": version}
        if git_branch is not None:
            constant["gitBranch"] = git_branch
        self._constant = b"," + dump(constant)[1:-1] + b","

    def line(self, entry: Entry) -> bytes:
        match entry:
            case Said():
                parent, body = entry.parent, _said(entry)
            case Compacted():
                parent, body = None, _compacted(entry)
            case Rewound():
                parent, body = entry.parent, _rewound(entry)
        return b'{"parentUuid":%b%b%b,"uuid":%b,"timestamp":"%b"}\n' % (
            dump(parent),
            self._constant,
            body,
            dump(entry.id),
            iso(entry.at).encode(),
        )


def _said(entry: Said) -> bytes:
    flags = b"%b%b%b" % (
        b',"isMeta":true' if entry.meta else b"",
        b',"isCompactSummary":true' if entry.summary else b"",
        b',"delivered":' + dump(entry.delivered) if entry.delivered else b"",
    )
    billing = entry.billing
    if billing is None:
        kind = _USER if entry.message.role == "user" else _ASSISTANT
        return kind + dump(entry.message) + flags
    request = b"" if billing.request is None else b',"requestId":' + dump(billing.request)
    return _ASSISTANT + dump(_Answer.of(entry, billing)) + request + flags


def _compacted(entry: Compacted) -> bytes:
    return b'"type":"system","subtype":"compact_boundary","logicalParentUuid":%b,%b' % (
        dump(entry.before),
        dump(
            {
                "content": "Conversation compacted",
                "compactMetadata": {"trigger": entry.trigger, "preTokens": entry.tokens_before},
            }
        )[1:-1],
    )


def _rewound(entry: Rewound) -> bytes:
    return b'"type":"system","subtype":"shoal_rewind","content":"Conversation rewound","turn":%d' % entry.turn


class _Answer(Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """Assistant message as the Messages API returns it."""

    id: str
    role: str
    model: str
    content: Any
    stop_reason: str
    stop_sequence: None = None
    usage: Usage

    @classmethod
    def of(cls, entry: Said, billing: Billing) -> _Answer:
        return cls(
            id=billing.message_id,
            role=entry.message.role,
            model=billing.model,
            content=entry.message.content,
            stop_reason=billing.stop_reason,
            usage=billing.usage,
        )


class Title(Struct, frozen=True, kw_only=True):
    """Title that another program gave the conversation."""

    text: str


class Passed(Struct, frozen=True, kw_only=True):
    """An unknown line. Its links are kept because it may be part of the chain."""

    kind: str
    id: EntryId | None = None
    parent: EntryId | None = None


class Read(Struct, frozen=True, kw_only=True):
    """A parsed line. `left_out` has the types of the blocks that were skipped."""

    entry: Said | Compacted | Rewound | Title | Passed
    left_out: tuple[str, ...] = ()
    session: str = ""
    cwd: str = ""
    agent: str = ""


Raw: TypeAlias = Mapping[str, Any]


def read_line(line: bytes) -> Read:
    """Parse a line; raise ValueError if it is not a JSON object."""
    raw = load(line)
    if not isinstance(raw, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - it is the content that is wrong
    entry, left_out = _entry(raw)
    return Read(
        entry=entry,
        left_out=left_out,
        session=_text(raw.get("sessionId")),
        cwd=_text(raw.get("cwd")),
        # Older programs write the lines of sub-agents into the session file without an agent id.
        agent=(_text(raw.get("agentId")) or "unnamed") if raw.get("isSidechain") is True else "",
    )


def _entry(raw: Raw) -> tuple[Said | Compacted | Rewound | Title | Passed, tuple[str, ...]]:
    kind, subtype, place = raw.get("type"), raw.get("subtype"), raw.get("uuid")
    if kind == "summary":
        return Title(text=_text(raw.get("summary"))), ()
    try:
        if isinstance(place, str) and kind in ("user", "assistant"):
            return _read_said(raw)
        if isinstance(place, str) and kind == "system" and subtype == "compact_boundary":
            return _read_compacted(raw), ()
        if isinstance(place, str) and kind == "system" and subtype == "shoal_rewind":
            return _read_rewound(raw), ()
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        pass  # a line of a known type with an unknown layout
    name = "/".join(str(part) for part in (kind, subtype) if part is not None)
    return Passed(kind=name or "untyped", id=_id(place), parent=_id(raw.get("parentUuid"))), ()


def _read_said(raw: Raw) -> tuple[Said, tuple[str, ...]]:
    message, left_out = message_from(raw["message"])
    if message.role != raw["type"]:
        raise ValueError("the role is not the type")
    said = Said(
        id=EntryId(raw["uuid"]),
        parent=_id(raw.get("parentUuid")),
        at=milliseconds(raw["timestamp"]),
        message=message,
        billing=_billing(raw) if message.role == "assistant" else None,
        meta=raw.get("isMeta") is True,
        summary=raw.get("isCompactSummary") is True,
        delivered=_text(raw.get("delivered")),
    )
    return said, left_out


def _billing(raw: Raw) -> Billing | None:
    said = raw["message"]
    if not isinstance(said.get("usage"), dict):
        return None
    request = raw.get("requestId")
    counts = {key: count for key, count in said["usage"].items() if key in _COUNTS and count is not None}
    return Billing(
        message_id=_text(said.get("id")),
        model=_text(said.get("model")),
        stop_reason=_text(said.get("stop_reason")),
        usage=msgspec.convert(counts, Usage),
        request=RequestId(request) if isinstance(request, str) else None,
    )


_COUNTS = frozenset(Usage.__struct_fields__)


def _read_compacted(raw: Raw) -> Compacted:
    metadata = raw.get("compactMetadata") or {}
    return Compacted(
        id=EntryId(raw["uuid"]),
        before=_id(raw.get("logicalParentUuid")),
        at=milliseconds(raw["timestamp"]),
        trigger=str(metadata.get("trigger", "auto")),
        tokens_before=int(metadata.get("preTokens", 0)),
    )


def _read_rewound(raw: Raw) -> Rewound:
    return Rewound(
        id=EntryId(raw["uuid"]),
        parent=_id(raw.get("parentUuid")),
        at=milliseconds(raw["timestamp"]),
        turn=int(raw["turn"]),
    )


def _id(value: object) -> EntryId | None:
    return EntryId(value) if isinstance(value, str) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
