"""Cache of parsed definition files under a directory; a refresh costs one stat per directory and file."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.settings.file_stamps import FileStamp, FileStampSet, is_file_unchanged, stamp_file
from shoal.core.agents.agent_definitions import DefinitionProblem, DefinitionSource, DefinitionSourceKind
from shoal.core.errors import InvalidAgentDefinition, SettingsError
from shoal.core.text.decoded_text import REPLACEMENT, decode_text, describe_replaced_bytes
from shoal.policy.permission_rules import parse_permission_rule
from shoal.wire.agent_definition_codec import ParsedAgentDefinition, parse_agent_definition
from shoal.wire.front_matter import InvalidFrontMatterError, split_front_matter

DefinitionResult: TypeAlias = ParsedAgentDefinition | DefinitionProblem
Item = TypeVar("Item")

MAX_FILE_BYTES = 1_000_000
"""Maximum size of a definition file."""
_MAX_FILES = 2_000
_PROSE_FIELDS = frozenset({"description", "when_to_use", "argument-hint"})
"""Fields that still mean the same if a character is replaced."""


class _CachedDefinitionFile(Struct, Generic[Item], frozen=True):
    stamp: FileStamp
    found: Item | DefinitionProblem


class DefinitionFileCache(Generic[Item]):
    """Parsed files under `root`. `read` returns the parsed item, or the problem with the file.

    Nothing is read before the first refresh.
    """

    def __init__(
        self,
        root: Path,
        kind: DefinitionSourceKind,
        read: Callable[[Path], Item | DefinitionProblem],
        *,
        is_wanted: Callable[[str], bool] = lambda name: name.endswith(".md"),
        max_depth: int | None = None,
    ) -> None:
        """`max_depth` limits how far below the root files are searched."""
        self.root = root
        self._kind = kind
        self._read = read
        self._is_wanted = is_wanted
        self._max_depth = max_depth
        self._directories: FileStampSet | None = None
        self._files: dict[str, _CachedDefinitionFile[Item]] = {}
        self._paths: tuple[str, ...] = ()
        self._unreadable: tuple[DefinitionProblem, ...] = ()

    def refresh(self) -> bool:
        """Read changed files again; return True if any result differs from the last refresh."""
        if self._are_files_unchanged():
            return False
        before = self.results
        self._scan_tree()
        loaded = {path: self._load_definition_file(path) for path in self._paths}
        self._files = {path: state for path, state in loaded.items() if state is not None}
        return self.results != before

    def _are_files_unchanged(self) -> bool:
        if self._directories is None or not self._directories.are_files_unchanged():
            return False
        return not self._files or all(
            is_file_unchanged(path, cached.stamp) for path, cached in self._files.items()
        )

    @property
    def stamps(self) -> Mapping[str, FileStamp]:
        """Directories and files as the last refresh saw them."""
        if self._directories is None:
            return {}
        return {**self._directories.stamps, **{path: each.stamp for path, each in self._files.items()}}

    @property
    def results(self) -> tuple[Item | DefinitionProblem, ...]:
        """Items and problems, ordered by path."""
        return (*(cached.found for cached in self._files.values()), *self._unreadable)

    def _scan_tree(self) -> None:
        directories: dict[str, FileStamp] = {}
        problems: list[DefinitionProblem] = []
        paths: list[str] = []
        visited: set[tuple[int, int]] = set()
        pending = [(str(self.root), 0)]
        while pending:
            directory, depth = pending.pop()
            directories[directory] = stamp_file(directory)
            try:
                status = os.stat(directory)  # noqa: PTH116
                if (status.st_dev, status.st_ino) in visited:
                    continue  # a symlink that leads back up
                visited.add((status.st_dev, status.st_ino))
                with os.scandir(directory) as entries:
                    visible = [entry for entry in entries if not entry.name.startswith(".")]
                paths += [entry.path for entry in visible if self._is_wanted(entry.name)]
                if self._max_depth is None or depth < self._max_depth:
                    pending += [(entry.path, depth + 1) for entry in visible if entry.is_dir()]
            except FileNotFoundError:
                continue
            except OSError as error:
                problems.append(self._make_definition_problem(directory, f"cannot be read: {error.strerror}"))
        if len(paths) > _MAX_FILES:
            problems.append(
                self._make_definition_problem(
                    str(self.root), f"there are {len(paths):,} files, but Shoal reads only {_MAX_FILES:,}"
                )
            )
        self._directories = FileStampSet(directories)
        self._paths = tuple(sorted(paths)[:_MAX_FILES])
        self._unreadable = tuple(problems)

    def _load_definition_file(self, path: str) -> _CachedDefinitionFile[Item] | None:
        """Return the file's cached or newly parsed result; None if the file has disappeared."""
        stamp = stamp_file(path)
        cached = self._files.get(path)
        if cached is not None and cached.stamp == stamp and stamp.is_settled:
            return cached
        if not stamp.stat_fields and not os.path.islink(path):  # noqa: PTH114
            return None
        return _CachedDefinitionFile(stamp, self._read(Path(path)))

    def _make_definition_problem(self, path: str, what: str) -> DefinitionProblem:
        return _make_file_problem(Path(path), self._kind, what)


