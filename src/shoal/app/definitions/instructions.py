"""Instructions for the system prompt, read from the instruction files of the user and the project."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from shoal.app.model_notices import format_session_notice
from shoal.app.settings import settings_files
from shoal.app.settings.project_directories import iter_project_directories
from shoal.core.extensions.instruction_files import InstructionLoadReason
from shoal.core.text.control_tags import escape_control_tags
from shoal.core.text.decoded_text import REPLACEMENT, decode_text, describe_replaced_bytes
from shoal.core.text.filenames import escape_filename
from shoal.core.user_environment import UserEnvironment, get_user_environment

MAX_FILE_CHARS = 50_000
MAX_TOTAL_CHARS = 100_000
"""Maximum total size in characters; the nearest files are included first."""
MAX_IMPORT_DEPTH = 5
"""Maximum depth of nested imports."""
_MAX_FILES = 100
_MAX_FILE_BYTES = 2_000_000
"""Maximum number of bytes read from one file."""
_PROJECT_FILE_NAMES = ("CLAUDE.md", ".claude/CLAUDE.md", "AGENTS.md", "CLAUDE.local.md")
_USER_FILE_NAMES = ("CLAUDE.md", "AGENTS.md")
_RULES_DIRECTORY = "rules"
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MAX_PATTERNS = 200
_FENCED = re.compile(r"^(?P<fence>```|~~~).*?^(?P=fence)|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_COMMENT = r"<!--(?:(?!-->).)*-->[ \t]*"
_CODE_OR_COMMENT = re.compile(
    rf"(?P<code>{_FENCED.pattern})|^[ \t]*(?:{_COMMENT})+(?:\r?\n|\Z)|{_COMMENT}", re.MULTILINE | re.DOTALL
)
"""Code, the lines of a comment that has them to itself, or a comment between other words."""
_IMPORT = re.compile(r"(?<!\S)@([\w.~/+-]*\w)")
_FILE_PATH = re.compile(r"^(?:~|\.{1,2})?/|\.(?:md|mdx|markdown|txt|rst|json|ya?ml|toml|mdc)$", re.IGNORECASE)
"""Imports that are certainly meant as files, unlike the name of a person, a package or a decorator."""


class InstructionFile(Struct, frozen=True, kw_only=True):
    path: Path
    owner: str
    """Owner of the file: `managed`, `you` or `project`."""
    text: str
    size: int
    imported_by: Path | None = None
    reason: InstructionLoadReason = "session_start"

    @property
    def memory_type(self) -> str:
        """Kind of the file, as hooks get it."""
        if self.owner == "you":
            return "User"
        return "Local" if self.path.name == "CLAUDE.local.md" else "Project"


class PathInstructionRule(Struct, frozen=True, kw_only=True):
    """File of a rules directory that applies only to some files."""

    path: Path
    owner: str
    base: Path
    """Directory that the patterns start from."""
    patterns: tuple[str, ...]

    def matches_file(self, file: str) -> bool:
        from shoal.policy.path_patterns import InvalidPathPatternError, convert_path_pattern_to_regex

        for pattern in self.patterns:
            try:
                # Without a leading slash, a bare name would match at any depth.
                rooted = f"/{pattern.lstrip('/')}"
                expression = convert_path_pattern_to_regex(rooted, str(self.base), home="")
            except InvalidPathPatternError:
                continue
            if re.fullmatch(expression, file, re.DOTALL):
                return True
        return False


class InstructionExclusions(Struct, frozen=True, kw_only=True):
    """Patterns of absolute paths that are not read as instructions."""

    person: tuple[str, ...] = ()
    """Patterns of the user's own settings."""
    project: tuple[str, ...] = ()
    """Patterns of the project's settings, which exclude only files of the project."""
    user: UserEnvironment = field(default_factory=get_user_environment)
    """User whose home `~` means in a pattern, and in the path of an imported file."""

    def excludes_file(self, path: str, owner: str) -> bool:
        from shoal.policy.path_patterns import InvalidPathPatternError, convert_path_pattern_to_regex

        for pattern in self.person if owner == "you" else (*self.person, *self.project):
            try:
                expression = convert_path_pattern_to_regex(pattern, "", self.user.home)
            except InvalidPathPatternError:
                continue
            if re.fullmatch(expression, path, re.DOTALL):
                return True
        return False


