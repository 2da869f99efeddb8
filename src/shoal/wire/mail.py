"""Inbox files ⇄ mail.

An entry is written once and from then on carried as bytes, so that a store joins entries without encoding
them again and what another program wrote into one stays as it was.
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
    """Early 2026 has neither `msg_id` nor, later, `msgV`, `type` and `lead_sig`; only the id matters."""

    sender: AgentName
    text: str
    timestamp: str
    read: bool = False
    summary: str | None = None
    color: str | None = None
    msg_id: str | None = None
    fyi: Any = None
    """Shoal's own, true for what wakes nobody; whatever another program means by it is passed over."""
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
    """The entries in order; those of a wrong shape are set aside with the reason."""
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
    """One entry alone, as archives and overflow files hold it a line each."""
    form = _form(raw)
    return form if isinstance(form, Rejected) else Entry(mail=_mail(form, {}), raw=raw)


def is_named(entry: Entry) -> bool:
    """Whether its writer gave it an id."""
    form = _form(entry.raw)
    return isinstance(form, _Form) and bool(form.msg_id)


def _form(raw: bytes) -> _Form | Rejected:
    try:
        return _decode_form(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = value_of(raw)
    return Rejected(raw=raw, reason=value.reason) if isinstance(value, Invalid) else _checked(value, raw)


def entry_bytes(mail: Mail) -> bytes:
    """A new entry, on one line. The fields of early 2026 and `msg_id`, which every reader takes, and ours."""
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
    """The file that holds these entries, in this order."""
    joined = b",\n".join(entries)
    return b"[\n" + joined + b"\n]\n" if joined else EMPTY


def settled(entry: Entry, *, read: bool) -> bytes:
    """The entry with this mark and its identity written down.

    An id made from content counts occurrences in the file: it must be in the entry before another
    occurrence can go from the file.
    """
    return rewritten(entry.raw, {"read": read, "msg_id": entry.mail.id})


def made_id(sender: str, timestamp: str, text: str, occurrence: int) -> str:
    """The identity of an entry whose writer gave it none."""
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
