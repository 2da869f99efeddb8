"""Finds damaged state files before a session starts, and sets aside what cannot be used."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path

from msgspec import Struct

from shoal.core.errors import StateFileError
from shoal.core.ids import SessionId
from shoal.stores.files.home.home_paths import read_state_file
from shoal.stores.files.sessions.content_checks import LINE_CHECKS, find_content_problem
from shoal.stores.files.sessions.result_files import read_result_sizes
from shoal.stores.files.sessions.state_file_kinds import (
    FOLLOWED_DIRECTORIES,
    STATE_DIRECTORIES,
    STATE_FILE_KINDS,
    StateFileKind,
    StateFileShape,
)

_NULS = b"\0"
_ASIDE = ".damaged-"
_OTHER_ENTRIES = (".", "spare-")
"""Temporary files, and lock directories that other programs are shown."""
_EMPTY = "it is empty"
_REPORT_SUFFIX = ".md"
"""Suffix of the results that are texts: reports of agents."""
_PART = 64
"""Number of bytes that are checked at the start and at the end."""
_MAX_PARSED_BYTES = 1 << 20
"""Larger objects and texts are only checked at their start and their end."""


def report_damaged_session_files(home: Path, session: SessionId, *, now: int | None) -> tuple[str, ...]:
    """Return a sentence for each damaged file of a session, its teams and its boards.

    Files that cannot be used are renamed, unless `now` is None. Reads only small objects and the first and
    the last bytes of each other file, so that the cost does not grow with history.
    """
    teams = find_led_teams(home, session)
    return _report_damage(home, {"session": (session,), "team": teams, "board": (*teams, session)}, now)


def report_damaged_home_files(home: Path, *, now: int) -> tuple[str, ...]:
    """Return a sentence for each damaged file that all sessions of the home share."""
    return _report_damage(home, {}, now)


def _report_damage(home: Path, names: dict[str, tuple[str, ...]], now: int | None) -> tuple[str, ...]:
    reports: list[str] = []
    for pattern in FOLLOWED_DIRECTORIES:
        reports.extend(
            f"{path} should be a directory, but {damage}. Shoal follows the link. Nothing is lost."
            for path in _expand_pattern(home, pattern, names)
            if (damage := _find_directory_damage(path)) is not None
        )
    for pattern in STATE_DIRECTORIES:
        reports.extend(
            _report_damaged_directory(path, damage, now)
            for path in _expand_pattern(home, pattern, names)
            if (damage := _find_directory_damage(path)) is not None
        )
    for kind in STATE_FILE_KINDS:
        for directory in _expand_pattern(home, kind.directory, names):
            reports.extend(_report_damaged_files_of_kind(directory, kind, names, now))
    return tuple(reports)


def _report_damaged_directory(path: Path, damage: str, now: int | None) -> str:
    report = f"The directory {path} is damaged: {damage}."
    if now is None:
        return report
    return (
        f"{report} It was renamed to {_rename_aside(path, now)}. Shoal creates a new one. The files in the "
        "old one are lost unless you put it back."
    )


def _report_damaged_files_of_kind(
    directory: Path, kind: StateFileKind, names: dict[str, tuple[str, ...]], now: int | None
) -> Iterator[str]:
    if kind.shape == "reader":
        return
    sizes = read_result_sizes(directory) if kind.name == "result" else {}
    for entry in _list_files_of_kind(directory, kind, names):
        path = Path(entry.path)
        try:
            damage = _find_damage(entry, kind, sizes.get(entry.name, kind.size))
            if damage is None or (damage.reason == _EMPTY and _is_drained_overflow(path)):
                continue
            is_set_aside = kind.is_set_aside or not damage.is_file
            aside = ""
            if is_set_aside and now is not None:
                aside = f" It was renamed to {_rename_aside(path, now)}."
        except FileNotFoundError:
            continue  # removed meanwhile
        except OSError as error:
            raise StateFileError(f"Cannot read {path}: {error.strerror}.", path=path) from error
        report = f"The {kind.name} {path} is damaged: {damage.reason}."
        yield f"{report} {kind.lost}" if now is None else f"{report}{aside} {kind.used} {kind.lost}"


def _list_files_of_kind(
    directory: Path, kind: StateFileKind, names: dict[str, tuple[str, ...]]
) -> list[os.DirEntry[str]]:
    """Return the entries of the kind. A file belongs to the first kind of its directory that matches."""
    file_patterns = [
        pattern
        for other in STATE_FILE_KINDS[: STATE_FILE_KINDS.index(kind)]
        if other.directory == kind.directory
        for pattern in _fill_in_names(other.file, names)
    ]
    wanted = set(_fill_in_names(kind.file, names))
    wildcards = [pattern for pattern in wanted if "*" in pattern]
    directories = {path.rpartition("/")[2] for path in STATE_DIRECTORIES}
    try:
        entries = list(os.scandir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StateFileError(f"Cannot read {directory}: {error.strerror}.", path=directory) from error
    # A board has very many files, of which most kinds want one.
    found = [entry for entry in entries if entry.name in wanted or _is_like(entry.name, wildcards)]
    found.sort(key=lambda entry: entry.name)
    return [
        entry
        for entry in found
        if not any(fnmatchcase(entry.name, pattern) for pattern in file_patterns)
        and _ASIDE not in entry.name
        and not (kind.file == "*" and (entry.name in directories or entry.name.startswith(_OTHER_ENTRIES)))
    ]


def _is_like(name: str, patterns: list[str]) -> bool:
    return bool(patterns) and any(fnmatchcase(name, pattern) for pattern in patterns)


def _expand_pattern(home: Path, pattern: str, names: dict[str, tuple[str, ...]]) -> Iterator[Path]:
    for filled in _fill_in_names(pattern, names):
        if "*" in filled:
            yield from sorted(home.glob(filled))
        else:
            yield home / filled


def _fill_in_names(pattern: str, names: dict[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield the pattern for each name that it contains; nothing if there is none."""
    for key in ("session", "team", "board"):
        if f"{{{key}}}" in pattern:
            for name in names.get(key, ()):
                yield pattern.replace(f"{{{key}}}", escape(name) if "*" in pattern else name)
            return
    yield pattern


