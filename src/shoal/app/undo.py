"""Bringing a session's files, and its conversation, back to before a turn, from outside the session."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from shoal.core.events import TurnStarted
from shoal.stores.files.journal import read_journal
from shoal.workspaces.checkpoints import ChangedFile, Checkpoints


class TurnTaken(Struct, frozen=True, kw_only=True):
    """A turn of a session: what was asked, and what it changed that can still be undone."""

    turn: int
    prompt: str
    files: tuple[ChangedFile, ...] = ()


def turns_taken(journal: Path, checkpoints: Checkpoints) -> tuple[TurnTaken, ...]:
    """Oldest first."""
    prompts = {
        recorded.event.turn: recorded.event.prompt
        for recorded in read_journal(journal)
        if isinstance(recorded.event, TurnStarted)
    }
    changed = {each.turn: each.files for each in checkpoints.turns()}
    return tuple(
        TurnTaken(turn=turn, prompt=prompts.get(turn, ""), files=changed.get(turn, ()))
        for turn in sorted(prompts.keys() | changed.keys())
    )