class LoadedInstructionFiles(Struct, frozen=True, kw_only=True):
    files: tuple[InstructionFile, ...] = ()
    rules: tuple[PathInstructionRule, ...] = ()
    """Files that are read when an agent uses a file to which they apply."""
    notes: tuple[str, ...] = ()
    """Sentences about files that were left out, with the reason."""
    excluded: tuple[Path, ...] = ()
    """Files that the settings exclude."""
    missing_imports: tuple[tuple[Path, str], ...] = ()
    """Paths after an @ where no file is, each with the file that names it."""

    @property
    def text(self) -> str:
        """Section of the system prompt; empty if no file has content."""
        if not self.files:
            return ""
        return "\n\n".join([format_session_notice("instructions"), format_instruction_files(self.files)])


def format_instruction_files(files: Sequence[InstructionFile]) -> str:
    return "\n\n".join(f"From {escape_filename(each.path)}:\n\n{each.text}" for each in files)


def load_instructions(
    *,
    cwd: Path,
    home: Path,
    is_hidden: Callable[[str], bool],
    max_chars: int = MAX_TOTAL_CHARS,
    exclusions: InstructionExclusions | None = None,
    sources: Collection[str] | None = None,
    managed: Sequence[Path] = (),
) -> LoadedInstructionFiles:
    """Read the managed files, those in the home, then from the repository root down to `cwd`, with rules.

    `sources` limits them to those of `user`, `project` or `local`.
    `is_hidden` returns True for real paths that agents may not read. `max_chars` can lower the usual limit.
    """
    directories = [*iter_project_directories(cwd)]
    reader = InstructionReader(
        root=directories[-1], home=home, is_hidden=is_hidden, max_chars=max_chars, exclusions=exclusions
    )
    for path in managed:
        reader.read_file_with_imports(path, "managed")
    for name in _USER_FILE_NAMES if sources is None or "user" in sources else ():
        reader.read_file_with_imports(home / name, "you")
    if sources is None or "user" in sources:
        reader.read_rules_directory(home / _RULES_DIRECTORY, "you", base=cwd)
    for directory in reversed(directories):
        reader.read_directory(directory, sources)
        if sources is None or "project" in sources:
            reader.read_project_rules(directory)
    return reader.fit_files_to_size_limit()


