"""Whole state of one run as bytes, the form in which it moves from one store to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from shoal.core.events import UnknownJournalEvent
from shoal.core.ids import AgentId, SessionId
from shoal.core.names import AgentName, TeamName
from shoal.core.text.text_format import format_count_with_noun
from shoal.wire.journal_codec import parse_journal_line
from shoal.wire.transcript_codec import parse_transcript_line


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
    work: dict[str, tuple[bytes, ...]] = {}
    """Parts of the work of agents on other machines, by agent."""


def describe_unreadable_lines(run: StoredRun) -> Iterator[str]:
    """Return a sentence for the journal and each conversation with whole lines that cannot be read."""
    lists = {f"conversation of {agent}": content for agent, content in run.transcripts.items()}
    for name, content, is_readable in (
        *((name, content, _is_transcript_line) for name, content in lists.items()),
        ("journal", run.journal, _is_journal_line),
    ):
        if count := _count_unreadable_lines(content, is_readable):
            yield f"The {name} has {format_count_with_noun(count, 'line')} that cannot be read."


def _count_unreadable_lines(content: bytes, is_readable: Callable[[bytes], bool]) -> int:
    # A last line without an end is what a crash leaves, and reported with the file.
    return sum(not is_readable(line) for line in content.split(b"\n")[:-1] if line)


def _is_transcript_line(line: bytes) -> bool:
    try:
        parse_transcript_line(line)
    except ValueError:
        return False
    return True


def _is_journal_line(line: bytes) -> bool:
    try:
        _, event = parse_journal_line(line)
    except ValueError:
        return False
    return not (isinstance(event, UnknownJournalEvent) and event.is_damaged)
