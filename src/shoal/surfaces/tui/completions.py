"""Completion of a half-typed word: a command after `/`, a file, an agent or a resource after `@`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

MAX_PROPOSALS = 40
"""Maximum number of suggestions for one word."""
_LOOKED_AT = 20_000
"""Maximum number of files scanned in a project; in a larger one, type the directory to find a file."""
_LEFT_OUT = frozenset({".git", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache", ".tox"})
_MENTION = re.compile(r"(?:^|(?<=\s))@(\S*)$")


class InputCompletionProposal(Struct, frozen=True):
    text: str
    """Text that is inserted."""
    description: str = ""


class PartialWordAtCursor(Struct, frozen=True):
    """The word at the cursor: its kind, its typed part, and its start in the line."""

    kind: str
    """`command` or `mention`."""
    typed: str
    start: int


def find_partial_word(before: str, *, first_line: bool) -> PartialWordAtCursor | None:
    """Return the word that ends at the cursor; None if it cannot be completed."""
    if first_line and before.startswith("/") and " " not in before and "/" not in before[1:]:
        return PartialWordAtCursor("command", before, 0)
    if match := _MENTION.search(before):
        return PartialWordAtCursor("mention", match[1], match.start())
    return None


def rank_matching_proposals(
    typed: str, proposals: Iterable[InputCompletionProposal]
) -> list[InputCompletionProposal]:
    """Return the proposals that contain the letters in this order, best first."""
    ranked: list[tuple[int, int, str, InputCompletionProposal]] = []
    lowered = typed.lower()
    for proposal in proposals:
        rank = _rank_match(lowered, proposal.text.lower())
        if rank is not None:
            ranked.append((rank, len(proposal.text), proposal.text, proposal))
    return [each for *_, each in sorted(ranked, key=lambda row: row[:3])[:MAX_PROPOSALS]]


def _rank_match(typed: str, text: str) -> int | None:
    if text.startswith(typed):
        return 0
    name = text.rstrip("/").rsplit("/", 1)[-1]
    if name.startswith(typed.lstrip("/@")):
        return 1
    if typed.lstrip("@") in text:
        return 2
    letters = iter(text)
    return 3 if all(letter in letters for letter in typed.lstrip("@")) else None


def list_project_files(root: Path) -> list[str]:
    """List the paths under a project as a person would type them; the walk is bounded."""
    paths: list[str] = []
    pending_directories = [""]
    while pending_directories and len(paths) < _LOOKED_AT:
        directory = pending_directories.pop(0)
        try:
            entries = sorted(os.scandir(root / directory), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if not entry.name.isprintable():
                continue  # nobody types it: it contains control codes, or is not text
            path = f"{directory}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _LEFT_OUT:
                    paths.append(f"{path}/")
                    pending_directories.append(f"{path}/")
            else:
                paths.append(path)
    return paths


def propose_mentions(
    typed: str, files: Sequence[str], others: Sequence[InputCompletionProposal]
) -> list[InputCompletionProposal]:
    """Return the proposals for a mention of a file, or of an agent or a resource among the `others`."""
    all_proposals = [*others, *(InputCompletionProposal(f"@{path}") for path in files)]
    return rank_matching_proposals(f"@{typed}", all_proposals)
