"""Cache of parsed definition files below a directory; a refresh costs one stat per directory and file."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from shoal.app.settings.stamps import Stamp, is_still, stamp
from shoal.core.definitions import Problem, Source, SourceKind
from shoal.core.errors import BadDefinition, SettingsError
from shoal.policy.rules import parse_rule
from shoal.wire.definitions import Parsed, read_definition

Found: TypeAlias = Parsed | Problem
Item = TypeVar("Item")

LARGEST = 1_000_000
"""Maximum size of a definition file."""
_MOST_FILES = 2_000


class _Kept(Struct, Generic[Item], frozen=True):
    stamp: Stamp
    found: Item | Problem


class Files(Generic[Item]):
    """Parsed files below `root`. `read` returns the parsed item, or the problem with the file.

    Nothing is read before the first refresh. A cache with `is_fixed` is refreshed once: files shipped with
    the program do not change while it runs.
    """

    def __init__(
        self,
        root: Path,
        kind: SourceKind,
        read: Callable[[Path], Item | Problem],
        *,
        wanted: Callable[[str], bool] = lambda name: name.endswith(".md"),
        deepest: int | None = None,
        fixed: bool = False,
    ) -> None:
        """`max_depth` limits how far below the root files are searched."""
        self.root = root
        self._kind = kind
        self._read = read
        self._wanted = wanted
        self._deepest = deepest
        self._fixed = fixed
        self._directories: dict[str, Stamp] | None = None
        self._files: dict[str, _Kept[Item]] = {}
        self._paths: tuple[str, ...] = ()
        self._unread: tuple[Problem, ...] = ()

    def look(self) -> bool:
        """Read changed files again; return True if any result differs from the last refresh."""
        if self._is_as_seen():
            return False
        before = self.found
        self._walk()
        kept = {path: self._fresh(path) for path in self._paths}
        self._files = {path: state for path, state in kept.items() if state is not None}
        return self.found != before

    def _is_as_seen(self) -> bool:
        if self._directories is None or self._fixed:
            return self._directories is not None
        for path, seen in self._directories.items():
            if not is_still(path, seen):
                return False
        return not self._files or all(is_still(path, kept.stamp) for path, kept in self._files.items())

    @property
    def found(self) -> tuple[Item | Problem, ...]:
        """Items and problems, ordered by path."""
        return (*(kept.found for kept in self._files.values()), *self._unread)

    def _walk(self) -> None:
        directories: dict[str, Stamp] = {}
        unread: list[Problem] = []
        paths: list[str] = []
        seen: set[tuple[int, int]] = set()
        waiting = [(str(self.root), 0)]
        while waiting:
            directory, depth = waiting.pop()
            directories[directory] = stamp(directory)
            try:
                place = os.stat(directory)  # noqa: PTH116
                if (place.st_dev, place.st_ino) in seen:
                    continue  # a symlink that leads back up
                seen.add((place.st_dev, place.st_ino))
                with os.scandir(directory) as entries:
                    visible = [entry for entry in entries if not entry.name.startswith(".")]
                paths += [entry.path for entry in visible if self._wanted(entry.name)]
                if self._deepest is None or depth < self._deepest:
                    waiting += [(entry.path, depth + 1) for entry in visible if entry.is_dir()]
            except FileNotFoundError:
                continue
            except OSError as error:
                unread.append(self._problem(directory, f"it cannot be read: {error.strerror}"))
        if len(paths) > _MOST_FILES:
            unread.append(
                self._problem(str(self.root), f"there are {len(paths):,} files; {_MOST_FILES:,} are read")
            )
        self._directories = directories
        self._paths = tuple(sorted(paths)[:_MOST_FILES])
        self._unread = tuple(unread)

    def _fresh(self, path: str) -> _Kept[Item] | None:
        """Return the file's cached or newly parsed result; None if the file has disappeared."""
        seen = stamp(path)
        known = self._files.get(path)
        if known is not None and known.stamp == seen and seen.settled:
            return known
        if not seen.facts and not os.path.islink(path):  # noqa: PTH114
            return None
        return _Kept(seen, self._read(Path(path)))

    def _problem(self, path: str, what: str) -> Problem:
        return _problem(Path(path), self._kind, what)


class Folder(Files[Parsed]):
    """Agent definitions below a directory; `adapt` completes each result."""

    def __init__(
        self,
        root: Path,
        kind: SourceKind,
        *,
        adapt: Callable[[Found], Found] = lambda found: found,
        fixed: bool = False,
    ) -> None:
        super().__init__(root, kind, lambda path: adapt(read_file(path, kind)), fixed=fixed)


def read_file(path: Path, kind: SourceKind) -> Found:
    """Return the definition in one file, or the problem with it."""
    text = text_in(path, kind)
    if isinstance(text, Problem):
        return text
    try:
        return ruled(read_definition(text, Source(kind=kind, path=path), name=path.stem))
    except BadDefinition as bad:
        return bad.problem


def text_in(path: Path, kind: SourceKind) -> str | Problem:
    """Return the text of a file, or the problem with it."""
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            return _problem(path, kind, "it is not a file")
        if state.st_size > LARGEST:
            what = f"it has {state.st_size:,} bytes; a definition has at most {LARGEST:,}"
            return _problem(path, kind, what)
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        return _problem(path, kind, f"it cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        return _problem(path, kind, "it is not UTF-8 text")
    return _problem(path, kind, "it is not text: it holds NUL bytes") if "\0" in text else text


def ruled(parsed: Parsed) -> Parsed:
    """Return the definition if every `Tool(pattern)` is a valid rule. Raises `InvalidAgentDefinition`."""
    definition = parsed.definition
    for field, attribute in (("tools", "tools"), ("disallowedTools", "disallowed_tools")):
        for entry in getattr(definition, attribute) or ():
            try:
                parse_rule(entry)
            except SettingsError as error:
                source = definition.source
                problem = Problem(
                    what=str(error),
                    name=definition.name,
                    source=source,
                    line=source.lines.get(attribute) or None,
                    field=f"{definition.name}.{field}" if source.kind == "flag" else field,
                )
                raise BadDefinition(problem) from error
    return parsed


def _problem(path: Path, kind: SourceKind, what: str) -> Problem:
    return Problem(what=what, name=path.stem, source=Source(kind=kind, path=path))