def find_led_teams(home: Path, session: SessionId) -> tuple[str, ...]:
    """Return the teams of which any file names the session as lead, even if others are damaged."""
    found: set[str] = set()
    marker = session.encode()
    for path in (
        *home.glob("teams/*/config.json"),
        *home.glob("shoal/teams/*/creator"),
        *home.glob("shoal/teams/*/roster.copy"),
    ):
        with suppress(OSError):
            if path.parent.name not in found and marker in read_state_file(path):
                found.add(path.parent.name)
    return tuple(sorted(found))


class _FileDamage(Struct, frozen=True):
    reason: str
    is_file: bool = True


def _find_directory_damage(path: Path) -> str | None:
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(mode):
        return None
    return f"it is a link to {path.readlink()}" if stat.S_ISLNK(mode) else "it is a file"


def _find_damage(entry: os.DirEntry[str], kind: StateFileKind, size: int | None) -> _FileDamage | None:
    if not entry.is_file(follow_symlinks=False):
        if entry.is_symlink():
            return _FileDamage(f"it is a link to {Path(entry.path).readlink()}", is_file=False)
        mode = entry.stat(follow_symlinks=False).st_mode
        kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        return _FileDamage(f"it is {kinds.get(stat.S_IFMT(mode), 'a device')}", is_file=False)
    if kind.shape == "entry":
        return None
    with Path(entry.path).open("rb") as file:
        start = file.read(_PART)
        length = file.seek(0, os.SEEK_END)
        file.seek(max(0, length - _PART))
        end = file.read(_PART)
        # Of a long list, the end is checked: it grows there, and a crash damages it there.
        file.seek(max(0, length - _MAX_PARSED_BYTES) if kind.name in LINE_CHECKS else 0)
        is_small = kind.shape in ("object", "text", "words") and length <= _MAX_PARSED_BYTES
        whole = file.read() if is_small or kind.name in LINE_CHECKS else b""
    # The output of a command is stored when it starts, with no bytes, and grows.
    grows = kind.name == "result" and size == 0
    if size is not None and start and length != size and not grows:
        return _FileDamage(f"it has {length:,} of its {size:,} bytes")
    if kind.name == "result" and (grows or length == size) and not entry.name.endswith(_REPORT_SUFFIX):
        # It may be binary: servers also send images and other files.
        return None if not start or (start + end).strip(_NULS) else _FileDamage("it has NUL bytes")
    reason = _find_content_damage(start, end, kind.shape)
    if reason is None and whole:
        if length > len(whole):
            whole = whole.partition(b"\n")[2]
        reason = find_content_problem(kind, Path(entry.path), whole)
    if reason is None and not start.startswith(kind.start):
        reason = "it has content of another type"
    return None if reason is None else _FileDamage(reason)


def _find_content_damage(start: bytes, end: bytes, shape: StateFileShape) -> str | None:
    if not start:
        return _EMPTY
    if _NULS in start or _NULS in end:
        return "it has NUL bytes"
    if shape == "number" and not _is_number_list(start.split()):
        return "it has content of another type"
    if shape in ("lines", "object") and not start.lstrip().startswith(b"{"):
        return "it has content of another type"
    if shape in ("lines", "words") and not end.endswith(b"\n"):
        return "its last line is incomplete"
    if shape == "object" and not end.rstrip().endswith(b"}"):
        return "its end is missing"
    return None


def _is_number_list(words: list[bytes]) -> bool:
    """Return True if the first word is a number; further ones may be hexadecimal or `-`."""
    return bool(words) and words[0].isdigit() and all(each.isalnum() or each == b"-" for each in words)


def _is_drained_overflow(path: Path) -> bool:
    """Return True if all mail that waited in this file was delivered: its last move emptied it."""
    if path.parent.name != "overflow":
        return False
    with suppress(OSError, ValueError):
        _inode, moved, intended, _first = read_state_file(path.with_suffix(".state")).split()
        return int(moved) < int(intended)
    return False


def _rename_aside(path: Path, now: int) -> Path:
    number = 1
    while True:
        aside = path.with_name(f"{path.name}{_ASIDE}{now}" + (f"-{number}" if number > 1 else ""))
        if not os.path.lexists(aside):
            path.rename(aside)
            return aside
        number += 1
