"""Marks in git's index that make git leave hidden files alone while commands of the sandbox run.

The sandbox shows a hidden file as empty, so `git add -A` would record that it was emptied or deleted. In the
index, such a file has git's skip-worktree mark as long as a command runs. A file under Shoal's home records
what has been marked; its lock is held by each process that has commands running, and the last one removes the
marks. After a crash, the next command does so.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha1
from pathlib import Path

import msgspec
from msgspec import Struct

from shoal.workspaces.git_index import (
    INDEX_ERRORS,
    IndexEntry,
    check_index_can_be_marked,
    is_tracked,
    list_entries_below,
    list_skipped_names,
    mark_entries,
    read_index,
)
from shoal.workspaces.git_paths import find_git_directory, find_work_tree, get_git_common_directory

_ATTEMPTS = 100
_PAUSE = 0.02
_MAX_INFO_FILE = 1_000_000
_KEPT_COPIES = 8
_SPECIAL = re.compile(r"([\\*?\[\]!# ])")
_ESCAPED = r"\\\1"
_ACTIVE_SPARSE_CHECKOUT = re.compile(
    r"(?:^|\])\s*sparsecheckout\s*(?:$|[;#]|=(?!\s*(?:false|no|off|0)\s*(?:$|[;#])))",
    re.IGNORECASE | re.MULTILINE,
)
_SETTINGS_FILE = "settings-of-commands"
_SETTINGS = b"""\
[core]
\tsparseCheckout = true
\tsparseCheckoutCone = false
[sparse]
\t; Otherwise git removes the mark of a file that is there, even if it is empty only in the sandbox.
\texpectFilesOutsideOfPatterns = true
[advice]
\tupdateSparsePath = false
"""
"""Settings of git in commands: a checkout or merge does not write the marked files."""
_WILDCARDS = re.compile(r"([\\*?\[\]])")


class HiddenFilesInRepositories(Struct, frozen=True):
    """Git directories with hidden files: those that can be marked, and those that must be read-only."""

    markable: dict[Path, tuple[Path, ...]]
    unmarkable: dict[Path, Path]
    information: dict[Path, Path]
    """Directories of git's own ignored and sparse paths, with the copies that commands read instead."""
    settings: dict[str, str]
    """Settings of git in commands. They apply only to the repositories that can be marked."""


class _Record(Struct):
    """Hidden paths of an index, and the names in it that the user had marked before."""

    hidden: list[str] = []
    kept: list[str] = []
    git_directory: str = ""
    versions: dict[str, str] = {}
    """Content that git had of each hidden file before the first command, as hexadecimal digits."""


def plan_hidden_files(
    hidden: Sequence[Path], copies: Path, records: Path, work: Sequence[Path]
) -> HiddenFilesInRepositories:
    """Find the repositories of hidden files, and those in `work` whose marks a crash left."""
    markable: dict[Path, list[Path]] = {}
    unmarkable: dict[Path, Path] = {}
    information: dict[Path, Path] = {}
    inside: dict[Path, list[Path]] = {}
    for path in dict.fromkeys(hidden):
        if os.path.lexists(path) and (found := find_git_directory(path)) is not None:
            git_directory, top = found
            inside.setdefault(git_directory, []).append(path)
            if is_tracked(path, git_directory, top):
                # Neither a pattern nor the name of a setting can contain the end of a line.
                if (
                    "\n" not in str(path)
                    and "\n" not in str(git_directory)
                    and can_mark_hidden_files(git_directory)
                ):
                    markable.setdefault(git_directory, []).append(path)
                else:
                    unmarkable.setdefault(git_directory, path)
    for git_directory, paths in inside.items():
        if git_directory not in unmarkable:
            information |= _copy_information(git_directory, paths, markable.get(git_directory, ()), copies)
    for directory in work:
        found = find_git_directory(directory / "file")
        if found and found[0] not in unmarkable and _get_record_path(records, found[0]).exists():
            markable.setdefault(found[0], [])
    marked = {each: tuple(paths) for each, paths in markable.items() if each not in unmarkable}
    settings = {
        f"includeIf.gitdir:{_WILDCARDS.sub(_ESCAPED, str(each))}.path": str(each / "info" / _SETTINGS_FILE)
        for each, paths in marked.items()
        if paths
    }
    return HiddenFilesInRepositories(marked, unmarkable, information, settings)


