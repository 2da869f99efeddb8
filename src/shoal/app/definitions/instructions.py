"""Instructions for the system prompt, read from the instruction files of the user and the project."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from shoal.app.definitions.project_places import project_places
from shoal.core.filenames import shown
from shoal.core.neutral import neutral

LONGEST_FILE = 50_000
LONGEST_ALL = 100_000
"""Maximum total size in characters; the nearest files are included first."""
DEEPEST = 5
"""Maximum depth of nested imports."""
_MOST_FILES = 100
_LARGEST = 2_000_000
"""Maximum number of bytes read from one file."""
_NAMES = ("CLAUDE.md", ".claude/CLAUDE.md", "AGENTS.md", "CLAUDE.local.md")
_OWN_NAMES = ("CLAUDE.md", "AGENTS.md")
_FENCED = re.compile(r"^(```|~~~).*?^\1|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r"(?<!\S)@([\w.~/+-]*\w)")
_HEAD = (
    "Instructions\n"
    "The files below say how to work here. Follow them; of two that disagree the later one holds, and what a "
    "person tells you holds over all of them. They cannot allow what is not permitted."
)


class Read(Struct, frozen=True, kw_only=True):
    path: Path
    of: str
    """Owner of the file: `you` or `project`."""
    text: str
    size: int
    imported_by: Path | None = None


class Instructions(Struct, frozen=True, kw_only=True):
    files: tuple[Read, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences about files that were left out, with the reason."""

    @property
    def text(self) -> str:
        """Section of the system prompt; empty if no file has content."""
        if not self.files:
            return ""
        return "\n\n".join([_HEAD, *(f"From {shown(each.path)}:\n\n{each.text}" for each in self.files)])


def instructions_for(
    *, cwd: Path, home: Path, hidden: Callable[[str], bool], room: int = LONGEST_ALL
) -> Instructions:
    """Read the files in the home, then from the repository root down to `cwd`.

    `is_hidden` returns True for real paths that agents may not read. `max_chars` can lower the usual limit.
    """
    reading = _Reading(root=[*project_places(cwd)][-1], home=home, hidden=hidden, room=min(room, LONGEST_ALL))
    for name in _OWN_NAMES:
        reading.read(home / name, "you")
    for place in reversed([*project_places(cwd)]):
        for name in _NAMES:
            reading.read(place / name, "project")
    return reading.bounded()


class _Reading:
    def __init__(self, *, root: Path, home: Path, hidden: Callable[[str], bool], room: int) -> None:
        self._room = room
        self._longest = min(LONGEST_FILE, room)
        self._root = os.path.realpath(root)
        self._home = os.path.realpath(home)
        self._hidden = hidden
        self._seen: set[str] = set()
        self._files: list[Read] = []
        self._notes: list[str] = []

    def read(self, path: Path, of: str, *, by: Path | None = None, depth: int = 0) -> None:
        """Read a file and its imports. Each file is read once, which also ends import cycles."""
        real = os.path.realpath(path)
        if real in self._seen or not os.path.lexists(path):
            return
        self._seen.add(real)
        if why := self._refusal(real, of):
            self._leave_out(path, why)
            return
        text = self._content(path)
        if text is None or not text.strip():
            return
        self._files.append(Read(path=path, of=of, text=self._cut(path, text), size=len(text), imported_by=by))
        for named in _imports(text):
            target = Path(named).expanduser() if named.startswith("~/") else path.parent / named
            if not target.is_file():
                continue
            if depth >= DEEPEST:
                self._leave_out(target, f"{shown(path)} imports it, and imports lead {DEEPEST} files deep")
            else:
                self.read(target, of, by=path, depth=depth + 1)

    def bounded(self) -> Instructions:
        room, kept = self._room, list[Read]()
        for each in reversed(self._files):
            if len(each.text) > room:
                self._leave_out(each.path, f"all together would have more than {self._room:,} characters")
            else:
                room -= len(each.text)
                kept.append(each)
        return Instructions(files=tuple(reversed(kept)), notes=tuple(self._notes))

    def _refusal(self, real: str, of: str) -> str:
        if len(self._files) >= _MOST_FILES:
            return f"{_MOST_FILES} files are read at most"
        if self._hidden(real):
            return "a rule keeps it from being read"
        # A project may come from anyone. It must not put files from outside the project into the prompt.
        inside = real.startswith(f"{self._root.rstrip('/')}/")
        of_home = real.startswith(f"{self._home}/") and real.endswith(".md")
        if of == "project" and not inside and not of_home:
            return "it lies outside the project; only your own files may import it"
        return ""

    def _content(self, path: Path) -> str | None:
        try:
            state = path.stat()
            if not stat.S_ISREG(state.st_mode):
                self._leave_out(path, "it is not a file")
                return None
            with path.open("rb") as file:
                content = file.read(_LARGEST)
            text = content.decode("utf-8-sig", errors="strict" if state.st_size <= _LARGEST else "ignore")
        except OSError as error:
            self._leave_out(path, f"it cannot be read: {error.strerror}")
            return None
        except UnicodeDecodeError:
            self._leave_out(path, "it is not UTF-8 text")
            return None
        if "\0" in text:
            self._leave_out(path, "it is not text: it holds NUL bytes")
            return None
        return text

    def _cut(self, path: Path, text: str) -> str:
        text, longest = neutral(text.strip()), self._longest
        if len(text) <= longest:
            return text
        self._notes.append(f"{shown(path)}: of {len(text):,} characters the first {longest:,} are used.")
        told = f"\n[… {len(text) - longest:,} more characters are left out]"
        return text[: max(0, longest - len(told))] + told

    def _leave_out(self, path: Path, why: str) -> None:
        self._notes.append(f"{shown(path)} is not part of the instructions: {why}.")


def _imports(text: str) -> Iterator[str]:
    """Return the paths after an @ outside of code."""
    return (match[1] for match in _IMPORT.finditer(_FENCED.sub("", text)))
