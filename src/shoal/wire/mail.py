"""Codec between inbox files and mail messages.

An entry is encoded once and then carried as bytes: a store joins entries without encoding them again, and
fields of other programs stay as they were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from shoal.core.mail import Mail
from shoal.core.names import AgentName
from shoal.wire.content import dump
from shoal.wire.foreign import Invalid, Rejected, converted, exact, rewritten, shape, value_of

EMPTY = b"[]\n"


class _Form(Struct, rename={"sender": "from"}, gc=False):
    """The early 2026 format lacks `msg_id` and the later `msgV`, `type`, `lead_sig`; only the id matters."""

    sender: AgentName
    text: str
    timestamp: str
    read: bool = False
    summary: str | None = None
    color: str | None = None
    msg_id: str | None = None
    fyi: Any = None
    """Field of Shoal, true for a message that wakes nobody; other values are ignored."""
    shoal_sig: str | None = None


_decode_forms = msgspec.json.Decoder(list[_Form]).decode
_decode_raws = msgspec.json.Decoder(list[Raw]).decode
_decode_form = msgspec.json.Decoder(_Form).decode


class Entry(Struct, frozen=True, kw_only=True, gc=False):
    mail: Mail
    raw: bytes
    """The JSON object as its writer wrote it."""


class Inbox(Struct, frozen=True, kw_only=True):
    entries: tuple[Entry, ...]
    rejected: tuple[Rejected, ...] = ()


def read_inbox(content: bytes) -> Inbox | Invalid:
    """Parse the entries in order; invalid ones are rejected with the reason."""
    try:
        forms, raws = _decode_forms(content), _decode_raws(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_one_by_one(content)
    seen: dict[str, int] = {}
    pairs = zip(forms, raws, strict=True)
    return Inbox(entries=tuple([Entry(mail=_mail(form, seen), raw=bytes(raw)) for form, raw in pairs]))


def _read_one_by_one(content: bytes) -> Inbox | Invalid:
    values = value_of(content)
    if isinstance(values, Invalid):
        return values
    if not isinstance(values, list):
        return Invalid(f"it holds {type(values).__name__}, not an array of messages")
    seen: dict[str, int] = {}
    entries: list[Entry] = []
    rejected: list[Rejected] = []
    for value, raw in zip(values, _raws(content, values), strict=True):
        form = _checked(value, raw)
        if isinstance(form, Rejected):
            rejected.append(form)
        else:
            entries.append(Entry(mail=_mail(form, seen), raw=raw))
    return Inbox(entries=tuple(entries), rejected=tuple(rejected))


def _raws(content: bytes, values: list[Any]) -> list[bytes]:
    try:
        return [bytes(raw) for raw in _decode_raws(content)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [exact(value) for value in values]


def read_entry(raw: bytes) -> Entry | Rejected:
    """Parse a single entry, as archive and overflow files hold one per line."""
    form = _form(raw)
    return form if isinstance(form, Rejected) else Entry(mail=_mail(form, {}), raw=raw)


def is_named(entry: Entry) -> bool:
    """Return True if the writer gave the entry an id."""
    form = _form(entry.raw)
    return isinstance(form, _Form) and bool(form.msg_id)


def _form(raw: bytes) -> _Form | Rejected:
    try:
        return _decode_form(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = value_of(raw)
    return Rejected(raw=raw, reason=value.reason) if isinstance(value, Invalid) else _checked(value, raw)


def entry_bytes(mail: Mail) -> bytes:
    """Encode a new entry on one line: the early 2026 fields and `msg_id`, which all accept, and ours."""
    fields: dict[str, Any] = {
        "from": mail.sender,
        "text": mail.text,
        "timestamp": mail.timestamp,
        "read": mail.read,
    }
    if mail.summary is not None:
        fields["summary"] = mail.summary
    if mail.color is not None:
        fields["color"] = mail.color
    if mail.fyi:
        fields["fyi"] = True
    fields["msg_id"] = mail.id
    if mail.signature is not None:
        fields["shoal_sig"] = mail.signature
    return dump(fields)


def inbox_bytes(entries: Iterable[bytes]) -> bytes:
    """Return the file content with these entries in this order."""
    joined = b",\n".join(entries)
    return b"[\n" + joined + b"\n]\n" if joined else EMPTY


def settled(entry: Entry, *, read: bool) -> bytes:
    """Encode the entry with the read mark and its id.

    A derived id counts occurrences in the file: it must be stored in the entry before another
    occurrence can leave the file.
    """
    return rewritten(entry.raw, {"read": read, "msg_id": entry.mail.id})


def made_id(sender: str, timestamp: str, text: str, occurrence: int) -> str:
    """Return the id of an entry whose writer gave it none."""
    content = "\0".join((sender, timestamp, str(occurrence), text))
    return "made-" + hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:32]


def _mail(form: _Form, seen: dict[str, int]) -> Mail:
    return Mail(
        id=form.msg_id or _occurrence_id(form, seen),
        sender=form.sender,
        text=form.text,
        timestamp=form.timestamp,
        read=form.read,
        summary=form.summary,
        color=form.color,
        fyi=form.fyi is True,
        signature=form.shoal_sig,
    )


def _occurrence_id(form: _Form, seen: dict[str, int]) -> str:
    first = made_id(form.sender, form.timestamp, form.text, 0)
    occurrence = seen.get(first, 0)
    seen[first] = occurrence + 1
    return made_id(form.sender, form.timestamp, form.text, occurrence) if occurrence else first


def _checked(value: Any, raw: bytes) -> _Form | Rejected:
    try:
        return converted(value, _Form)
    except msgspec.ValidationError as error:
        return Rejected(raw=raw, reason=shape(error))
