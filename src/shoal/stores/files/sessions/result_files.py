"""Files of a run with texts that are too long for a conversation."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import count
from pathlib import Path

from shoal.stores.files.home.home_paths import create_file_atomically, read_state_file, to_safe_file_name

SIZES_FILE = ".sizes"
"""File in the directory of results with the size and the name of each, one per line."""
_APPEND_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class FileResultStore:
    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        self.directory = directory
        self._durable = durable

    def save_result(self, name: str, content: bytes) -> Path:
        """Store the content; a taken name gets a number, because some models repeat call ids."""
        safe_path = Path(to_safe_file_name(name))
        for number in count(1):
            file_name = safe_path.name if number == 1 else f"{safe_path.stem}-{number}{safe_path.suffix}"
            path = self.directory / file_name
            # Checked first: otherwise finding a taken name costs a whole write.
            if not path.exists() and create_file_atomically(path, content, durable=self._durable):
                record_result_size(self.directory, file_name, len(content))
                return path
        raise AssertionError("count() does not end")


def read_result_sizes(directory: Path) -> dict[str, int]:
    """Return the size of each result as it was stored; the text itself does not show that its end is missing.

    Results of earlier versions have no size.
    """
    sizes: dict[str, int] = {}
    with suppress(OSError):
        for line in read_state_file(directory / SIZES_FILE).splitlines():
            if (parsed := parse_result_size(line)) is not None:
                sizes[parsed[0]] = parsed[1]
    return sizes


def parse_result_size(line: bytes) -> tuple[str, int] | None:
    """Return the name and the size of a result; None if the line is damaged."""
    size, separator, name = line.partition(b" ")
    if not separator or not size.isdigit() or len(size) > 18:
        return None
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return None
    return (text, int(size)) if text.isprintable() else None


def record_result_size(directory: Path, name: str, size: int) -> None:
    """Add the size of a result to the list."""
    # The result is stored even if there is no room for this line.
    with suppress(OSError):
        fd = os.open(directory / SIZES_FILE, _APPEND_FLAGS, 0o600)
        try:
            os.write(fd, f"{size} {name}\n".encode())
        finally:
            os.close(fd)