def can_mark_hidden_files(git_directory: Path) -> bool:
    """Return False for an index of an unknown format, and for a sparse checkout, in which git sets marks."""
    common = get_git_common_directory(git_directory)
    files = (common / "config", common / "config.worktree", git_directory / "config.worktree")
    stamps = []
    for path in (git_directory / "index", *files):
        try:
            status = path.stat()
            stamps.append((str(path), status.st_mtime_ns, status.st_size))
        except OSError:
            stamps.append((str(path), 0, 0))
    return _check_files_of_repository(tuple(stamps))


@lru_cache(maxsize=64)
def _check_files_of_repository(stamps: tuple[tuple[str, int, int], ...]) -> bool:
    index, *settings = (Path(path) for path, _, _ in stamps)
    try:
        content = read_index(index)[0]
        check_index_can_be_marked(content)
        if any(b"\n" in name for name in list_skipped_names(content)):
            return False
        for path in settings:
            with suppress(FileNotFoundError):
                if _ACTIVE_SPARSE_CHECKOUT.search(read_index(path)[0].decode(errors="replace")):
                    return False
    except INDEX_ERRORS:
        return False
    return True


def _copy_information(
    git_directory: Path, hidden: Sequence[Path], tracked: Sequence[Path], copies: Path
) -> dict[Path, Path]:
    """Write copies of git's `info` directories in which hidden files are ignored and not checked out."""
    top, common = find_work_tree(git_directory), get_git_common_directory(git_directory)
    patterns = {
        "exclude": (common / "info", _format_patterns("/", hidden, top)),
        "sparse-checkout": (
            git_directory / "info",
            # Git would remove the user's own marks from files that the patterns include, and then write them.
            "/*\n" + _format_patterns("!/", [*tracked, *_list_skipped_files(git_directory, top)], top),
        ),
    }
    texts: dict[Path, dict[str, bytes]] = {}
    for name, (directory, text) in patterns.items():
        if name == "sparse-checkout" and not tracked:
            continue
        with suppress(OSError):
            # Git creates the directory too; a mount needs something to cover.
            directory.mkdir(exist_ok=True)
        files = texts.setdefault(directory, _read_small_files(directory))
        before = files.get(name, b"") + b"\n" if name == "exclude" else b""
        files[name] = before + text.encode(errors="surrogateescape")
        if name == "sparse-checkout":
            files[_SETTINGS_FILE] = _SETTINGS
    return {
        directory: _write_copy(files, copies)
        for directory, files in texts.items()
        if directory.is_dir() and not directory.is_symlink()
    }


def _list_skipped_files(git_directory: Path, top: Path) -> list[Path]:
    with suppress(*INDEX_ERRORS):
        return [
            top / os.fsdecode(name) for name in list_skipped_names(read_index(git_directory / "index")[0])
        ]
    return []


def _format_patterns(prefix: str, paths: Sequence[Path], top: Path) -> str:
    names = [path.relative_to(top).as_posix() for path in paths if path.is_relative_to(top) and path != top]
    return "".join(f"{prefix}{_SPECIAL.sub(_ESCAPED, name)}\n" for name in names)


def _read_small_files(directory: Path) -> dict[str, bytes]:
    """Read the files of a directory. A link could lead to anything, so it is left out."""
    files: dict[str, bytes] = {}
    if directory.is_symlink():
        return files
    with suppress(OSError):
        for path in directory.iterdir():
            with suppress(*INDEX_ERRORS):
                if path.lstat().st_size <= _MAX_INFO_FILE:
                    files[path.name] = read_index(path)[0]
    return files


def _write_copy(files: Mapping[str, bytes], copies: Path) -> Path:
    digest = sha1(msgspec.msgpack.encode(sorted(files.items())), usedforsecurity=False).hexdigest()
    copy = copies / digest
    if not copy.is_dir():
        unfinished = copies / f"{digest}.{os.getpid()}"
        unfinished.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, content in files.items():
            (unfinished / name).write_bytes(content)
        with suppress(OSError):  # another command was first
            unfinished.rename(copy)
        _remove_old_copies(copies)
    return copy


