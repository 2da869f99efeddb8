"""Completion of a half-typed word: a command after `/`, a file or an agent after `@`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

MOST = 40
"""Proposals for one word."""
_LOOKED_AT = 20_000
"""Files of a project that are scanned; in a larger one, type the directory to find a file."""
_LEFT_OUT = frozenset({".git", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache", ".tox"})
_MENTION = re.compile(r"(?:^|(?<=\s))@(\S*)$")


class Proposal(Struct, frozen=True):
    text: str
    """Text that is inserted."""
    about: str = ""


class Half(Struct, frozen=True):
    """The word at the cursor: its kind, its typed part, and its start in the line."""

    kind: str
    """`command` or `mention`."""
    typed: str
    begin: int


def half_typed(before: str, *, first_line: bool) -> Half | None:
    """Return the word that ends at the cursor; None if it cannot be completed."""
    if first_line and before.startswith("/") and " " not in before and "/" not in before[1:]:
        return Half("command", before, 0)
    if found := _MENTION.search(before):
        return Half("mention", found[1], found.start())
    return None


def fitting(typed: str, offered: Iterable[Proposal]) -> list[Proposal]:
    """Return the proposals that contain the letters in this order, best first."""
    ranked: list[tuple[int, int, str, Proposal]] = []
    wanted = typed.lower()
    for each in offered:
        rank = _rank(wanted, each.text.lower())
        if rank is not None:
            ranked.append((rank, len(each.text), each.text, each))
    return [each for *_, each in sorted(ranked, key=lambda row: row[:3])[:MOST]]


def _rank(wanted: str, text: str) -> int | None:
    if text.startswith(wanted):
        return 0
    name = text.rstrip("/").rsplit("/", 1)[-1]
    if name.startswith(wanted.lstrip("/@")):
        return 1
    if wanted.lstrip("@") in text:
        return 2
    letters = iter(text)
    return 3 if all(letter in letters for letter in wanted.lstrip("@")) else None


def files_of(root: Path) -> list[str]:
    """List the paths below a project as a person would type them; the walk is bounded."""
    found: list[str] = []
    waiting = [""]
    while waiting and len(found) < _LOOKED_AT:
        here = waiting.pop(0)
        try:
            entries = sorted(os.scandir(root / here), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if not entry.name.isprintable():
                continue  # nobody types it: it contains control codes, or is not text
            path = f"{here}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _LEFT_OUT:
                    found.append(f"{path}/")
                    waiting.append(f"{path}/")
            else:
                found.append(path)
    return found


def mentions(typed: str, files: Sequence[str], agents: Sequence[Proposal]) -> list[Proposal]:
    every = [*agents, *(Proposal(f"@{path}") for path in files)]
    return fitting(f"@{typed}", every)
