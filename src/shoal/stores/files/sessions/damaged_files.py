"""Finds damaged files of a session before it is resumed, and sets aside what is no file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from shoal.core.errors import StateFileError
from shoal.core.ids import SessionId
from shoal.stores.files.home.home_paths import get_run_directory, get_subagent_transcripts_directory

_NULS = b"\0"


class StateFileKind(Struct, frozen=True, kw_only=True):
    """Files of one kind. `shape` is `lines` or `object` (both JSON), `text`, or `lock` without content."""

    name: str
    shape: str
    used: str
    """What Shoal uses instead of a damaged file."""
    lost: str


_CONVERSATION = StateFileKind(
    name="conversation",
    shape="lines",
    used="The lines that can be read are used.",
    lost="The rest of the conversation is lost.",
)
_AGENT_FACTS = StateFileKind(
    name="description of an agent",
    shape="object",
    used="Nothing replaces it.",
    lost="The agent cannot be resumed until the file is repaired.",
)
_JOURNAL = StateFileKind(
    name="journal",
    shape="lines",
    used="The events that can be read are used, and transcripts, mail and tasks are complete without it.",
    lost="The other events, and their costs, are lost.",
)
_CHECKPOINTS = StateFileKind(
    name="list of file checkpoints",
    shape="lines",
    used="The entries that can be read are used.",
    lost="The other changes cannot be undone.",
)
_RESULT = StateFileKind(
    name="result",
    shape="text",
    used="The excerpt in the conversation is used.",
    lost="The full text is lost.",
)
_QUESTION = StateFileKind(
    name="question",
    shape="object",
    used="The agent asks its question again.",
    lost="The question, or the answer to it, is lost.",
)
_LOCK = StateFileKind(name="lock file", shape="lock", used="A new one is created.", lost="Nothing is lost.")


def report_damaged_session_files(
    home: Path, session: SessionId, transcript: Path, *, now: int
) -> tuple[str, ...]:
    """Return a sentence for each damaged file of a session. Entries that are not regular files are
    renamed.

    Reads only the first and the last bytes of each file, so that its cost does not grow with history.
    """
    run = get_run_directory(home, session)
    reports: list[str] = []
    for kind, path in _list_session_files(run, transcript):
        try:
            damage = _find_damage(path, kind.shape)
            if damage is None:
                continue
            aside = "" if damage.is_file else f" It was renamed to {_rename_aside(path, now)}."
        except OSError as error:
            raise StateFileError(f"Cannot read {path}: {error.strerror}.", path=path) from error
        reports.append(f"The {kind.name} {path} is damaged: {damage.reason}.{aside} {kind.used} {kind.lost}")
    return tuple(reports)


def _list_session_files(run: Path, transcript: Path) -> Iterator[tuple[StateFileKind, Path]]:
    yield _LOCK, run / "lock"
    yield _CONVERSATION, transcript
    agents = get_subagent_transcripts_directory(transcript)
    yield from ((_CONVERSATION, path) for path in sorted(agents.glob("*.jsonl")))
    yield from ((_AGENT_FACTS, path) for path in sorted(agents.glob("*.meta.json")))
    yield _JOURNAL, run / "journal.jsonl"
    yield _CHECKPOINTS, run / "checkpoints" / "index.jsonl"
    yield from ((_RESULT, path) for path in sorted((run / "results").glob("*.md")))
    yield from ((_QUESTION, path) for path in sorted((run / "questions").glob("*.json")))


class _FileDamage(Struct, frozen=True):
    reason: str
    is_file: bool = True


def _find_damage(path: Path, shape: str) -> _FileDamage | None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "a link"
        return _FileDamage(f"it is {kind if not stat.S_ISFIFO(status.st_mode) else 'a pipe'}", is_file=False)
    if shape == "lock":
        return None
    with path.open("rb") as file:
        start = file.read(64)
        file.seek(max(0, status.st_size - 64))
        end = file.read(64)
    reason = _find_content_damage(start, end, shape)
    return None if reason is None else _FileDamage(reason)


def _find_content_damage(start: bytes, end: bytes, shape: str) -> str | None:
    if not start:
        return "it is empty"
    if _NULS in start or _NULS in end:
        return "it has NUL bytes"
    if shape != "text" and not start.lstrip().startswith(b"{"):
        return "it has content of another type"
    if shape == "lines" and not end.endswith(b"\n"):
        return "its last line is incomplete"
    if shape == "object" and not end.rstrip().endswith(b"}"):
        return "its end is missing"
    return None


def _rename_aside(path: Path, now: int) -> Path:
    number = 1
    while True:
        aside = path.with_name(f"{path.name}.damaged-{now}" + (f"-{number}" if number > 1 else ""))
        if not os.path.lexists(aside):
            path.rename(aside)
            return aside
        number += 1
