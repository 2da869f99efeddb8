"""Undo of turns: their file changes and the conversation before them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from shoal.agent.agent import Agent
from shoal.core.clock import Clock
from shoal.core.entries import Rewound
from shoal.core.errors import ShoalError
from shoal.core.events import TurnStarted, Undone
from shoal.core.ids import LEAD, EntryId, Ids, SessionId
from shoal.core.messages import Message
from shoal.stores.conversation import conversation
from shoal.stores.files.journal import FileJournal, read_journal
from shoal.stores.files.locks import SessionLock
from shoal.stores.files.places import journal_path, run_directory
from shoal.stores.files.sessions import read_session
from shoal.stores.files.transcripts import FileTranscript
from shoal.wire.transcript import Lines, Read, read_line
from shoal.workspaces.checkpoints import ChangedFile, Checkpoints, UndoReport


class NothingToUndo(ShoalError): ...


class TurnTaken(Struct, frozen=True, kw_only=True):
    turn: int
    prompt: str
    """Preview of the prompt."""
    after: EntryId | None = None
    files: tuple[ChangedFile, ...] = ()
    """Changed files that can be restored."""


class Past(Struct, frozen=True, kw_only=True):
    """Undo history of a session, running or not."""

    home: Path
    session: SessionId
    transcript: Path

    @property
    def journal(self) -> Path:
        return journal_path(self.home, self.session)

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(checkpoints_directory(self.home, self.session))

    def turns(self) -> tuple[TurnTaken, ...]:
        """Return the turns that are in the conversation or have restorable changes, oldest first."""
        return turns_taken(self.journal, self.checkpoints)


def checkpoints_directory(home: Path, session: SessionId) -> Path:
    return run_directory(home, session) / "checkpoints"


def turns_taken(journal: Path, checkpoints: Checkpoints) -> tuple[TurnTaken, ...]:
    changed = {each.turn: each.files for each in checkpoints.turns()}
    started: dict[int, TurnStarted] = {}
    gone: set[int] = set()
    for recorded in read_journal(journal):
        match recorded.event:
            case TurnStarted(turn=turn):
                started[turn] = recorded.event
            case Undone(turn=turn, conversation=True):
                gone.update(each for each in started if each >= turn)
            case _:
                pass
    return tuple(
        TurnTaken(turn=turn, prompt=it.prompt, after=it.after, files=changed.get(turn, ()))
        for turn, it in sorted(started.items())
        if turn not in gone or turn in changed
    )


def turn_to_undo(turns: Iterable[TurnTaken], wanted: int | None) -> TurnTaken:
    """Return the turn of this number; by default the last one that changed files."""
    known = list(turns)
    if wanted is None:
        changing = [each for each in known if each.files]
        if not changing:
            raise NothingToUndo("No turn of this session has changed a file that could be brought back.")
        return changing[-1]
    for each in known:
        if each.turn == wanted:
            return each
    numbers = ", ".join(str(each.turn) for each in known) or "none"
    raise NothingToUndo(f"There is no turn {wanted} to go back before. The turns are: {numbers}.")


def messages_at(transcript: Path, after: EntryId | None) -> tuple[Message, ...]:
    """Return the conversation as it was when `after` was the last entry."""
    back = Rewound(id=EntryId("back"), parent=after, at=0, turn=0)
    return conversation([*lines_of(transcript), Read(entry=back)]).messages


def lines_of(transcript: Path) -> Iterator[Read]:
    """Yield the readable lines. Raises `NothingToUndo` if the file is unreadable."""
    try:
        content = transcript.read_bytes()
    except OSError as error:
        raise NothingToUndo(f"What was said cannot be read from {transcript}: {error.strerror}.") from error
    for line in content.split(b"\n"):
        with suppress(ValueError):
            yield read_line(line)


def undone(report: UndoReport, *, conversation: bool) -> Undone:
    return Undone(
        agent=LEAD,
        turn=report.turn,
        conversation=conversation,
        restored=tuple(map(str, report.restored)),
        removed=tuple(map(str, report.removed)),
        left_alone=tuple(str(each.path) for each in report.left_alone),
    )


def undo(past: Past, turn: TurnTaken, clock: Clock, *, conversation: bool) -> UndoReport:
    """Undo a turn of a session that is not open here; the conversation only while nobody runs it."""
    lock = SessionLock(past.home, past.session) if conversation else None
    journal = FileJournal(past.journal, clock)
    try:
        report = past.checkpoints.undo(turn.turn)
        if conversation:
            _rewind(past, turn, clock)
        journal.append(undone(report, conversation=conversation))
    finally:
        journal.close()
        if lock is not None:
            lock.release()
    return report


def _rewind(past: Past, turn: TurnTaken, clock: Clock) -> None:
    from shoal import __version__

    cwd = read_session(past.transcript).cwd
    transcript = FileTranscript(past.transcript, Lines(session=past.session, cwd=cwd, version=__version__))
    try:
        transcript.append(Rewound(id=Ids().entry(), parent=turn.after, at=clock.now(), turn=turn.turn))
    finally:
        transcript.close()


def brought_back(past: Past | None, agent: Agent, turn: int | None, *, conversation: bool) -> UndoReport:
    """Restore files to before a turn, optionally the agent's conversation. Raises `NothingToUndo`."""
    if past is None:
        raise NothingToUndo("This session keeps nothing on disk, so nothing can be brought back.")
    chosen = turn_to_undo(past.turns(), turn)
    # Read before any file is changed, so that a read error cannot leave it half done.
    messages = messages_at(past.transcript, chosen.after) if conversation else ()
    report = past.checkpoints.undo(chosen.turn)
    if conversation:
        agent.conversation.rewind(chosen.after, messages, turn=chosen.turn)
        agent.recount()
    return report
