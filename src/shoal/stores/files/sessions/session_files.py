"""Session files of a home: read, find, list and fork sessions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from shoal.core.conversation.restored_conversation import RestoredConversation
from shoal.core.conversation.transcript_entries import TranscriptMessageEntry
from shoal.core.errors import SessionNotFound, StateFileError
from shoal.core.ids import SessionId, is_uuid
from shoal.core.store import SessionListEntry
from shoal.core.text.control_tags import format_typed_command
from shoal.stores.files.home.home_paths import (
    get_project_state_directory,
    get_transcript_path,
    open_state_file,
    read_state_file,
    write_file_atomically,
)
from shoal.stores.restored_conversation import restore_transcript, rewrite_transcript_session
from shoal.wire.transcript_codec import TranscriptTitleEntry, parse_transcript_line

_PREVIEW_SIZE = 1 << 17
"""Number of bytes of a transcript read for its preview."""


def read_session_transcript(path: Path, agent: str = "") -> RestoredConversation:
    """Read the conversation of the lead or of a sub-agent; read-only, because the session may be running."""
    return restore_transcript(read_transcript_file(path), agent)


def read_transcript_file(path: Path) -> bytes:
    """Return the lines of a transcript file; raise `SessionNotFound` or `StateFileError`."""
    try:
        return read_state_file(path)
    except FileNotFoundError:
        raise SessionNotFound(f"There is no session {path.stem} in {path.parent}.", path=path) from None
    except OSError as error:
        raise StateFileError(f"Cannot read the session in {path}: {error.strerror}.", path=path) from error


def find_latest_session(home: Path, cwd: str) -> SessionId | None:
    """Return the most recently written session of this directory that has a message."""
    for file in _sort_files_newest_first(_list_project_transcripts(get_project_state_directory(home, cwd))):
        if file.stat().st_size > _PREVIEW_SIZE or any(
            isinstance(e, TranscriptMessageEntry) for e in _read_first_transcript_entries(Path(file.path))
        ):
            return SessionId(Path(file.name).stem)
    return None


def find_session_transcript(home: Path, name: str) -> Path:
    """Return the transcript of the session with this id or unique id prefix, in any directory."""
    stems = {Path(file.name).stem: Path(file.path) for file in _list_all_transcripts(home)}
    if name in stems:
        return stems[name]
    if (damaged := _find_damaged_transcript(home, name)) is not None:
        return damaged
    matches = sorted(stem for stem in stems if name and stem.startswith(name))
    if len(matches) == 1:
        return stems[matches[0]]
    if matches:
        match_list = ", ".join(matches[:5]) + (" …" if len(matches) > 5 else "")
        raise SessionNotFound(
            f"{len(matches)} sessions start with {name!r}: {match_list}. Type more characters of the id.",
            path=home,
        )
    if titled := _find_titled_transcript(home, name):
        return titled
    from difflib import get_close_matches

    similar = get_close_matches(name, stems, n=3, cutoff=0.5)
    hint = (
        f"Similar ids: {', '.join(similar)}." if similar else "Resume the latest one here: shoal --continue"
    )
    raise SessionNotFound(f"There is no session {name!r} in {home}. {hint}", path=home)


def _find_damaged_transcript(home: Path, session: str) -> Path | None:
    """Return the transcript of a stored run if something else is in its place, such as a directory."""
    if not is_uuid(session) or not (home / "shoal" / "runs" / session).is_dir():
        return None
    paths = (project / f"{session}.jsonl" for project in (home / "projects").glob("*/"))
    return next((path for path in paths if os.path.lexists(path)), None)  # a link may lead nowhere


def _find_titled_transcript(home: Path, title: str) -> Path | None:
    """Return the latest transcript whose last title is this one."""
    for file in _sort_files_newest_first(_list_all_transcripts(home)) if title else ():
        try:
            with open_state_file(Path(file.path)) as opened:
                lines = [line for line in opened if b'"custom-title"' in line]
        except OSError:
            continue
        for line in reversed(lines):
            try:
                entry = parse_transcript_line(line).entry
            except ValueError:
                continue
            if isinstance(entry, TranscriptTitleEntry) and entry.is_custom:
                if entry.text == title:
                    return Path(file.path)
                break
    return None


def list_sessions(
    home: Path, cwd: str | None = None, *, limit: int | None = None
) -> tuple[SessionListEntry, ...]:
    """List sessions of one or all directories, newest first; only the start of each file is read."""
    files = (
        _list_all_transcripts(home)
        if cwd is None
        else _list_project_transcripts(get_project_state_directory(home, cwd))
    )
    return tuple(
        SessionListEntry(
            session=SessionId(Path(file.name).stem),
            path=Path(file.path),
            prompt=_read_first_prompt_or_title(Path(file.path)),
            at=file.stat().st_mtime_ns // 1_000_000,
            size=file.stat().st_size,
        )
        for file in _sort_files_newest_first(files)[:limit]
    )


def fork_session(path: Path, session: SessionId, *, home: Path, cwd: str, durable: bool = False) -> Path:
    """Copy a transcript to a new session id in `cwd` and return its path. The original stays unchanged."""
    target = get_transcript_path(home, cwd, session)
    if target.exists():
        raise StateFileError(f"The session {session} already exists: {target}.", path=target)
    content = rewrite_transcript_session(read_transcript_file(path), session)
    write_file_atomically(target, content, durable=durable)
    return target


def _list_all_transcripts(home: Path) -> Iterator[os.DirEntry[str]]:
    try:
        projects = [entry for entry in os.scandir(home / "projects") if entry.is_dir()]
    except OSError:
        return
    for project in projects:
        yield from _list_project_transcripts(Path(project.path))


def _list_project_transcripts(project: Path) -> Iterator[os.DirEntry[str]]:
    try:
        entries = list(os.scandir(project))
    except OSError:
        return
    for entry in entries:
        # Some programs store sub-agent transcripts in the same directory as session transcripts.
        if entry.name.endswith(".jsonl") and not entry.name.startswith("agent-") and entry.is_file():
            yield entry


def _sort_files_newest_first(files: Iterator[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
    existing = [file for file in files if _is_file_still_present(file)]
    return sorted(existing, key=lambda file: (-file.stat().st_mtime_ns, file.name))


def _is_file_still_present(file: os.DirEntry[str]) -> bool:
    """Return True if the listed file still exists; this also caches its status."""
    try:
        file.stat()
    except OSError:
        return False
    return True


def _read_first_transcript_entries(path: Path) -> Iterator[object]:
    try:
        with open_state_file(path) as file:
            head = file.read(_PREVIEW_SIZE)
    except OSError:
        return
    for line in head.split(b"\n"):
        try:
            yield parse_transcript_line(line).entry
        except ValueError:
            continue


def _read_first_prompt_or_title(path: Path) -> str:
    return find_first_prompt_or_title(_read_first_transcript_entries(path))


def find_first_prompt_or_title(entries: Iterable[object]) -> str:
    """Return the title that a person gave, else the first prompt, else another title."""
    title = ""
    for entry in entries:
        if isinstance(entry, TranscriptTitleEntry):
            if entry.is_custom and entry.text:
                return entry.text
            title = title or entry.text
        elif (
            isinstance(entry, TranscriptMessageEntry)
            and entry.message.role == "user"
            and not (entry.meta or entry.summary)
        ):
            return format_typed_command(entry.message.text)
    return title
