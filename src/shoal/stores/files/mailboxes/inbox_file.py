"""Inbox file as a bounded window of its mail: its entries, its free room and what leaves it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from itertools import accumulate

import msgspec
from msgspec import Struct

from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.wire.foreign_json import InvalidFileContent
from shoal.wire.json_codec import encode_json
from shoal.wire.mail_codec import (
    MailInboxFileEntry,
    ParsedMailInboxFile,
    encode_inbox,
    encode_updated_inbox_entry,
    has_mail_id_from_writer,
    parse_inbox,
    parse_inbox_entry,
)

MAX_UNREAD = 64
MAX_UNREAD_BYTES = 256 << 10
"""Long messages fill the inbox file sooner: the content rewritten for each post stays small."""
MAX_READ = 8
MAX_READ_BYTES = 16 << 10
_UNREAD_FIELD = b',"read":false,'
_SEARCH_BUDGET, _MAX_PASSES = 1 << 20, 32
"""Limits for the search of a broken file, in characters and in passes: every brace may start an entry, and
unbounded nesting would take hours."""
_DEEP_NESTING_COST = 1 << 14
"""Number of characters charged for nesting that is too deep."""


class MailInboxFileContent(Struct, frozen=True, kw_only=True):
    """Content of an inbox file and its entries. Without content the file does not exist."""

    content: bytes | None
    entries: tuple[MailInboxFileEntry, ...]
    rejected: tuple[str, ...] = ()

    @property
    def unread(self) -> list[MailInboxFileEntry]:
        return [entry for entry in self.entries if not entry.mail.read]

    @property
    def remaining_unread_capacity(self) -> tuple[int, int]:
        """Number of unread messages and bytes that still fit."""
        sizes = [len(entry.raw) for entry in self.entries if not entry.mail.read]
        count, size = MAX_UNREAD - len(sizes), MAX_UNREAD_BYTES - sum(sizes)
        return (0, 0) if count <= 0 or (size <= 0 and sizes) else (count, max(size, 0))

    @property
    def ids(self) -> list[str]:
        return [entry.mail.id for entry in self.entries]


def read_inbox_file(
    directory: DirectoryHandle, name: str, previous: MailInboxFileContent | None
) -> MailInboxFileContent | InvalidFileContent:
    """Read the file. Compared by content: on some systems times are too coarse to tell two writes apart."""
    content = directory.read_file(name)
    if previous is not None and content == previous.content:
        return previous
    if content is None:
        return MailInboxFileContent(content=None, entries=())
    inbox = parse_inbox(content)
    if isinstance(inbox, InvalidFileContent):
        return inbox
    reasons = tuple(each.reason for each in inbox.rejected)
    return MailInboxFileContent(content=content, entries=inbox.entries, rejected=reasons)


def build_inbox_file(entries: tuple[MailInboxFileEntry, ...]) -> MailInboxFileContent:
    return MailInboxFileContent(content=encode_inbox([entry.raw for entry in entries]), entries=entries)


def mark_inbox_entries_read(
    entries: Iterable[MailInboxFileEntry], ids: Collection[str]
) -> tuple[MailInboxFileEntry, ...]:
    """Return the entries with these ids marked as read."""
    return tuple(
        [
            _mark_inbox_entry_read(each) if each.mail.id in ids and not each.mail.read else each
            for each in entries
        ]
    )


def split_inbox_entries_to_archive(
    entries: tuple[MailInboxFileEntry, ...],
) -> tuple[tuple[MailInboxFileEntry, ...], tuple[MailInboxFileEntry, ...]]:
    """Return the entries that stay and the read ones that leave; only the latest few read entries stay."""
    read_entries = [entry for entry in reversed(entries) if entry.mail.read]
    sizes = accumulate(len(entry.raw) for entry in read_entries)
    staying_ids = {
        id(entry)
        for entry, size in zip(read_entries[:MAX_READ], sizes, strict=False)
        if size <= MAX_READ_BYTES
    }
    kept = tuple(entry for entry in entries if not entry.mail.read or id(entry) in staying_ids)
    archived = tuple(entry for entry in entries if entry.mail.read and id(entry) not in staying_ids)
    return kept, archived


def list_fitting_unread_ids(entries: Iterable[MailInboxFileEntry]) -> set[str]:
    """Return the ids of the oldest unread entries that fit into the file."""
    fitting_ids: set[str] = set()
    size = 0
    for entry in entries:
        if entry.mail.read:
            continue
        # The last one may exceed the bound: mail that moves up from the overflow may too.
        if len(fitting_ids) >= MAX_UNREAD or size >= MAX_UNREAD_BYTES:
            break
        size += len(entry.raw)
        fitting_ids.add(entry.mail.id)
    return fitting_ids


def has_derived_mail_id(entry: MailInboxFileEntry) -> bool:
    """Return True if the entry was written by a program that gives no ids."""
    return entry.mail.id.startswith("made-") and not has_mail_id_from_writer(entry)


def assign_inbox_entry_id(entry: MailInboxFileEntry, identity: str) -> MailInboxFileEntry:
    """Return the entry with a permanent id.

    An id derived from content alone would repeat if the same program sent the same text again after this
    entry has left the file.
    """
    mail = msgspec.structs.replace(entry.mail, id=identity)
    return MailInboxFileEntry(
        mail=mail,
        raw=encode_updated_inbox_entry(MailInboxFileEntry(mail=mail, raw=entry.raw), read=mail.read),
    )


def to_single_line_entry(raw: bytes) -> bytes:
    """Return the entry on one line, for a line-based file; other programs may use several lines."""
    # In JSON a newline can only occur between tokens.
    return raw.replace(b"\n", b" ") if b"\n" in raw else raw


def recover_inbox_entries(content: bytes) -> ParsedMailInboxFile:
    """Return the complete entries of a broken file, in order."""
    text = content.decode(errors="replace").lstrip("\ufeff \t\r\n").removeprefix("[")
    decoder = json.JSONDecoder()
    entries: list[MailInboxFileEntry] = []
    position, search_budget = 0, _SEARCH_BUDGET + _MAX_PASSES * len(text)
    while (position := text.find("{", position)) >= 0 and search_budget > 0:
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            search_budget -= getattr(error, "pos", position + _DEEP_NESTING_COST) - position
            position += 1
            continue
        entry = parse_inbox_entry(encode_json(value))
        if isinstance(entry, MailInboxFileEntry):
            entries.append(entry)
        position = end
    return ParsedMailInboxFile(entries=tuple(entries))


def _mark_inbox_entry_read(entry: MailInboxFileEntry) -> MailInboxFileEntry:
    mail = msgspec.structs.replace(entry.mail, read=True)
    return MailInboxFileEntry(
        mail=mail, raw=_mark_raw_entry_read(entry.raw) or encode_updated_inbox_entry(entry, read=True)
    )


def _mark_raw_entry_read(raw: bytes) -> bytes | None:
    """Mark the entry as read without parsing if possible, as for most entries, which we wrote; else None."""
    # Without a second brace or a bracket nothing is nested, and a quote inside a string has a backslash:
    # these bytes can only be the field itself.
    if raw.find(b"{", 1) >= 0 or b"[" in raw or b',"msg_id":"' not in raw or raw.count(_UNREAD_FIELD) != 1:
        return None
    return raw.replace(_UNREAD_FIELD, b',"read":true,')
