"""Work of agents on other machines as files: one for each part, in a directory for each agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shoal.core.errors import StateFileError
from shoal.core.store import WorkPart, WorkSummary
from shoal.stores.files.home.home_paths import read_state_file, to_safe_file_name, write_file_atomically
from shoal.stores.stored_work import select_current_parts, summarize_work
from shoal.wire.work_codec import encode_work_part, parse_work_part

_SUFFIX = ".work"


def get_work_path(directory: Path, agent: str, number: int) -> Path:
    return directory / to_safe_file_name(agent) / f"{number:08d}{_SUFFIX}"


class WorkFiles:
    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        self._directory = directory
        self._durable = durable

    def append_part(self, part: WorkPart) -> None:
        paths = self._list_paths(part.agent)
        if paths and _read_part(paths[-1]) == part:
            return
        number = 1 + (int(paths[-1].stem) if paths else 0)
        path = get_work_path(self._directory, part.agent, number)
        write_file_atomically(path, encode_work_part(part), durable=self._durable)
        if part.is_first:
            for earlier in paths:
                earlier.unlink(missing_ok=True)

    def read_parts(self, agent: str) -> tuple[WorkPart, ...]:
        return select_current_parts(map(_read_part, self._list_paths(agent)))

    def list_summaries(self) -> dict[str, WorkSummary]:
        return summarize_work(self._iter_parts())

    def _iter_parts(self) -> Iterator[WorkPart]:
        if self._directory.is_dir():
            for path in sorted(self._directory.glob(f"*/*{_SUFFIX}")):
                yield _read_part(path)

    def _list_paths(self, agent: str) -> list[Path]:
        return sorted((self._directory / to_safe_file_name(agent)).glob(f"*{_SUFFIX}"))


def _read_part(path: Path) -> WorkPart:
    try:
        return parse_work_part(read_state_file(path))
    except OSError as error:
        raise StateFileError(f"Cannot read {path}: {error.strerror}.", path=path) from error
    except ValueError as error:
        raise StateFileError(f"{path} is not valid: {error}.", path=path) from error
