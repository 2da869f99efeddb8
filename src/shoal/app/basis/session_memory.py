"""Session memory: a small notes file that an internal fork keeps up to date."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from msgspec.structs import replace

from shoal.agent.agent import Agent
from shoal.agent.forking import run_forked_agent
from shoal.core.errors import ModelError, StoreError
from shoal.core.messages import Message, Text, user
from shoal.core.neutral import neutral
from shoal.stores.files.places import write_whole
from shoal.wire.notices import reminder

MOST = 8_000
"""Maximum characters of the file."""
_NONE = "(none yet)"
_HEAD = "Your notes about this session, kept in a file of their own:"


class SessionMemory:
    def __init__(self, path: Path, note: Callable[[str], None]) -> None:
        self.path = path
        self._note = note

    def text(self) -> str:
        """Return the notes; empty if there are none."""
        try:
            with self.path.open("rb") as file:
                return file.read(4 * MOST).decode("utf-8", errors="replace")[:MOST].strip()
        except OSError:
            return ""

    async def __call__(self, agent: Agent, messages: list[Message]) -> str:
        """Update the notes at a compaction; return the text for the compacted conversation."""
        try:
            await self.save(agent, messages)
        except (ModelError, StoreError) as error:
            # The session needs the compaction to continue; outdated notes do no harm.
            self._note(f"The notes of this session could not be brought up to date: {error}")
        return f"\n\n{_told(text)}" if (text := self.text()) else ""

    async def save(self, agent: Agent, messages: list[Message] | None = None) -> bool:
        """Save new notes; False if there were none. Raises `ModelError` and `StoreError`."""
        directive = _directive() + (self.text() or _NONE)
        words = neutral(await run_forked_agent(agent, directive, history=messages)).strip()
        if not words:
            return False
        # Atomic: a crash leaves either the old or the new notes.
        write_whole(self.path, f"{words[:MOST]}\n".encode())
        return True

    def resumed(self, interrupted: Message | None, history: Sequence[Message]) -> Message | None:
        """Build the first message of a resumed session: its open calls, and notes that it lacks."""
        text = self.text()
        if not text or not history or any(text in message.text for message in history):
            return interrupted
        told = user(reminder(_told(text)))
        if interrupted is None:
            return told
        return replace(interrupted, content=(*interrupted.content, Text(text=told.text)))


def _told(text: str) -> str:
    return f"{_HEAD}\n{text}"


@cache
def _directive() -> str:
    return (files("shoal.agent") / "prompts" / "remember.md").read_text("utf-8")