class AgentDefinitionFileCache(DefinitionFileCache[ParsedAgentDefinition]):
    """Agent definitions below a directory; `adapt` completes each result."""

    def __init__(
        self,
        root: Path,
        kind: DefinitionSourceKind,
        *,
        adapt: Callable[[DefinitionResult], DefinitionResult] = lambda found: found,
    ) -> None:
        super().__init__(root, kind, lambda path: adapt(read_agent_file(path, kind)))


def read_agent_file(path: Path, kind: DefinitionSourceKind) -> DefinitionResult:
    """Return the definition in one file, or the problem with it."""
    file = read_definition_text(path, kind)
    if isinstance(file, DefinitionProblem):
        return file
    try:
        parsed = validate_agent_tool_rules(
            parse_agent_definition(file.text, DefinitionSource(kind=kind, path=path), name=path.stem)
        )
    except InvalidAgentDefinition as error:
        return error.problem
    return replace(parsed, has_replaced_bytes=True) if file.has_replaced_bytes else parsed


class ParsedDefinition(Protocol):
    @property
    def source(self) -> DefinitionSource: ...

    @property
    def has_replaced_bytes(self) -> bool: ...

    @property
    def unused_parts(self) -> tuple[str, ...]: ...


class DefinitionText(Struct, frozen=True):
    text: str
    has_replaced_bytes: bool = False
    """True if the file is not UTF-8, and unreadable bytes of its prose were replaced."""


def read_definition_text(path: Path, kind: DefinitionSourceKind) -> DefinitionText | DefinitionProblem:
    """Return the text of a file, or the problem with it."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return _make_file_problem(path, kind, "not a file")
        if status.st_size > MAX_FILE_BYTES:
            what = (
                f"{status.st_size:,} bytes is too large; the limit for a definition is {MAX_FILE_BYTES:,} "
                "bytes"
            )
            return _make_file_problem(path, kind, what)
        text, has_replaced_bytes = decode_text(path.read_bytes())
    except OSError as error:
        return _make_file_problem(path, kind, f"cannot be read: {error.strerror}")
    if "\0" in text:
        return _make_file_problem(path, kind, "not a text file: it contains NUL bytes")
    if has_replaced_bytes and (damaged := _find_damaged_field(text)) is not None:
        line, field = damaged
        return replace(_make_file_problem(path, kind, "not UTF-8 text"), line=line, field=field or None)
    return DefinitionText(text, has_replaced_bytes)


def _find_damaged_field(text: str) -> tuple[int, str] | None:
    """Return the line and the name of the first field that must not be read with replaced bytes."""
    try:
        header, start, _ = split_front_matter(text)
    except InvalidFrontMatterError:
        return None
    field = ""
    for number, line in enumerate(header):
        if key := re.match(r"([^\s:#]+):", line):
            field = key[1]
        if REPLACEMENT in line and field not in _PROSE_FIELDS:
            return start + number, field
    return None


def list_unused_definition_parts(
    results: Iterable[ParsedDefinition | DefinitionProblem],
) -> tuple[str, ...]:
    """Return warnings about parts of usable files that have no effect."""
    return tuple(
        sentence
        for each in results
        if not isinstance(each, DefinitionProblem)
        for sentence in each.unused_parts
    )


def describe_replaced_definition_bytes(
    noun: str, results: Iterable[ParsedDefinition | DefinitionProblem]
) -> tuple[str, ...]:
    """Return a sentence about the files that were read with replaced bytes, if there are any."""
    paths = [
        str(each.source.path)
        for each in results
        if not isinstance(each, DefinitionProblem) and each.has_replaced_bytes
    ]
    if not paths:
        return ()
    files = f"{paths[0]} is" if len(paths) == 1 else f"{len(paths)} {noun} files, such as {paths[0]}, are"
    return (describe_replaced_bytes(files),)


def validate_agent_tool_rules(parsed: ParsedAgentDefinition) -> ParsedAgentDefinition:
    """Return the definition if every `Tool(pattern)` is a valid rule. Raises `InvalidAgentDefinition`."""
    definition = parsed.definition
    for field, attribute in (("tools", "tools"), ("disallowedTools", "disallowed_tools")):
        for entry in getattr(definition.capabilities, attribute) or ():
            try:
                parse_permission_rule(entry)
            except SettingsError as error:
                source = definition.source
                problem = DefinitionProblem(
                    what=str(error),
                    name=definition.name,
                    source=source,
                    line=source.lines.get(attribute) or None,
                    field=f"{definition.name}.{field}" if source.kind == "flag" else field,
                )
                raise InvalidAgentDefinition(problem) from error
    return parsed


def _make_file_problem(path: Path, kind: DefinitionSourceKind, what: str) -> DefinitionProblem:
    return DefinitionProblem(what=what, name=path.stem, source=DefinitionSource(kind=kind, path=path))