def _remove_old_copies(copies: Path) -> None:
    """Remove all except the newest copies, which commands may be about to use."""
    import shutil

    found = sorted(copies.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    for path in found[:-_KEPT_COPIES]:
        shutil.rmtree(path, ignore_errors=True)


def _get_record_path(records: Path, git_directory: Path) -> Path:
    return records / sha1(os.fsencode(git_directory), usedforsecurity=False).hexdigest()


class HiddenFileMarks:
    """Marks hidden files for the running commands of one sandbox. `records` is under Shoal's home."""

    def __init__(self, records: Path) -> None:
        self._records = records
        self._users = 0
        self._turn = asyncio.Lock()
        self._locks: dict[Path, int] = {}
        self._hidden: dict[Path, set[str]] = {}
        self._versions: dict[Path, dict[bytes, bytes]] = {}

    async def acquire(self, repositories: Mapping[Path, Sequence[Path]]) -> tuple[Path, ...]:
        """Mark the hidden files, for one more command. Return the git directories where that failed."""
        self._users += 1
        failed: list[Path] = []
        try:
            async with self._turn:
                for git_directory, paths in repositories.items():
                    try:
                        await self._mark(git_directory, paths)
                    except INDEX_ERRORS:
                        failed.append(git_directory)
        except BaseException:
            self._users -= 1
            raise
        return tuple(failed)

    async def release(self) -> tuple[Path, ...]:
        """End the use by one command. Return the hidden files of which git has another version now."""
        self._users -= 1
        async with self._turn:
            changed: list[Path] = []
            for git_directory in self._locks:
                with suppress(*INDEX_ERRORS):
                    changed += self._list_changed(git_directory)
            if not self._users:
                for git_directory, lock in self._locks.items():
                    with suppress(*INDEX_ERRORS):
                        # Otherwise another process has commands running, and removes the marks later.
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        await self._unmark(git_directory, lock)
                    os.close(lock)
                self._locks, self._hidden, self._versions = {}, {}, {}
        return tuple(changed)

    async def _mark(self, git_directory: Path, paths: Sequence[Path]) -> None:
        if git_directory not in self._locks:
            self._locks[git_directory] = await self._open_record(git_directory)
        lock, top = self._locks[git_directory], find_work_tree(git_directory)
        hidden = self._hidden.setdefault(git_directory, set())
        hidden.update(str(path.relative_to(top)) for path in paths)
        names = [os.fsencode(name) for name in hidden]
        async with _IndexLock(git_directory / "index") as index:
            record = _read_record(lock)
            entries = list_entries_below(index.content, names)
            self._versions[git_directory] = _map_versions(entries) | self._versions.get(git_directory, {})
            if any(each.is_unmerged for each in entries):
                raise ValueError("a conflict in a hidden file, which git would resolve with an empty one")
            new = [name for name in hidden if name not in record.hidden]
            # Git that the user runs meanwhile may write back marks that Shoal has already removed.
            added = [
                each
                for each in entries
                if each.is_skipped
                and not each.is_skipped_by_shoal
                and _is_below(each.name, new, record.hidden)
            ]
            versions = {os.fsdecode(name): each.hex() for name, each in _map_versions(entries).items()}
            _write_record(
                lock,
                _Record(
                    hidden=[*record.hidden, *new],
                    kept=[*record.kept, *(os.fsdecode(each.name) for each in added)],
                    git_directory=str(git_directory),
                    versions=versions | record.versions,
                ),
            )
            if any(not each.is_skipped for each in entries):
                index.mark({each.name: True for each in entries})

    def _list_changed(self, git_directory: Path) -> list[Path]:
        if git_directory not in self._versions:  # the index was locked, so commands could not change it
            return []
        names = [os.fsencode(name) for name in self._hidden[git_directory]]
        content = read_index(git_directory / "index")[0]
        versions = _map_versions(list_entries_below(content, names))
        before, self._versions[git_directory] = self._versions[git_directory], versions
        changed = [name for name in before.keys() | versions.keys() if before.get(name) != versions.get(name)]
        top = find_work_tree(git_directory)
        return [top / os.fsdecode(name) for name in sorted(changed)]

    async def _unmark(self, git_directory: Path, lock: int) -> None:
        async with _IndexLock(git_directory / "index") as index:
            _remove_marks(index, _read_record(lock))
        _get_record_path(self._records, git_directory).unlink(missing_ok=True)

    async def _open_record(self, git_directory: Path) -> int:
        """Open and lock the record; another process may remove it meanwhile."""
        self._records.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = _get_record_path(self._records, git_directory)
        for _ in range(_ATTEMPTS):
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if path.exists() and os.path.samestat(os.fstat(lock), path.stat()):
                    return lock
            except BlockingIOError:
                pass
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)
            await asyncio.sleep(_PAUSE)
        raise BlockingIOError(path)