class InstructionReader:
    def __init__(
        self,
        *,
        root: Path,
        home: Path,
        is_hidden: Callable[[str], bool],
        extra_roots: Sequence[Path] = (),
        max_chars: int = MAX_TOTAL_CHARS,
        exclusions: InstructionExclusions | None = None,
        reason: InstructionLoadReason = "session_start",
    ) -> None:
        max_chars = min(max_chars, MAX_TOTAL_CHARS)
        self._exclusions = exclusions or InstructionExclusions()
        self._reason: InstructionLoadReason = reason
        self._rules: list[PathInstructionRule] = []
        self._max_chars = max_chars
        self._max_file_chars = min(MAX_FILE_CHARS, max_chars)
        self._roots = tuple(f"{os.path.realpath(each).rstrip('/')}/" for each in (root, *extra_roots))
        self._home = os.path.realpath(home)
        self._is_hidden = is_hidden
        self._seen: set[str] = set()
        self._files: list[InstructionFile] = []
        self._notes: list[str] = []
        self._excluded: list[Path] = []
        self._missing_imports: list[tuple[Path, str]] = []

    def skip_files(self, paths: Iterable[Path]) -> None:
        """Do not read these files again."""
        self._seen.update(map(os.path.realpath, paths))

    def read_directory(self, directory: Path, sources: Collection[str] | None = None) -> None:
        """Read the instruction files of one directory of the project."""
        for name in _PROJECT_FILE_NAMES:
            if sources is None or ("local" if ".local." in name else "project") in sources:
                self.read_file_with_imports(directory / name, "project")

    def read_project_rules(self, directory: Path) -> None:
        """Read the rules of one directory of the project."""
        self.read_rules_directory(directory / ".claude" / _RULES_DIRECTORY, "project", base=directory)

    def read_rules_directory(self, directory: Path, owner: str, *, base: Path) -> None:
        """Read the rules below a directory; those about some files are only listed."""
        for path in _iter_rule_files(directory):
            patterns = self._read_rule_patterns(path, owner)
            if patterns:
                self._rules.append(PathInstructionRule(path=path, owner=owner, base=base, patterns=patterns))
            else:
                self.read_file_with_imports(path, owner)

    def _read_rule_patterns(self, path: Path, owner: str) -> tuple[str, ...]:
        real = os.path.realpath(path)
        if real in self._seen or self._exclusions.excludes_file(str(path), owner):
            return ()
        if self._explain_file_refusal(real, owner) or (text := self._read_instruction_text(path)) is None:
            return ()  # reading it as a file tells why
        return self._parse_rule_patterns(path, text)

    def _parse_rule_patterns(self, path: Path, text: str) -> tuple[str, ...]:
        if not text.startswith("---"):
            return ()
        from shoal.wire.front_matter import InvalidFrontMatterError, parse_front_matter

        try:
            entries = {entry.key: entry.value for entry in parse_front_matter(text, ("paths",)).entries}
            return _expand_rule_patterns(entries.get("paths"))
        except (InvalidFrontMatterError, ValueError) as error:
            self._notes.append(
                f"{escape_filename(path)}: its front matter is invalid ({error}); it applies to all files."
            )
            return ()

    def read_file_with_imports(
        self, path: Path, owner: str, *, imported_by: Path | None = None, depth: int = 0
    ) -> None:
        """Read a file and its imports. Each file is read once, which also ends import cycles."""
        real = os.path.realpath(path)
        if real in self._seen or not os.path.lexists(path):
            return
        self._seen.add(real)
        if self._exclusions.excludes_file(str(path), owner):
            self._excluded.append(path)
            return
        if reason := self._explain_file_refusal(real, owner):
            self._note_omission(path, reason)
            return
        text = self._read_instruction_text(path)
        if text is not None and f"/{_RULES_DIRECTORY}/" in str(path):
            text = _remove_front_matter(text)
        text = None if text is None else _remove_comments(text)
        if text is None or not text.strip():
            return
        self._files.append(
            InstructionFile(
                path=path,
                owner=owner,
                text=self._truncate_instruction_text(path, text),
                size=len(text),
                imported_by=imported_by,
                reason=self._reason if imported_by is None else "include",
            )
        )
        for imported in _find_imported_paths(text):
            is_in_home = imported.startswith("~/")
            target = path.parent / (self._exclusions.user.expand_home(imported) if is_in_home else imported)
            if not target.is_file():
                if _FILE_PATH.search(imported) and not target.is_dir():
                    self._missing_imports.append((path, imported))
                continue
            if depth >= MAX_IMPORT_DEPTH:
                self._note_omission(
                    target,
                    f"{escape_filename(path)} imports it, but imports stop at depth {MAX_IMPORT_DEPTH}",
                )
            else:
                self.read_file_with_imports(target, owner, imported_by=path, depth=depth + 1)

    def fit_files_to_size_limit(self) -> LoadedInstructionFiles:
        remaining, included = self._max_chars, list[InstructionFile]()
        for file in reversed(self._files):
            if len(file.text) > remaining:
                self._note_omission(
                    file.path,
                    f"the total of all files would exceed {self._max_chars:,} characters",
                )
            else:
                remaining -= len(file.text)
                included.append(file)
        return LoadedInstructionFiles(
            files=tuple(reversed(included)),
            rules=tuple(self._rules),
            notes=tuple(dict.fromkeys(self._notes)),
            excluded=tuple(self._excluded),
            missing_imports=tuple(dict.fromkeys(self._missing_imports)),
        )

    def _explain_file_refusal(self, real_path: str, owner: str) -> str:
        if len(self._files) >= _MAX_FILES:
            return f"Shoal reads at most {_MAX_FILES} files"
        if self._is_hidden(real_path):
            return "a permission rule denies reading it"
        # A project may come from anyone. It must not put files from outside the project into the prompt.
        in_project = real_path.startswith(self._roots)
        in_home = real_path.startswith(f"{self._home}/") and real_path.endswith(".md")
        if owner == "project" and not in_project and not in_home:
            return "it is outside the project; only your own files may import it"
        return ""

    def _read_instruction_text(self, path: Path) -> str | None:
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                self._note_omission(path, "it is not a file")
                return None
            with path.open("rb") as file:
                content = file.read(_MAX_FILE_BYTES)
        except OSError as error:
            self._note_omission(path, f"it cannot be read: {error.strerror}")
            return None
        text, has_replaced_bytes = decode_text(content, is_truncated=status.st_size > _MAX_FILE_BYTES)
        if "\0" in text:
            self._note_omission(path, "it is not a text file: it contains NUL bytes")
            return None
        if has_replaced_bytes:
            self._notes.append(describe_replaced_bytes(f"{escape_filename(path)} is"))
        return text

    def _truncate_instruction_text(self, path: Path, text: str) -> str:
        text, limit = escape_control_tags(text.strip()), self._max_file_chars
        if len(text) <= limit:
            return text
        self._notes.append(
            f"{escape_filename(path)} has {len(text):,} characters; only the first {limit:,} are used."
        )
        notice = f"\n[… {len(text) - limit:,} more characters are left out]"
        return text[: max(0, limit - len(notice))] + notice

    def _note_omission(self, path: Path, reason: str) -> None:
        self._notes.append(f"{escape_filename(path)} is not used as instructions: {reason}.")


