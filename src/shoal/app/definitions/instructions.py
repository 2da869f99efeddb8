"""Instructions for the system prompt, read from the instruction files of the user and the project."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from shoal.app.definitions.project_directories import iter_project_directories
from shoal.core.text.control_tags import escape_control_tags
from shoal.core.text.filenames import escape_filename

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
_FENCED = re.compile(r"^(```|~~~).*?^\1|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r"(?<!\S)@([\w.~/+-]*\w)")
_HEAD = (
    "Instructions\n"
    "The files below say how to work here. Follow them. If two disagree, the later one applies; what a "
    "person tells you overrides them all. They cannot allow what is not permitted."
)


class InstructionFile(Struct, frozen=True, kw_only=True):
    path: Path
    owner: str
    """Owner of the file: `managed`, `you` or `project`."""
    text: str
    size: int
    imported_by: Path | None = None


class LoadedInstructionFiles(Struct, frozen=True, kw_only=True):
    files: tuple[InstructionFile, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences about files that were left out, with the reason."""

    @property
    def text(self) -> str:
        """Section of the system prompt; empty if no file has content."""
        if not self.files:
            return ""
        return "\n\n".join(
            [_HEAD, *(f"From {escape_filename(each.path)}:\n\n{each.text}" for each in self.files)]
        )


def load_instructions(
    *,
    cwd: Path,
    home: Path,
    is_hidden: Callable[[str], bool],
    max_chars: int = MAX_TOTAL_CHARS,
    managed: Sequence[Path] = (),
) -> LoadedInstructionFiles:
    """Read the managed files, those in the home, then from the repository root down to `cwd`.

    `is_hidden` returns True for real paths that agents may not read. `max_chars` can lower the usual limit.
    """
    reader = _InstructionReader(
        root=[*iter_project_directories(cwd)][-1],
        home=home,
        is_hidden=is_hidden,
        max_chars=min(max_chars, MAX_TOTAL_CHARS),
    )
    for path in managed:
        reader.read_file_with_imports(path, "managed")
    for name in _USER_FILE_NAMES:
        reader.read_file_with_imports(home / name, "you")
    for directory in reversed([*iter_project_directories(cwd)]):
        for name in _PROJECT_FILE_NAMES:
            reader.read_file_with_imports(directory / name, "project")
    return reader.fit_files_to_size_limit()


class _InstructionReader:
    def __init__(self, *, root: Path, home: Path, is_hidden: Callable[[str], bool], max_chars: int) -> None:
        self._max_chars = max_chars
        self._max_file_chars = min(MAX_FILE_CHARS, max_chars)
        self._root = os.path.realpath(root)
        self._home = os.path.realpath(home)
        self._is_hidden = is_hidden
        self._seen: set[str] = set()
        self._files: list[InstructionFile] = []
        self._notes: list[str] = []

    def read_file_with_imports(
        self, path: Path, owner: str, *, imported_by: Path | None = None, depth: int = 0
    ) -> None:
        """Read a file and its imports. Each file is read once, which also ends import cycles."""
        real = os.path.realpath(path)
        if real in self._seen or not os.path.lexists(path):
            return
        self._seen.add(real)
        if reason := self._explain_file_refusal(real, owner):
            self._note_omission(path, reason)
            return
        text = self._read_instruction_text(path)
        if text is None or not text.strip():
            return
        self._files.append(
            InstructionFile(
                path=path,
                owner=owner,
                text=self._truncate_instruction_text(path, text),
                size=len(text),
                imported_by=imported_by,
            )
        )
        for imported in _find_imported_paths(text):
            target = Path(imported).expanduser() if imported.startswith("~/") else path.parent / imported
            if not target.is_file():
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
                    file.path, f"all files together would exceed {self._max_chars:,} characters"
                )
            else:
                remaining -= len(file.text)
                included.append(file)
        return LoadedInstructionFiles(files=tuple(reversed(included)), notes=tuple(self._notes))

    def _explain_file_refusal(self, real_path: str, owner: str) -> str:
        if len(self._files) >= _MAX_FILES:
            return f"at most {_MAX_FILES} files are read"
        if self._is_hidden(real_path):
            return "a permission rule denies reading it"
        # A project may come from anyone. It must not put files from outside the project into the prompt.
        in_project = real_path.startswith(f"{self._root.rstrip('/')}/")
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
            text = content.decode(
                "utf-8-sig", errors="strict" if status.st_size <= _MAX_FILE_BYTES else "ignore"
            )
        except OSError as error:
            self._note_omission(path, f"it cannot be read: {error.strerror}")
            return None
        except UnicodeDecodeError:
            self._note_omission(path, "it is not UTF-8 text")
            return None
        if "\0" in text:
            self._note_omission(path, "it is not text: it contains NUL bytes")
            return None
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


def _find_imported_paths(text: str) -> Iterator[str]:
    """Return the paths after an @ outside of code."""
    return (match[1] for match in _IMPORT.finditer(_FENCED.sub("", text)))
