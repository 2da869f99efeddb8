"""Inbox file as a bounded window of its mail: its entries, its free room and what leaves it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from itertools import accumulate

import msgspec
from msgspec import Struct

from shoal.stores.files.handles import Directory
from shoal.wire.content import dump
from shoal.wire.foreign import Invalid
from shoal.wire.mail import Entry, Inbox, inbox_bytes, is_named, read_entry, read_inbox, settled

MOST_UNREAD = 64
MOST_UNREAD_BYTES = 256 << 10
"""Long messages fill the inbox file sooner: the content rewritten for each post stays small."""
MOST_READ = 8
MOST_READ_BYTES = 16 << 10
_UNREAD = b',"read":false,'
_PATIENCE, _PASSES = 1 << 20, 32
"""Limits for the search of a broken file, in characters and in passes: every brace may start an entry, and
unbounded nesting would take hours."""
_DEEP = 1 << 14
"""Characters charged for nesting that is too deep."""


class Window(Struct, frozen=True, kw_only=True):
    """Content of an inbox file and its entries. Without content the file does not exist."""

    content: bytes | None
    entries: tuple[Entry, ...]
    rejected: tuple[str, ...] = ()

    @property
    def unread(self) -> list[Entry]:
        return [entry for entry in self.entries if not entry.mail.read]

    @property
    def room(self) -> tuple[int, int]:
        """Number of unread messages and bytes that still fit."""
        sizes = [len(entry.raw) for entry in self.entries if not entry.mail.read]
        count, size = MOST_UNREAD - len(sizes), MOST_UNREAD_BYTES - sum(sizes)
        return (0, 0) if count <= 0 or (size <= 0 and sizes) else (count, max(size, 0))

    @property
    def ids(self) -> list[str]:
        return [entry.mail.id for entry in self.entries]


def read_window(directory: Directory, name: str, last: Window | None) -> Window | Invalid:
    """Read the file. Compared by content: on some systems times are too coarse to tell two writes apart."""
    content = directory.read(name)
    if last is not None and content == last.content:
        return last
    if content is None:
        return Window(content=None, entries=())
    inbox = read_inbox(content)
    if isinstance(inbox, Invalid):
        return inbox
    reasons = tuple(each.reason for each in inbox.rejected)
    return Window(content=content, entries=inbox.entries, rejected=reasons)


def window_of(entries: tuple[Entry, ...]) -> Window:
    return Window(content=inbox_bytes([entry.raw for entry in entries]), entries=entries)


def marked(entries: Iterable[Entry], ids: Collection[str]) -> tuple[Entry, ...]:
    """Return the entries with these ids marked as read."""
    return tuple(
        [_consumed(each) if each.mail.id in ids and not each.mail.read else each for each in entries]
    )


def parted(entries: tuple[Entry, ...]) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """Return the entries that stay and the read ones that leave; only the latest few read entries stay."""
    read = [entry for entry in reversed(entries) if entry.mail.read]
    sizes = accumulate(len(entry.raw) for entry in read)
    staying = {
        id(entry) for entry, size in zip(read[:MOST_READ], sizes, strict=False) if size <= MOST_READ_BYTES
    }
    kept = tuple(entry for entry in entries if not entry.mail.read or id(entry) in staying)
    gone = tuple(entry for entry in entries if entry.mail.read and id(entry) not in staying)
    return kept, gone


def nameless(entry: Entry) -> bool:
    """Return True if the entry was written by a program that gives no ids."""
    return entry.mail.id.startswith("made-") and not is_named(entry)


def named(entry: Entry, identity: str) -> Entry:
    """Return the entry with a permanent id.

    An id derived from content alone would repeat if the same program sent the same text again after this
    entry has left the file.
    """
    mail = msgspec.structs.replace(entry.mail, id=identity)
    return Entry(mail=mail, raw=settled(Entry(mail=mail, raw=entry.raw), read=mail.read))


def one_line(raw: bytes) -> bytes:
    """Return the entry on one line, for a line-based file; other programs may use several lines."""
    # In JSON a newline can only occur between tokens.
    return raw.replace(b"\n", b" ") if b"\n" in raw else raw


def rescued(content: bytes) -> Inbox:
    """Return the complete entries of a broken file, in order."""
    text = content.decode(errors="replace").lstrip("\ufeff \t\r\n").removeprefix("[")
    decoder = json.JSONDecoder()
    entries: list[Entry] = []
    at, patience = 0, _PATIENCE + _PASSES * len(text)
    while (at := text.find("{", at)) >= 0 and patience > 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            patience -= getattr(error, "pos", at + _DEEP) - at
            at += 1
            continue
        entry = read_entry(dump(value))
        if isinstance(entry, Entry):
            entries.append(entry)
        at = end
    return Inbox(entries=tuple(entries))


def _consumed(entry: Entry) -> Entry:
    mail = msgspec.structs.replace(entry.mail, read=True)
    return Entry(mail=mail, raw=_marked_in_place(entry.raw) or settled(entry, read=True))


def _marked_in_place(raw: bytes) -> bytes | None:
    """Mark the entry as read without parsing if possible, as for most entries, which we wrote; else None."""
    # Without a second brace or a bracket nothing is nested, and a quote inside a string has a backslash:
    # these bytes can only be the field itself.
    if raw.find(b"{", 1) >= 0 or b"[" in raw or b',"msg_id":"' not in raw or raw.count(_UNREAD) != 1:
        return None
    return raw.replace(_UNREAD, b',"read":true,')
