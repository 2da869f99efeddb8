"""Finds the processes that work in a directory, from outside any PID namespace."""

from __future__ import annotations

from pathlib import Path


def find_processes_in(directory: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if (entry / "cwd").readlink() == directory:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
