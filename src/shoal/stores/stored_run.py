"""Whole state of one run as bytes, the form in which it moves from one store to another."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.ids import AgentId, SessionId
from shoal.core.names import AgentName, TeamName


class StoredRunQuestion(Struct, frozen=True, kw_only=True):
    id: str
    question: bytes
    answer: bytes | None = None
    late_answer: bytes | None = None


class StoredRunMail(Struct, frozen=True, kw_only=True):
    id: str
    document: bytes
    is_read: bool
    is_archived: bool = False
    """True if the file store has moved it from the inbox to its archive."""


class StoredRunInbox(Struct, frozen=True, kw_only=True):
    is_foreign: bool
    mail: tuple[StoredRunMail, ...]


class StoredRunBoard(Struct, frozen=True, kw_only=True):
    highest: int
    """Highest number that is or was in use."""
    tasks: dict[int, bytes]


class StoredRunTeam(Struct, frozen=True, kw_only=True):
    name: TeamName
    roster: bytes
    spawned: int
    key: bytes | None
    inboxes: dict[AgentName, StoredRunInbox]


class StoredRun(Struct, frozen=True, kw_only=True):
    session: SessionId
    cwd: str
    transcripts: dict[AgentId, bytes]
    metadata: dict[AgentId, bytes]
    journal: bytes
    results: dict[str, bytes]
    questions: tuple[StoredRunQuestion, ...]
    """In the order in which they were asked."""
    teams: tuple[StoredRunTeam, ...]
    """Teams that the session leads."""
    boards: dict[str, StoredRunBoard]
    """Boards of these teams, and that of the session."""
