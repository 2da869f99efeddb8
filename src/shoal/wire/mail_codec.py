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

from shoal.core.clock import format_iso_time
from shoal.core.names import AgentName
from shoal.core.teams.mail import MailMessage
from shoal.wire.foreign_json import (
    InvalidFileContent,
    RejectedFileEntry,
    convert_to_schema,
    describe_validation_error,
    encode_json_exactly,
    parse_foreign_json,
    update_json_fields,
)
from shoal.wire.json_codec import encode_json

EMPTY_INBOX = b"[]\n"
_FIRST_MILLISECONDS = 100_000_000_000
"""Numbers from here on are milliseconds; as seconds they would be after the year 5000."""


class _MailInboxEntrySchema(Struct, rename={"sender": "from"}, gc=False):
    """The early 2026 format lacks `msg_id` and the later `msgV`, `type` and signature; only the id counts.

    Some programs write only `from` and `text`, or a time as a number.
    """

    sender: AgentName
    text: str
    timestamp: str | int | float | None = None
    read: bool = False
    summary: str | None = None
    color: str | None = None
    msg_id: str | None = None
    fyi: Any = None
    """Field of Shoal, true for a message that does not wake its reader; other values are ignored."""
    shoal_sig: str | None = None


_decode_forms = msgspec.json.Decoder(list[_MailInboxEntrySchema]).decode
_decode_raws = msgspec.json.Decoder(list[Raw]).decode
_decode_form = msgspec.json.Decoder(_MailInboxEntrySchema).decode


class MailInboxFileEntry(Struct, frozen=True, kw_only=True, gc=False):
    mail: MailMessage
    raw: bytes
    """The JSON object as its writer wrote it."""


class ParsedMailInboxFile(Struct, frozen=True, kw_only=True):
    entries: tuple[MailInboxFileEntry, ...]
    rejected: tuple[RejectedFileEntry, ...] = ()


