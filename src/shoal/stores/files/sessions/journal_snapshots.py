"""Snapshots of journals: state computed up to an offset, so that readers read only the records after it.

A snapshot is derived from the journal and never needed. Readers ignore one that is missing or damaged, or
that was produced by other code or another journal, and read the journal from its start. It is written after
the journal and replaced atomically, so a crash leaves the one before.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import CodeType
from typing import Any, BinaryIO, ClassVar, Protocol, TypeVar

import msgspec
from msgspec import Struct

from shoal.core.journal_progress import JournalProgress, journal_progress
from shoal.core.ports import JournalState
from shoal.stores.files.home.home_paths import open_state_file
from shoal.stores.files.sessions.file_journal import read_journal


class SnapshotState(Protocol):
    """State whose snapshot consists of objects of the classes in `snapshot_modules`."""

    snapshot_modules: ClassVar[tuple[str, ...]]


S = TypeVar("S", bound=JournalState)
T = TypeVar("T", bound=SnapshotState)
SAVE_AFTER = 4 << 20
"""Number of bytes read after a snapshot that cause another one to be written; a short journal gets none."""
_SAMPLE = 4096
"""Number of bytes, at the start of the journal and before the offset, that identify a snapshot's journal."""
_DIGEST_SIZE = 32
_ABANDONED_AFTER = 600.0
_CHUNK = 1 << 20
_PROGRESS_EVENTS = 5_000
_PROGRESS_SECONDS = 1.0


class _SnapshotHeader(Struct, frozen=True, kw_only=True):
    code: str
    """Hash of the code that defines the state."""
    offset: int
    source: str
    """Hash of samples of the file that the state was computed from."""


def load_journal_state(
    journal: Path,
    kind: type[S],
    *,
    settle: Callable[[S], None] | None = None,
    report_problem: Callable[[str], None] | None = None,
) -> tuple[S, int]:
    """Return the state after the last complete record, and the offset after it.

    `settle` may forget what no later record needs; it is called before a snapshot is written.
    """
    path = get_snapshot_path(journal, kind.snapshot_name)
    snapshot = read_snapshot(path, journal, kind)
    state, start = (kind(), 0) if snapshot is None else snapshot
    offset = start
    records = read_journal(journal, start, report_problem=report_problem)
    for record in _report_progress(journal, start, records):
        state.apply_record(record)
        offset = record.next
    if offset - start >= SAVE_AFTER:
        if settle is not None:
            settle(state)
        write_snapshot(path, journal, state, offset)
    return state, offset


def update_journal_snapshots(journal: Path, kinds: Sequence[type[JournalState]]) -> None:
    """Write new snapshots of several kinds; the records since the oldest snapshot are read once."""
    paths = [get_snapshot_path(journal, kind.snapshot_name) for kind in kinds]
    found = [read_snapshot(path, journal, kind) for path, kind in zip(paths, kinds, strict=True)]
    states = [kind() if each is None else each[0] for kind, each in zip(kinds, found, strict=True)]
    starts = [0 if each is None else each[1] for each in found]
    offset = min(starts)
    for record in read_journal(journal, offset):
        for state, start in zip(states, starts, strict=True):
            if record.offset >= start:
                state.apply_record(record)
        offset = record.next
    for path, state, start in zip(paths, states, starts, strict=True):
        if offset - start >= SAVE_AFTER:
            write_snapshot(path, journal, state, offset)


def get_snapshot_path(journal: Path, name: str) -> Path:
    return journal.with_name(f"snapshot-{name}")


def _report_progress(journal: Path, start: int, records: Iterator[Any]) -> Iterator[Any]:
    report = journal_progress.get()
    if report is None:
        return records
    return _iter_with_progress(journal, start, records, report)


def _iter_with_progress(
    journal: Path, start: int, records: Iterator[Any], report: JournalProgress
) -> Iterator[Any]:
    size, last = 0, time.monotonic()
    for number, record in enumerate(records):
        yield record
        if number % _PROGRESS_EVENTS == 0 and (now := time.monotonic()) - last >= _PROGRESS_SECONDS:
            size = size or journal.stat().st_size
            report(journal, record.next - start, size - start)
            last = now


