"""Files of a run with texts that are too long for a conversation."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from shoal.stores.files.home.home_paths import create_file_atomically, to_safe_file_name


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
                return path
        raise AssertionError("count() does not end")