def parse_inbox(content: bytes) -> ParsedMailInboxFile | InvalidFileContent:
    """Parse the entries in order; invalid ones are rejected with the reason."""
    try:
        schemas, raws = _decode_forms(content), _decode_raws(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _parse_inbox_entries_separately(content)
    occurrences: dict[str, int] = {}
    pairs = zip(schemas, raws, strict=True)
    return ParsedMailInboxFile(
        entries=tuple(
            [
                MailInboxFileEntry(mail=_build_mail_message(form, occurrences), raw=bytes(raw))
                for form, raw in pairs
            ]
        )
    )


def _parse_inbox_entries_separately(content: bytes) -> ParsedMailInboxFile | InvalidFileContent:
    values = parse_foreign_json(content)
    if isinstance(values, InvalidFileContent):
        return values
    if not isinstance(values, list):
        return InvalidFileContent(f"it contains {type(values).__name__} instead of an array of messages")
    occurrences: dict[str, int] = {}
    entries: list[MailInboxFileEntry] = []
    rejected: list[RejectedFileEntry] = []
    for value, raw in zip(values, _split_inbox_entries(content, values), strict=True):
        schema = _convert_inbox_entry(value, raw)
        if isinstance(schema, RejectedFileEntry):
            rejected.append(schema)
        else:
            entries.append(MailInboxFileEntry(mail=_build_mail_message(schema, occurrences), raw=raw))
    return ParsedMailInboxFile(entries=tuple(entries), rejected=tuple(rejected))


def _split_inbox_entries(content: bytes, values: list[Any]) -> list[bytes]:
    try:
        return [bytes(raw) for raw in _decode_raws(content)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [encode_json_exactly(value) for value in values]


def parse_inbox_entry(raw: bytes) -> MailInboxFileEntry | RejectedFileEntry:
    """Parse a single entry, as archive and overflow files hold one per line."""
    schema = _parse_inbox_entry_schema(raw)
    return (
        schema
        if isinstance(schema, RejectedFileEntry)
        else MailInboxFileEntry(mail=_build_mail_message(schema, {}), raw=raw)
    )


def has_mail_id_from_writer(entry: MailInboxFileEntry) -> bool:
    """Return True if the writer gave the entry an id."""
    schema = _parse_inbox_entry_schema(entry.raw)
    return isinstance(schema, _MailInboxEntrySchema) and bool(schema.msg_id)


def _parse_inbox_entry_schema(raw: bytes) -> _MailInboxEntrySchema | RejectedFileEntry:
    try:
        return _decode_form(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = parse_foreign_json(raw)
    return (
        RejectedFileEntry(raw=raw, reason=value.reason)
        if isinstance(value, InvalidFileContent)
        else _convert_inbox_entry(value, raw)
    )


def encode_inbox_entry(mail: MailMessage) -> bytes:
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
    return encode_json(fields)


def encode_inbox(entries: Iterable[bytes]) -> bytes:
    """Return the file content with these entries in this order."""
    joined = b",\n".join(entries)
    return b"[\n" + joined + b"\n]\n" if joined else EMPTY_INBOX


def encode_updated_inbox_entry(entry: MailInboxFileEntry, *, read: bool) -> bytes:
    """Encode the entry with the read mark and its id.

    A derived id counts occurrences in the file: it must be stored in the entry before another
    occurrence can leave the file.
    """
    return update_json_fields(entry.raw, {"read": read, "msg_id": entry.mail.id})


def derive_mail_id(sender: str, timestamp: str, text: str, occurrence: int) -> str:
    """Return the id of an entry whose writer gave it none."""
    content = "\0".join((sender, timestamp, str(occurrence), text))
    return "made-" + hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:32]


def _format_timestamp(timestamp: str | float | None) -> str:
    """Return the time as text: empty if there is none, ISO 8601 for seconds or milliseconds since 1970."""
    if timestamp is None or isinstance(timestamp, str):
        return timestamp or ""
    milliseconds = timestamp if abs(timestamp) >= _FIRST_MILLISECONDS else timestamp * 1000
    try:
        return format_iso_time(int(milliseconds))
    except (OverflowError, ValueError, OSError):
        return ""


def _build_mail_message(schema: _MailInboxEntrySchema, occurrences: dict[str, int]) -> MailMessage:
    return MailMessage(
        id=schema.msg_id or _derive_unique_mail_id(schema, occurrences),
        sender=schema.sender,
        text=schema.text,
        timestamp=_format_timestamp(schema.timestamp),
        read=schema.read,
        summary=schema.summary,
        color=schema.color,
        fyi=schema.fyi is True,
        signature=schema.shoal_sig,
    )


def _derive_unique_mail_id(schema: _MailInboxEntrySchema, occurrences: dict[str, int]) -> str:
    timestamp = schema.timestamp if isinstance(schema.timestamp, str) else str(schema.timestamp or "")
    first_id = derive_mail_id(schema.sender, timestamp, schema.text, 0)
    occurrence = occurrences.get(first_id, 0)
    occurrences[first_id] = occurrence + 1
    return derive_mail_id(schema.sender, timestamp, schema.text, occurrence) if occurrence else first_id


def _convert_inbox_entry(value: Any, raw: bytes) -> _MailInboxEntrySchema | RejectedFileEntry:
    try:
        return convert_to_schema(value, _MailInboxEntrySchema)
    except msgspec.ValidationError as error:
        found = _convert_sender_and_text(value)
        return RejectedFileEntry(raw=raw, reason=describe_validation_error(error)) if found is None else found


def _convert_sender_and_text(value: Any) -> _MailInboxEntrySchema | None:
    """Return the entry without its optional fields that have a wrong type; None if that is not enough."""
    if not isinstance(value, dict) or "shoal_sig" in value:
        return None  # Shoal writes correct types, so a signed entry is damaged
    fields = {name: value[name] for name in ("from", "text") if name in value}
    for name in ("timestamp", "read", "summary", "color", "msg_id"):
        try:
            convert_to_schema({"from": "", "text": "", name: value.get(name, "")}, _MailInboxEntrySchema)
        except msgspec.ValidationError:
            continue
        if name in value:
            fields[name] = value[name]
    # Other languages write 1 for true.
    if type(value.get("read")) is int:
        fields["read"] = bool(value["read"])
    try:
        return convert_to_schema(fields, _MailInboxEntrySchema)
    except msgspec.ValidationError:
        return None
