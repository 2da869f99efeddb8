"""Progress of reading a long journal, and damage found in it, for the user interface that waits for it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import TypeAlias

JournalProgress: TypeAlias = Callable[[Path, int, int], None]
"""Called with the journal, the bytes read so far and the bytes to read, about once a second."""
journal_progress: ContextVar[JournalProgress | None] = ContextVar("journal_progress", default=None)
"""Reports the progress; None reports nothing."""

JournalDamageReporter: TypeAlias = Callable[[Path, str], None]
"""Called with the journal and a sentence about each part that cannot be read."""
journal_damage: ContextVar[JournalDamageReporter | None] = ContextVar("journal_damage", default=None)
"""Reports damage found by readers without a reporter; None reports nothing."""