def read_snapshot(path: Path, source: Path, kind: type[T]) -> tuple[T, int] | None:
    """Return the state and its offset in the source; None if there is no valid snapshot for this source."""
    try:
        with open_state_file(path) as file:
            header = msgspec.json.decode(file.readline(_SAMPLE), type=_SnapshotHeader)
            start, end = file.tell(), os.fstat(file.fileno()).st_size - _DIGEST_SIZE
            if header.code != hash_state_code(kind) or header.source != _hash_samples(source, header.offset):
                return None
            if not _has_valid_digest(file, end):
                return None
            file.seek(start)
            state = _unpickle_state(file, kind)
    except (OSError, ValueError, msgspec.DecodeError, EOFError):
        return None
    return (state, header.offset) if isinstance(state, kind) else None


def write_snapshot(path: Path, source: Path, state: SnapshotState, offset: int) -> None:
    """Replace the snapshot. If that fails, the old one stays, and readers read more of the source."""
    with suppress(OSError):
        header = _SnapshotHeader(
            code=hash_state_code(type(state)), offset=offset, source=_hash_samples(source, offset)
        )
        _remove_abandoned_files(path)
        temporary = path.with_name(f".{path.name}.tmp.{os.urandom(4).hex()}")
        try:
            _write_snapshot_file(temporary, header, state)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _remove_abandoned_files(path: Path) -> None:
    """Remove the files of writers that were killed."""
    for temporary in path.parent.glob(f".{path.name}.tmp.*"):
        with suppress(OSError):
            if time.time() - temporary.stat().st_mtime > _ABANDONED_AFTER:
                temporary.unlink()


def _write_snapshot_file(path: Path, header: _SnapshotHeader, state: SnapshotState) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb", buffering=_CHUNK) as file:
        writer = _HashingWriter(file)
        writer.write(msgspec.json.encode(header) + b"\n")
        with _pause_garbage_collection():
            import pickle  # costs some milliseconds, and most processes write no snapshot

            pickle.dump(state, writer, protocol=5)
        file.write(writer.digest.digest())


class _HashingWriter:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = sha256()

    def write(self, content: Any) -> int:
        self.digest.update(content)
        return self._file.write(content)


def _has_valid_digest(file: BinaryIO, end: int) -> bool:
    """Return True if the last bytes of the file are the digest of the bytes before `end`."""
    digest, left = sha256(), end
    file.seek(0)
    while left > 0 and (chunk := file.read(min(_CHUNK, left))):
        digest.update(chunk)
        left -= len(chunk)
    return end > 0 and file.read() == digest.digest()


def _hash_samples(source: Path, offset: int) -> str:
    """Return a hash of the bytes at the start of the file and before the offset: fewer if it is shorter."""
    with open_state_file(source) as file:
        start = file.read(min(_SAMPLE, offset))
        file.seek(max(0, offset - _SAMPLE))
        end = file.read(min(_SAMPLE, offset))
    return sha256(start + end).hexdigest()


@cache
def hash_state_code(kind: type[SnapshotState]) -> str:
    """Return a hash of the code that defines the state: other code may compute another one.

    The loaded code counts, not its files, which an update may have replaced while this process runs.
    """
    digest = sha256(kind.__qualname__.encode())
    for name in kind.snapshot_modules:
        for value in _list_definitions(_import_module(name)):
            digest.update(_describe_definition(value).encode())
    return digest.hexdigest()


def _list_definitions(module: Any) -> Iterator[Any]:
    """Yield the functions, classes and constants of a module, and the members of its classes."""
    for name, value in sorted(vars(module).items()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield f"{name} {getattr(value, '__struct_fields__', ())} {vars(value).get('__annotations__', {})}"
            yield from (member for _, member in sorted(vars(value).items()))
        elif isinstance(value, str | int | float) or getattr(value, "__module__", "") == module.__name__:
            yield value


def _describe_definition(value: Any) -> str:
    value = getattr(value, "__func__", getattr(value, "fget", value))
    code = getattr(value, "__code__", value)
    if isinstance(code, CodeType):
        return f"{code.co_code!r}{code.co_names}{[_describe_definition(each) for each in code.co_consts]}"
    if isinstance(code, frozenset):
        return repr(sorted(map(repr, code)))
    return repr(code) if isinstance(code, str | int | float | tuple | bytes) else ""


def _import_module(name: str) -> Any:
    __import__(name)
    return sys.modules[name]


def _unpickle_state(file: BinaryIO, kind: type[SnapshotState]) -> Any:
    from shoal.stores.files.sessions.state_unpickler import StateUnpickler, UnpicklingError

    with _pause_garbage_collection():
        try:
            return StateUnpickler(file, kind.snapshot_modules).load()
        except UnpicklingError as error:
            raise ValueError(str(error)) from error


@contextmanager
def _pause_garbage_collection() -> Iterator[None]:
    """Pause the collector, which would scan every new object repeatedly."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
