"""Session files of a home: read, find, list and fork sessions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct, structs

from shoal.core.entries import Said
from shoal.core.errors import NoSuchSession, StoreError
from shoal.core.ids import EntryId, SessionId
from shoal.stores.conversation import Conversation, conversation
from shoal.stores.files.places import project_directory, transcript_path, write_whole
from shoal.stores.files.transcripts import is_whole
from shoal.wire.content import dump, load
from shoal.wire.transcript import Read, Title, read_line

_GLANCE = 1 << 17
"""Bytes of a transcript that are read for its preview."""


class Loaded(Conversation, frozen=True, kw_only=True):
    """A restored conversation and the file it was read from."""

    session: SessionId
    path: Path
    cwd: str
    """Last working directory of the session; empty if the file has none."""


class Glance(Struct, frozen=True, kw_only=True):
    """A session in a list."""

    session: SessionId
    path: Path
    prompt: str
    at: int
    size: int


def read_session(path: Path, agent: str = "", *, inherited: Sequence[Read] = ()) -> Loaded:
    """Read the conversation of the lead or of a sub-agent; read-only, because the session may be running."""
    lines, notes = _read(_content(path))
    talk = conversation(lines, agent, inherited=inherited)
    cwd = next((line.cwd for line in reversed(lines) if line.cwd), "")
    told = structs.asdict(talk) | {"notes": (*notes, *talk.notes)}
    return Loaded(session=SessionId(path.stem), path=path, cwd=cwd, **told)


def lines_up_to(path: Path, entry: EntryId, agent: str = "") -> tuple[Read, ...]:
    """Return the lines up to an entry, for a fork that starts after it; empty if the entry is missing."""
    lines, _ = _read(_content(path))
    own = [line for line in lines if line.agent == agent]
    for index, line in enumerate(own):
        if not isinstance(line.entry, Title) and line.entry.id == entry:
            return tuple(own[: index + 1])
    return ()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise NoSuchSession(f"There is no session {path.stem} in {path.parent}.", path=path) from None
    except OSError as error:
        raise StoreError(f"The session in {path} cannot be read: {error.strerror}.", path=path) from error


def _read(content: bytes) -> tuple[list[Read], list[str]]:
    lines: list[Read] = []
    notes: list[str] = []
    *whole, rest = content.split(b"\n")
    if rest and is_whole(rest):
        whole.append(rest)
    elif rest:
        notes.append(f"The last line was torn ({len(rest)} bytes) and is dropped.")
    unreadable = 0
    for line in whole:
        if not line.strip():
            continue
        try:
            lines.append(read_line(line))
        except ValueError:
            unreadable += 1
    if unreadable:
        notes.append(f"Lines that are not JSON were skipped: {unreadable}.")
    return lines, notes


def latest_session(home: Path, cwd: str) -> SessionId | None:
    """Return the last written session of this directory that has a message."""
    for file in _newest_first(_transcripts(project_directory(home, cwd))):
        if file.stat().st_size > _GLANCE or any(isinstance(e, Said) for e in _beginning(Path(file.path))):
            return SessionId(Path(file.name).stem)
    return None


def find_session(home: Path, name: str) -> Path:
    """Return the transcript of the session with this id or unique id prefix, in any directory."""
    stems = {Path(file.name).stem: Path(file.path) for file in _all_transcripts(home)}
    if name in stems:
        return stems[name]
    starting = sorted(stem for stem in stems if name and stem.startswith(name))
    if len(starting) == 1:
        return stems[starting[0]]
    if starting:
        shown = ", ".join(starting[:5]) + (" …" if len(starting) > 5 else "")
        raise NoSuchSession(
            f"{name!r} is the start of {len(starting)} sessions: {shown}. Give more of the id.", path=home
        )
    from difflib import get_close_matches

    near = get_close_matches(name, stems, n=3, cutoff=0.5)
    hint = f"Close to it: {', '.join(near)}." if near else "shoal --continue takes the latest one here."
    raise NoSuchSession(f"There is no session {name!r} in {home}. {hint}", path=home)


def list_sessions(home: Path, cwd: str | None = None, *, limit: int | None = None) -> tuple[Glance, ...]:
    """List sessions of one or all directories, newest first; only the start of each file is read."""
    files = _all_transcripts(home) if cwd is None else _transcripts(project_directory(home, cwd))
    return tuple(
        Glance(
            session=SessionId(Path(file.name).stem),
            path=Path(file.path),
            prompt=_first_prompt(Path(file.path)),
            at=file.stat().st_mtime_ns // 1_000_000,
            size=file.stat().st_size,
        )
        for file in _newest_first(files)[:limit]
    )


def fork_session(path: Path, session: SessionId, *, home: Path, cwd: str) -> Path:
    """Copy a transcript to a new session id in `cwd` and return its path. The original stays unchanged."""
    target = transcript_path(home, cwd, session)
    if target.exists():
        raise StoreError(f"There is already a session {session}: {target}.", path=target)
    write_whole(target, b"".join(_under(session, line) for line in _content(path).split(b"\n")))
    return target


def _under(session: SessionId, line: bytes) -> bytes:
    """Return the line with another session id and the rest unchanged; empty for a torn line."""
    try:
        raw = load(line)
    except ValueError:
        return b""
    if isinstance(raw, dict) and "sessionId" in raw:
        return dump(raw | {"sessionId": session}) + b"\n"
    return line + b"\n"


def _all_transcripts(home: Path) -> Iterator[os.DirEntry[str]]:
    try:
        projects = [entry for entry in os.scandir(home / "projects") if entry.is_dir()]
    except OSError:
        return
    for project in projects:
        yield from _transcripts(Path(project.path))


def _transcripts(project: Path) -> Iterator[os.DirEntry[str]]:
    try:
        entries = list(os.scandir(project))
    except OSError:
        return
    for entry in entries:
        # Some programs store sub-agent transcripts in the same directory as session transcripts.
        if entry.name.endswith(".jsonl") and not entry.name.startswith("agent-") and entry.is_file():
            yield entry


def _newest_first(files: Iterator[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
    there = [file for file in files if _is_there(file)]
    return sorted(there, key=lambda file: (-file.stat().st_mtime_ns, file.name))


def _is_there(file: os.DirEntry[str]) -> bool:
    """Return True if the listed file still exists; this also caches its status."""
    try:
        file.stat()
    except OSError:
        return False
    return True


def _beginning(path: Path) -> Iterator[object]:
    try:
        with path.open("rb") as file:
            head = file.read(_GLANCE)
    except OSError:
        return
    for line in head.split(b"\n"):
        try:
            yield read_line(line).entry
        except ValueError:
            continue


def _first_prompt(path: Path) -> str:
    title = ""
    for entry in _beginning(path):
        if isinstance(entry, Title):
            title = title or entry.text
        elif isinstance(entry, Said) and entry.message.role == "user" and not (entry.meta or entry.summary):
            return entry.message.text
    return title