def remove_leftover_marks(records: Path) -> tuple[Path, ...]:
    """Remove the marks of killed processes. Return the hidden files of which git has another version now.

    A repository that git is changing is left to the next command in it, which removes the marks too.
    """
    changed: list[Path] = []
    try:
        paths = sorted(records.iterdir())
    except OSError:
        return ()
    for path in paths:
        with suppress(*INDEX_ERRORS):
            lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                record = _read_record(lock)
                # Otherwise it stays, as for a disk that is not mounted: nothing else leads to the marks.
                if record.git_directory and (Path(record.git_directory) / "index").exists():
                    changed += _remove_leftover(record)
                    path.unlink(missing_ok=True)
            finally:
                os.close(lock)
    return tuple(changed)


def _remove_leftover(record: _Record) -> list[Path]:
    git_directory = Path(record.git_directory)
    index = _IndexLock(git_directory / "index")
    index.acquire()
    try:
        _remove_marks(index, record)
        names = [os.fsencode(name) for name in record.hidden]
        versions = _map_versions(list_entries_below(index.content, names))
    finally:
        index.release()
    now = {os.fsdecode(name): version.hex() for name, version in versions.items()}
    before = record.versions
    changed = [name for name in now.keys() | before.keys() if now.get(name) != before.get(name)]
    top = find_work_tree(git_directory)
    return [top / name for name in sorted(changed)]


def _remove_marks(index: _IndexLock, record: _Record) -> None:
    entries = list_entries_below(index.content, [os.fsencode(name) for name in record.hidden])
    marks = {
        each.name: False
        for each in entries
        if each.is_skipped_by_shoal or (each.is_skipped and os.fsdecode(each.name) not in record.kept)
    }
    if marks:
        index.mark(marks)


class _IndexLock:
    """Git's own lock of an index, so that neither git nor Shoal loses a change of the other."""

    def __init__(self, index: Path) -> None:
        self._index = index
        self._path = index.with_name("index.lock")
        self._handle = -1
        self._status: os.stat_result | None = None
        self.content = b""

    async def __aenter__(self) -> _IndexLock:
        for attempt in range(_ATTEMPTS):
            try:
                self.acquire()
                break
            except FileExistsError:
                if attempt == _ATTEMPTS - 1:
                    raise
                await asyncio.sleep(_PAUSE)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Take the lock and read the index; raise `FileExistsError` if git holds the lock."""
        self._handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self.content, self._status = read_index(self._index)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            self._path.unlink(missing_ok=True)

    def mark(self, marks: dict[bytes, bool]) -> None:
        """Replace the index. It keeps its time: git compares it with the times of files to find changes."""
        assert self._status is not None
        content = mark_entries(self.content, marks, self._status.st_dev)
        with os.fdopen(self._handle, "wb", closefd=False) as file:
            file.write(content)
        os.fchmod(self._handle, self._status.st_mode & 0o777)
        os.utime(self._handle, ns=(self._status.st_atime_ns, self._status.st_mtime_ns))
        self._path.replace(self._index)
        os.close(self._handle)
        self._handle = -1


def _map_versions(entries: Sequence[IndexEntry]) -> dict[bytes, bytes]:
    """Return the recorded content of each name; in the middle of a merge it has several."""
    versions: dict[bytes, bytes] = {}
    for each in entries:
        versions[each.name] = versions.get(each.name, b"") + each.version
    return versions


def _is_below(name: bytes, new: Sequence[str], known: Sequence[str]) -> bool:
    """Return True if an entry became hidden only now, so that its mark is the user's own."""
    text = os.fsdecode(name)
    return any(text == each or text.startswith(f"{each}/") for each in new) and not any(
        text == each or text.startswith(f"{each}/") for each in known
    )


def _read_record(lock: int) -> _Record:
    size = os.fstat(lock).st_size
    with suppress(msgspec.DecodeError):
        content = os.pread(lock, size, 0).rstrip(b"\0")
        return msgspec.json.decode(content, type=_Record) if content else _Record()
    return _Record()


def _write_record(lock: int, record: _Record) -> None:
    content = msgspec.json.encode(record)
    if content != os.pread(lock, len(content) + 1, 0):
        # A full disk must not leave half of a record, which would lose the marks.
        _reserve_space(lock, len(content))
        if os.pwrite(lock, content, 0) != len(content):
            raise OSError(errno.ENOSPC, "the record of marks could not be written")
        os.ftruncate(lock, len(content))


def _reserve_space(handle: int, size: int) -> None:
    """Make sure that so many bytes can be written, where the system can do that."""
    reserve = getattr(os, "posix_fallocate", None)
    if reserve is not None:
        try:
            reserve(handle, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
