"""Texts too long for a conversation, each kept whole in a file of its run."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from shoal.stores.files.places import create_whole, safe_name


class FileResults:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def keep(self, name: str, content: bytes) -> Path:
        """A taken name gets a number: some models repeat call ids, and nothing is overwritten."""
        safe = Path(safe_name(name))
        for number in count(1):
            chosen = safe.name if number == 1 else f"{safe.stem}-{number}{safe.suffix}"
            path = self.directory / chosen
            # Looked for first: to find a name taken costs writing all of it.
            if not path.exists() and create_whole(path, content):
                return path
        raise AssertionError("count() does not end")
