"""Restores conversations from transcript files without reading what the last compaction has summarized."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.conversation.restored_conversation import RestoredConversation
from shoal.core.conversation.transcript_entries import TranscriptCompactionMarker
from shoal.core.errors import SessionNotFound, StateFileError
from shoal.stores.files.home.home_paths import open_state_file
from shoal.stores.files.sessions.journal_snapshots import SAVE_AFTER, read_snapshot, write_snapshot
from shoal.stores.restored_conversation import (
    DamagedLines,
    EarlierConversation,
    format_incomplete_line_note,
    format_unreadable_lines_note,
    restore_conversation,
)
from shoal.wire.json_codec import is_complete_json_line
from shoal.wire.transcript_codec import ParsedTranscriptLine, parse_transcript_line

_CHUNK = 1 << 20


class _TranscriptTail(Struct, kw_only=True):
    """Lines from the last compaction on, and the facts about those before it."""

    earlier: EarlierConversation
    start: int
    """Offset of the first line."""
    lines: list[ParsedTranscriptLine]
    unreadable: int = 0
    """Lines of the tail that are not JSON."""
    incomplete: int = 0
    """Bytes of an incomplete last line."""


def restore_stored_conversation(transcript: Path, snapshot: Path, agent: str) -> RestoredConversation:
    """Restore the conversation of an agent. Raises `SessionNotFound` or `StateFileError`."""
    try:
        found = read_snapshot(snapshot, transcript, EarlierConversation)
        earlier, start = (EarlierConversation(), 0) if found is None else found
        tail = _read_tail(transcript, agent, earlier, start)
        if tail.start - start >= SAVE_AFTER:
            write_snapshot(snapshot, transcript, tail.earlier, tail.start)
        restored = _restore_tail(tail, agent)
        if restored.is_broken and tail.start:
            # The conversation was rewound to before the compaction, so all lines are needed.
            everything = _read_tail(transcript, agent, EarlierConversation(), 0, from_compaction=False)
            restored = _restore_tail(everything, agent)
    except FileNotFoundError:
        raise SessionNotFound(
            f"There is no session {transcript.stem} in {transcript.parent}.", path=transcript
        ) from None
    except OSError as error:
        raise StateFileError(
            f"Cannot read the session in {transcript}: {error.strerror}.", path=transcript
        ) from error
    return restored


def _restore_tail(tail: _TranscriptTail, agent: str) -> RestoredConversation:
    notes = [format_incomplete_line_note(tail.incomplete)] if tail.incomplete else []
    damaged = tail.earlier.damaged + DamagedLines.find(tail.lines, agent)
    if unreadable := tail.earlier.unreadable + tail.unreadable + damaged.count:
        notes.append(format_unreadable_lines_note(unreadable))
    restored = restore_conversation(tail.lines, agent, earlier=tail.earlier)
    cwd = next((line.cwd for line in reversed(tail.lines) if line.cwd), tail.earlier.cwd)
    return replace(restored, cwd=cwd, notes=(*notes, *restored.notes), unreadable=unreadable)


def _read_tail(
    transcript: Path, agent: str, earlier: EarlierConversation, start: int, *, from_compaction: bool = True
) -> _TranscriptTail:
    tail = _TranscriptTail(earlier=earlier, start=start, lines=[])
    for offset, content, is_last in _iter_lines(transcript, start):
        if is_last and not is_complete_json_line(content):
            tail.incomplete = len(content)
            continue
        if not content.strip():
            continue
        try:
            line = parse_transcript_line(content)
        except ValueError:
            tail.unreadable += 1
            continue
        if from_compaction and line.agent == agent and isinstance(line.entry, TranscriptCompactionMarker):
            tail.earlier.add_lines(tail.lines, agent, tail.unreadable)
            tail.start, tail.lines, tail.unreadable = offset, [], 0
        tail.lines.append(line)
    return tail


def _iter_lines(path: Path, start: int) -> Iterator[tuple[int, bytes, bool]]:
    """Yield the offset and content of each line, and True for a last line without an end."""
    offset, rest = start, b""
    with open_state_file(path) as file:
        file.seek(start)
        while chunk := file.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield offset, line, False
                offset += len(line) + 1
    if rest:
        yield offset, rest, True
