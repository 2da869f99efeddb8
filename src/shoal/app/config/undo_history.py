"""Undo of turns: their file changes and the conversation before them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from msgspec import Struct

import shoal
from shoal.agent.agent_runner import AgentRunner
from shoal.app.config.session_config import SessionConfig
from shoal.core.clock import Clock, SystemClock
from shoal.core.conversation.messages import Message
from shoal.core.conversation.transcript_entries import TranscriptRewindMarker
from shoal.core.errors import ShoalError, StateFileError
from shoal.core.events import EVENT_MODULES, JournalRecord, TurnStarted, TurnUndone
from shoal.core.ids import LEAD_ID, EntryId, IdGenerator, SessionId
from shoal.core.ports import Journal
from shoal.core.store import SessionStore
from shoal.core.text.redaction import KEY_SHAPE_REDACTOR
from shoal.stores.restored_conversation import (
    parse_transcript_lines,
    restore_conversation,
)
from shoal.wire.transcript_codec import ParsedTranscriptLine
from shoal.workspaces.checkpoints import ChangedFile, CheckpointStore, FileUndoReport


class NothingToUndoError(ShoalError): ...


class UndoableTurn(Struct, frozen=True, kw_only=True):
    turn: int
    prompt: str
    """Preview of the prompt."""
    after: EntryId | None = None
    files: tuple[ChangedFile, ...] = ()
    """Changed files that can be restored."""


class SessionUndoHistory(Struct, frozen=True, kw_only=True):
    """Undo history of a session, running or not."""

    store: SessionStore

    @property
    def session(self) -> SessionId:
        return self.store.session

    @property
    def checkpoints(self) -> CheckpointStore:
        return CheckpointStore(self.store.directory / "checkpoints")

    def open_journal(self, clock: Clock) -> Journal:
        return self.store.open_journal(clock, secrets=KEY_SHAPE_REDACTOR)

    def list_undoable_turns(self) -> tuple[UndoableTurn, ...]:
        """Return the turns that are in the conversation or have restorable changes, oldest first."""
        turns = self.open_journal(SystemClock()).replay(StartedTurnsState)
        changed = {each.turn: each.files for each in self.checkpoints.list_undoable_turns()}
        return tuple(
            UndoableTurn(turn=turn, prompt=event.prompt, after=event.after, files=changed.get(turn, ()))
            for turn, event in sorted(turns.started.items())
            if turn not in turns.undone or turn in changed
        )


class StartedTurnsState:
    """Turns that were started, and those whose conversation was undone."""

    snapshot_name: ClassVar[str] = "turns"
    snapshot_modules: ClassVar[tuple[str, ...]] = (__name__, *EVENT_MODULES)

    def __init__(self) -> None:
        self.started: dict[int, TurnStarted] = {}
        self.undone: set[int] = set()

    def apply_record(self, record: JournalRecord) -> None:
        match record.event:
            case TurnStarted(turn=turn):
                self.started[turn] = record.event
            case TurnUndone(turn=turn, conversation=True):
                self.undone.update(each for each in self.started if each >= turn)
            case _:
                pass


def select_undoable_turn(turns: Iterable[UndoableTurn], number: int | None) -> UndoableTurn:
    """Return the turn with this number; by default, the last one that changed files."""
    all_turns = list(turns)
    if number is None:
        changed_turns = [each for each in all_turns if each.files]
        if not changed_turns:
            raise NothingToUndoError("There is nothing to restore: no turn of this session changed a file.")
        return changed_turns[-1]
    for each in all_turns:
        if each.turn == number:
            return each
    numbers = ", ".join(str(each.turn) for each in all_turns) or "none"
    raise NothingToUndoError(f"There is no turn {number}. Turns: {numbers}.")


def read_messages_at_entry(store: SessionStore, after: EntryId | None) -> tuple[Message, ...]:
    """Return the conversation as it was when `after` was the last entry."""
    rewind = TranscriptRewindMarker(id=EntryId("back"), parent=after, at=0, turn=0)
    return restore_conversation([*read_transcript_lines(store), ParsedTranscriptLine(entry=rewind)]).messages


def read_transcript_lines(store: SessionStore) -> Sequence[ParsedTranscriptLine]:
    """Return the readable lines. Raises `NothingToUndoError` if the transcript is unreadable."""
    try:
        lines, _, _ = parse_transcript_lines(store.read_transcript(LEAD_ID))
    except StateFileError as error:
        raise NothingToUndoError(f"Cannot read the conversation: {error}") from error
    return lines


def build_turn_undone_event(report: FileUndoReport, *, conversation: bool) -> TurnUndone:
    return TurnUndone(
        agent=LEAD_ID,
        turn=report.turn,
        conversation=conversation,
        restored=tuple(map(str, report.restored)),
        removed=tuple(map(str, report.removed)),
        left_alone=tuple(str(each.path) for each in report.left_alone),
    )


def undo_closed_session(
    history: SessionUndoHistory, turn: UndoableTurn, clock: Clock, *, conversation: bool
) -> FileUndoReport:
    """Undo a turn of a session that is not open here; the conversation only if nobody is running it."""
    if conversation:
        history.store.acquire_lock()
    journal = history.open_journal(clock)
    try:
        report = history.checkpoints.undo_from_turn(turn.turn)
        if conversation:
            _rewind_transcript(history, turn, clock)
        journal.append(build_turn_undone_event(report, conversation=conversation))
    finally:
        journal.close()
        if conversation:
            history.store.release_lock()
    return report


def _rewind_transcript(history: SessionUndoHistory, turn: UndoableTurn, clock: Clock) -> None:
    cwd = history.store.restore_conversation(LEAD_ID).cwd
    transcript = history.store.open_transcript(LEAD_ID, cwd=cwd, version=shoal.__version__)
    try:
        transcript.append(
            TranscriptRewindMarker(
                id=IdGenerator().new_entry_id(), parent=turn.after, at=clock.now(), turn=turn.turn
            )
        )
    finally:
        transcript.close()


def restore_before_turn(
    history: SessionUndoHistory | None, agent: AgentRunner, turn: int | None, *, conversation: bool
) -> FileUndoReport:
    """Restore files to before a turn, optionally the agent's conversation. Raises `NothingToUndoError`."""
    if history is None:
        raise NothingToUndoError("This session stores nothing on disk, so Shoal cannot restore files.")
    selected = select_undoable_turn(history.list_undoable_turns(), turn)
    # Read before any file is changed, so that a read error cannot leave it half done.
    messages = read_messages_at_entry(history.store, selected.after) if conversation else ()
    report = history.checkpoints.undo_from_turn(selected.turn)
    if conversation:
        agent.conversation.rewind_to_entry(selected.after, messages, turn=selected.turn)
        agent.reestimate_context_tokens()
    return report


def create_undo_history(config: SessionConfig) -> SessionUndoHistory | None:
    if not config.options.persist:
        return None
    return SessionUndoHistory(store=config.history.store)
