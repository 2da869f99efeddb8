"""A disk that forgets what was not flushed: recorded system calls are replayed on it, one by one."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

TRACED_CALLS = (
    "open,openat,creat,write,pwrite64,lseek,ftruncate,fsync,fdatasync,close,dup,dup2,dup3,"
    "rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir"
)
_CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+)(?:<((?:[^>\\]|\\.)*)>)?", re.DOTALL)
_ARGUMENT = re.compile(
    r'\s*(?:"((?:[^"\\]|\\.)*)"|(AT_FDCWD|-?\d+)<((?:[^>\\]|\\.)*)>(?:\(deleted\))?|([^,]+))'
)
STANDARD_OUTPUT = 1


@dataclass
class ModelFile:
    content: bytearray = field(default_factory=bytearray)
    flushed: bytes = b""


@dataclass
class ModelDirectory:
    entries: dict[str, ModelFile | ModelDirectory] = field(default_factory=dict)
    flushed: dict[str, ModelFile | ModelDirectory] = field(default_factory=dict)


@dataclass
class _OpenFile:
    file: ModelFile
    appends: bool
    offset: int = 0


@dataclass(frozen=True)
class TracedArgument:
    text: str
    data: bytes
    """Content of a string argument."""
    path: str
    """Path of a descriptor at the time of the call."""

    @property
    def name(self) -> str:
        return self.data.decode()


@dataclass(frozen=True)
class TracedCall:
    name: str
    arguments: tuple[TracedArgument, ...]
    result: int


def read_trace(path: Path) -> Iterator[TracedCall]:
    """Yield the calls that succeeded, in the order of the trace."""
    for line in path.read_text(errors="surrogateescape").splitlines():
        found = _CALL.match(line)
        if found is None or found[3].startswith("-"):
            continue
        arguments = tuple(
            TracedArgument(
                text=(match[2] or match[4] or "").strip(),
                data=_decode_hex(match[1] or ""),
                path=_decode_hex(match[3] or "").decode(),
            )
            for match in _ARGUMENT.finditer(found[2])
            if match[0].strip()
        )
        yield TracedCall(found[1], arguments, int(found[3], 0))


def _decode_hex(text: str) -> bytes:
    """Return the bytes that strace printed with -xx."""
    return bytes.fromhex(text.replace("\\x", "")) if text.startswith("\\x") else text.encode()


class DiskModel:
    """Tree below `root`: its present state, and what a power cut leaves of it."""

    def __init__(self, root: Path) -> None:
        self._root_path = PurePosixPath(root)
        self._root = ModelDirectory()
        self._open_files: dict[int, _OpenFile] = {}
        self._renames: list[tuple[ModelDirectory, ModelDirectory]] = []
        self.output = b""
        """Bytes that the program wrote to its standard output."""

    def apply(self, call: TracedCall) -> bool:
        """Apply a call; return True if it changed the disk or the output."""
        apply = getattr(self, f"_apply_{call.name}", None)
        return apply is not None and apply(call) is not False

    def list_crash_images(self) -> dict[str, dict[str, bytes | None]]:
        """Return the trees that a crash at this moment can leave: path to content, None for a directory."""
        return {
            "process killed": _list_tree(self._root, lambda _: True, flushed_content=False),
            "content lost": _list_tree(self._root, lambda _: True, flushed_content=True),
            "names and content lost": _list_tree(self._root, lambda _: False, flushed_content=True),
            **self._list_partial_images(),
        }

    def _list_partial_images(self) -> dict[str, dict[str, bytes | None]]:
        """Return what is left if the names of one directory were written, and no others since the flush."""
        images = {}
        for path, directory in _list_directories(self._root):
            if directory.entries != directory.flushed:
                kept = self._find_renamed_together(directory)
                images[f"names lost except in /{path}"] = _list_tree(
                    self._root, lambda each, kept=kept: id(each) in kept, flushed_content=True
                )
        return images

    def _find_renamed_together(self, directory: ModelDirectory) -> set[int]:
        """Return the ids of this directory and of those that exchanged names with it since the flush."""
        found = {id(directory)}
        while True:
            more = {
                id(each) for pair in self._renames if any(id(one) in found for one in pair) for each in pair
            }
            if more <= found:
                return found
            found |= more

    # Paths

    def _resolve(self, directory: str, name: str) -> tuple[ModelDirectory, str] | None:
        """Return the parent directory in the model and the last name; None outside the root."""
        path = PurePosixPath(directory) / name
        if not path.is_relative_to(self._root_path):
            return None
        parts = path.relative_to(self._root_path).parts
        parent = self._root
        for part in parts[:-1]:
            found = parent.entries.get(part)
            if not isinstance(found, ModelDirectory):
                return None
            parent = found
        return (parent, parts[-1]) if parts else None

    def _find_directory(self, path: str) -> ModelDirectory | None:
        if PurePosixPath(path) == self._root_path:
            return self._root
        found = self._resolve(path, "")
        entry = None if found is None else found[0].entries.get(found[1])
        return entry if isinstance(entry, ModelDirectory) else None

    # Files

    def _apply_openat(self, call: TracedCall) -> bool:
        directory, name, opened_with, *_ = call.arguments
        flags = opened_with.text
        found = self._resolve(directory.path, name.name)
        self._open_files.pop(call.result, None)
        if found is None or "O_DIRECTORY" in flags:
            return False
        parent, last = found
        existing = parent.entries.get(last)
        if isinstance(existing, ModelDirectory) or (existing is None and "O_CREAT" not in flags):
            return False
        file = existing or ModelFile()
        parent.entries[last] = file
        if "O_TRUNC" in flags:
            file.content.clear()
        self._open_files[call.result] = _OpenFile(file, appends="O_APPEND" in flags)
        return existing is None or "O_TRUNC" in flags

    def _get_open_file(self, call: TracedCall) -> _OpenFile | None:
        return self._open_files.get(int(call.arguments[0].text))

    def _apply_write(self, call: TracedCall) -> bool:
        data = call.arguments[1].data[: call.result]
        opened = self._get_open_file(call)
        if opened is None:
            if int(call.arguments[0].text) == STANDARD_OUTPUT:
                self.output += data
                return True
            return False
        start = len(opened.file.content) if opened.appends else opened.offset
        _put(opened.file.content, start, data)
        opened.offset = start + len(data)
        return True

    def _apply_pwrite64(self, call: TracedCall) -> bool:
        opened = self._get_open_file(call)
        if opened is None:
            return False
        _put(opened.file.content, int(call.arguments[3].text), call.arguments[1].data[: call.result])
        return True

    def _apply_lseek(self, call: TracedCall) -> bool:
        opened = self._get_open_file(call)
        if opened is not None:
            opened.offset = call.result
        return False

    def _apply_ftruncate(self, call: TracedCall) -> bool:
        opened = self._get_open_file(call)
        if opened is None:
            return False
        size = int(call.arguments[1].text)
        content = opened.file.content
        changed = size != len(content)
        content[size:] = b"\0" * max(0, size - len(content))
        return changed

    def _apply_close(self, call: TracedCall) -> bool:
        self._open_files.pop(int(call.arguments[0].text), None)
        return False

    # Flushing

    def _apply_fsync(self, call: TracedCall) -> bool:
        opened = self._get_open_file(call)
        if opened is not None:
            opened.file.flushed = bytes(opened.file.content)
            return True
        directory = self._find_directory(call.arguments[0].path)
        if directory is None:
            return False
        self._flush_directory(directory)
        return True

    _apply_fdatasync = _apply_fsync

    def _flush_directory(self, directory: ModelDirectory) -> None:
        directory.flushed = dict(directory.entries)
        # File systems record a rename as one change, so it is never flushed in one of its directories only.
        others = [pair for pair in self._renames if any(each is directory for each in pair)]
        self._renames = [pair for pair in self._renames if all(each is not directory for each in pair)]
        for pair in others:
            for other in pair:
                if other is not directory:
                    self._flush_directory(other)

    # Names

    def _apply_mkdirat(self, call: TracedCall) -> bool:
        directory, name, *_ = call.arguments
        return self._make_directory(directory.path, name.name)

    def _apply_mkdir(self, call: TracedCall) -> bool:
        return self._make_directory("/", call.arguments[0].name)

    def _make_directory(self, directory: str, name: str) -> bool:
        found = self._resolve(directory, name)
        if found is None:
            return False
        found[0].entries[found[1]] = ModelDirectory()
        return True

    def _apply_rename(self, call: TracedCall) -> bool:
        old, new = call.arguments
        return self._move(("/", old.name), ("/", new.name), exchange=False)

    def _apply_renameat(self, call: TracedCall) -> bool:
        old_directory, old, new_directory, new, *flags = call.arguments
        exchange = bool(flags) and "RENAME_EXCHANGE" in flags[0].text
        return self._move((old_directory.path, old.name), (new_directory.path, new.name), exchange=exchange)

    _apply_renameat2 = _apply_renameat

    def _move(self, old: tuple[str, str], new: tuple[str, str], *, exchange: bool) -> bool:
        source, target = self._resolve(*old), self._resolve(*new)
        if source is None or target is None:
            return False
        entry = source[0].entries.pop(source[1])
        if exchange:
            source[0].entries[source[1]] = target[0].entries[target[1]]
        target[0].entries[target[1]] = entry
        self._renames.append((source[0], target[0]))
        return True

    def _apply_linkat(self, call: TracedCall) -> bool:
        old_directory, old, new_directory, new, *_ = call.arguments
        return self._link((old_directory.path, old.name), (new_directory.path, new.name))

    def _apply_link(self, call: TracedCall) -> bool:
        old, new = call.arguments
        return self._link(("/", old.name), ("/", new.name))

    def _link(self, old: tuple[str, str], new: tuple[str, str]) -> bool:
        source, target = self._resolve(*old), self._resolve(*new)
        if source is None or target is None:
            return False
        target[0].entries[target[1]] = source[0].entries[source[1]]
        return True

    def _apply_unlinkat(self, call: TracedCall) -> bool:
        directory, name, *_ = call.arguments
        return self._remove(directory.path, name.name)

    def _apply_unlink(self, call: TracedCall) -> bool:
        return self._remove("/", call.arguments[0].name)

    _apply_rmdir = _apply_unlink

    def _remove(self, directory: str, name: str) -> bool:
        found = self._resolve(directory, name)
        if found is None:
            return False
        found[0].entries.pop(found[1], None)
        return True


def write_tree(tree: dict[str, bytes | None], target: Path) -> None:
    """Write a crash image into an empty directory, as old as after a reboot.

    Two names of one file become two files.
    """
    for name, content in tree.items():
        path = target / name
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)
    for name in tree:
        os.utime(target / name, (0, 0))


def _put(content: bytearray, start: int, data: bytes) -> None:
    content.extend(b"\0" * max(0, start - len(content)))
    content[start : start + len(data)] = data


def _list_directories(root: ModelDirectory, prefix: str = "") -> Iterator[tuple[str, ModelDirectory]]:
    """Yield the directories that a power cut leaves, with their paths."""
    yield prefix, root
    for name, entry in root.flushed.items():
        if isinstance(entry, ModelDirectory):
            yield from _list_directories(entry, f"{prefix}{name}/")


def _list_tree(
    root: ModelDirectory, keeps_names: Callable[[ModelDirectory], bool], *, flushed_content: bool
) -> dict[str, bytes | None]:
    """List the tree, with the present names of directories that keep them, and the flushed ones of others."""
    tree: dict[str, bytes | None] = {}

    def walk(directory: ModelDirectory, prefix: str) -> None:
        for name, entry in (directory.entries if keeps_names(directory) else directory.flushed).items():
            if isinstance(entry, ModelDirectory):
                tree[prefix + name] = None
                walk(entry, f"{prefix}{name}/")
            else:
                tree[prefix + name] = entry.flushed if flushed_content else bytes(entry.content)

    walk(root, "")
    return tree
