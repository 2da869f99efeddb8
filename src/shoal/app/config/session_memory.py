"""Session memory: a small notes file that an internal fork keeps up to date."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from shoal.agent.agent_runner import AgentRunner
from shoal.agent.agent_texts import load_prompt
from shoal.agent.forks import ask_model_outside_conversation
from shoal.app.config.session_history import SessionHistory
from shoal.app.model_notices import format_session_notice
from shoal.core.conversation.messages import Message, TextBlock, user_message
from shoal.core.errors import ModelError, StateFileError
from shoal.core.text.control_tags import escape_control_tags
from shoal.stores.files.home.home_paths import (
    open_state_file,
    write_file_atomically,
)
from shoal.wire.notification_text import format_system_reminder

MAX_CHARACTERS = 8_000
"""Maximum characters of the file."""
_NONE = "(none yet)"


class SessionMemory:
    def __init__(self, path: Path, note: Callable[[str], None]) -> None:
        self.path = path
        self._note = note

    def read_notes(self) -> str:
        """Return the notes; empty if there are none."""
        try:
            with open_state_file(self.path) as file:
                return (
                    file.read(4 * MAX_CHARACTERS).decode("utf-8", errors="replace")[:MAX_CHARACTERS].strip()
                )
        except OSError:
            return ""

    async def __call__(self, agent: AgentRunner, messages: list[Message]) -> str:
        """Update the notes at a compaction; return the text for the compacted conversation."""
        try:
            await self.write_notes_with_model(agent, messages)
        except (ModelError, StateFileError) as error:
            # The session needs the compaction to continue; outdated notes do no harm.
            self._note(f"Could not update this session's notes: {error}")
        return f"\n\n{_format_session_notes(text)}" if (text := self.read_notes()) else ""

    async def write_notes_with_model(self, agent: AgentRunner, messages: list[Message] | None = None) -> bool:
        """Save new notes; False if there were none. Raises `ModelError` and `StateFileError`."""
        directive = load_prompt("remember") + (self.read_notes() or _NONE)
        notes = escape_control_tags(
            await ask_model_outside_conversation(agent, directive, history=messages)
        ).strip()
        if not notes:
            return False
        # Atomic: a crash leaves either the old or the new notes.
        write_file_atomically(self.path, f"{notes[:MAX_CHARACTERS]}\n".encode())
        return True

    def build_resume_message(self, interrupted: Message | None, history: Sequence[Message]) -> Message | None:
        """Build the first message of a resumed session: its open calls, and notes that are missing from
        it."""
        text = self.read_notes()
        if not text or not history or any(text in message.text for message in history):
            return interrupted
        notes_message = user_message(format_system_reminder(_format_session_notes(text)))
        if interrupted is None:
            return notes_message
        return replace(interrupted, content=(*interrupted.content, TextBlock(text=notes_message.text)))


def _format_session_notes(text: str) -> str:
    return f"{format_session_notice('session_notes')}\n{text}"


def build_resume_message(agent: AgentRunner, history: SessionHistory) -> Message | None:
    """Build the message with results for calls that an earlier process left open, and its notes."""
    if not isinstance(agent.context.save_memory, SessionMemory):
        return history.interrupted
    return agent.context.save_memory.build_resume_message(history.interrupted, history.messages)