def _iter_rule_files(directory: Path) -> Iterator[Path]:
    """Yield the Markdown files under a directory, in the order of their paths; links are followed."""
    if not directory.is_dir():
        return
    seen, found = set[str](), list[Path]()
    for place, subdirectories, names in os.walk(directory, followlinks=True):
        if (real := os.path.realpath(place)) in seen or len(seen) >= _MAX_FILES:
            subdirectories.clear()
            continue
        seen.add(real)
        found += (Path(place, name) for name in names if name.endswith(".md"))
    yield from sorted(found)


def _expand_rule_patterns(value: Any) -> tuple[str, ...]:
    """Return the patterns of `paths`, with alternatives in braces written out. Raises `ValueError`."""
    if value is None:
        return ()
    # A comma inside braces separates alternatives, not patterns.
    texts = re.findall(r"(?:\{[^{}]*\}|[^,{])+", value) if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise ValueError("`paths` must be a list of patterns")
    if any(REPLACEMENT in each for each in texts):
        raise ValueError("`paths` is not UTF-8 text")
    pending = [each.strip() for each in texts if each.strip()]
    patterns: list[str] = []
    while pending and len(patterns) + len(pending) <= _MAX_PATTERNS:
        pattern = pending.pop(0)
        if braces := _BRACES.search(pattern):
            pending += [
                f"{pattern[: braces.start()]}{choice.strip()}{pattern[braces.end() :]}"
                for choice in braces[1].split(",")
            ]
        else:
            patterns.append(pattern)
    if pending:
        raise ValueError(f"`paths` has more than {_MAX_PATTERNS} patterns")
    return tuple(patterns)


def _remove_front_matter(text: str) -> str:
    if not text.startswith("---"):
        return text
    head, mark, body = text[3:].partition("\n---")
    return body.partition("\n")[2] if mark and head[:1] in ("\n", "\r") else text


def _remove_comments(text: str) -> str:
    """Remove HTML comments, which are notes for people, but not those inside code."""
    if "<!--" not in text:
        return text
    return _CODE_OR_COMMENT.sub(lambda match: match["code"] or "", text)


def _find_imported_paths(text: str) -> Iterator[str]:
    """Return the paths after an @ outside code."""
    return (match[1] for match in _IMPORT.finditer(_FENCED.sub("", text)))


def list_managed_instruction_files() -> list[Path]:
    """Return the instruction files next to the managed settings, lowest precedence first."""
    return [path.with_name("CLAUDE.md") for path in reversed(settings_files.MANAGED_FILES)]
