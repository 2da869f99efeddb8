"""Files of a run with texts that are too long for a conversation."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from shoal.stores.files.places import create_whole, safe_name


class FileResults:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def keep(self, name: str, content: bytes) -> Path:
        """Store the content; a taken name gets a number, because some models repeat call ids."""
        safe = Path(safe_name(name))
        for number in count(1):
            chosen = safe.name if number == 1 else f"{safe.stem}-{number}{safe.suffix}"
            path = self.directory / chosen
            # Checked first: otherwise finding a taken name costs a whole write.
            if not path.exists() and create_whole(path, content):
                return path
        raise AssertionError("count() does not end")
