"""The plain way to store an inbox: under the directory lock read the array, change it, write it again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class PlainInbox:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = path.with_name(f"{path.name}.lock")

    def write_entries(self, entries: list[dict[str, Any]]) -> None:
        self.path.write_text(json.dumps(entries))

    def post_entry(self, entry: dict[str, Any]) -> None:
        self._change_locked(lambda entries: entries.append(entry))

    def take_unread(self) -> list[dict[str, Any]]:
        return [entry for entry in json.loads(self.path.read_bytes()) if not entry["read"]]

    def mark_read(self, ids: set[str]) -> None:
        def mark_entries(entries: list[dict[str, Any]]) -> None:
            for entry in entries:
                if entry["msg_id"] in ids:
                    entry["read"] = True

        self._change_locked(mark_entries)

    def _change_locked(self, change: Callable[[list[dict[str, Any]]], None]) -> None:
        while True:
            try:
                self._lock.mkdir()
                break
            except FileExistsError:
                time.sleep(0.001)
        try:
            entries = json.loads(self.path.read_bytes())
            change(entries)
            new = self.path.with_name(f"{self.path.name}.tmp.{os.urandom(4).hex()}")
            new.write_text(json.dumps(entries))
            new.replace(self.path)
        finally:
            self._lock.rmdir()
