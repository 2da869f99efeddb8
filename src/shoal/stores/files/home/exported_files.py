"""List of the files of an exported run, from which an import sees that a copy of them is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from shoal.core.errors import StateFileError
from shoal.core.ids import SessionId
from shoal.stores.files.home.home_paths import get_run_directory, read_state_file, write_file_atomically

EXPORT_LIST = "exported-files.json"
"""File in the directory of a run that was exported."""
_ANSWER_SUFFIXES = (".answer.json", ".late.json")


class _ExportedFile(Struct, frozen=True, kw_only=True):
    size: int
    sha256: str

    @classmethod
    def from_content(cls, content: bytes) -> _ExportedFile:
        return cls(size=len(content), sha256=sha256(content).hexdigest())


class _ExportList(Struct, frozen=True, kw_only=True):
    files: dict[str, _ExportedFile]
    """Files by their path in the home."""


class ExportWriter:
    """Writes the files of a run to the disk, and then the list of them."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._files: dict[str, _ExportedFile] = {}

    def write(self, path: Path, content: bytes) -> None:
        write_file_atomically(path, content, durable=True)
        self.note(path, content)

    def note(self, path: Path, content: bytes) -> None:
        """Note a file that is written after the list."""
        self._files[str(path.relative_to(self._home))] = _ExportedFile.from_content(content)

    def write_list(self, directory: Path) -> None:
        write_file_atomically(
            directory / EXPORT_LIST,
            msgspec.json.encode(_ExportList(files=self._files), order="sorted"),
            durable=True,
        )


def check_exported_files(home: Path, session: SessionId) -> None:
    """Raise `StateFileError` if files of an exported run are missing or damaged.

    A session that was resumed since has longer lists and changed other files, of which only those are
    checked that never change.
    """
    path = get_run_directory(home, session) / EXPORT_LIST
    try:
        content = read_state_file(path)
    except FileNotFoundError:
        return  # it was not exported
    advice = f"Export the session again. To import these files as they are, remove {path} first."
    try:
        files = msgspec.json.decode(content, type=_ExportList).files
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StateFileError(
            f"The list of exported files {path} is damaged ({error}). Nothing was imported. {advice}",
            path=path,
        ) from error
    if problems := list(_find_problems(home, files)):
        raise StateFileError(
            f"The export of the session {session} is damaged, so nothing was imported: "
            f"{'; '.join(problems)}. {advice}",
            path=path,
        )


def _find_problems(home: Path, files: dict[str, _ExportedFile]) -> Iterator[str]:
    contents = {name: _read_file(home / name) for name in files}
    is_resumed = any(
        _only_grows(name) and content is not None and len(content) > files[name].size
        for name, content in contents.items()
    )
    for name, exported in files.items():
        content, only_grows = contents[name], _only_grows(name)
        if is_resumed and not only_grows and not _never_changes(name):
            continue
        if content is None:
            yield f"{name} is missing"
        elif len(content) < exported.size:
            yield f"{name} has {len(content):,} of its {exported.size:,} bytes"
        elif _ExportedFile.from_content(content[: exported.size] if only_grows else content) != exported:
            yield f"{name} has other content than the file that was exported"


def _read_file(path: Path) -> bytes | None:
    try:
        return read_state_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _only_grows(name: str) -> bool:
    return name.endswith(".jsonl") and name.startswith(("projects/", "shoal/runs/"))


def _never_changes(name: str) -> bool:
    directory = Path(name).parent.name
    return directory == "results" or (directory == "questions" and not name.endswith(_ANSWER_SUFFIXES))
