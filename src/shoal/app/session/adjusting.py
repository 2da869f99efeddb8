"""Changes to a running session beyond its model and mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from shoal.app.basis import undo
from shoal.core.entries import Said
from shoal.runs.roll import LEAD_NAMES

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.workspaces.checkpoints import UndoReport


INTERRUPTED = "it was interrupted by the person; what is said to it now lets it go on"


async def interrupt_agent(session: Session, name: str) -> bool:
    """Interrupt an agent's work; return False if it did nothing. Raises `AgentRefused`.

    A teammate becomes idle. A one-job agent ends and continues when it gets a message.
    """
    if name in LEAD_NAMES:
        return await session.interrupt()
    worked = session.parts.teams.interrupt(name)
    if worked is None:
        await session.parts.crew.end(name, INTERRUPTED)
        return True
    return worked


def set_thinking(session: Session, tokens: int | None) -> None:
    """Set the lead's thinking budget from the next request on; None is the configured value."""
    wanted = session.parts.settings.own.thinking_tokens if tokens is None else tokens
    session.agent.bounds = replace(session.agent.bounds, thinking_tokens=wanted)


async def undo_turn(session: Session, turn: int | None, *, conversation: bool = False) -> UndoReport:
    """Restore files to before a turn, optionally the conversation. Raises `NothingToUndo`."""
    report = undo.brought_back(session.parts.past, session.agent, turn, conversation=conversation)
    await session.tell(undo.undone(report, conversation=conversation))
    return report


async def rewind_files(session: Session, said: str) -> UndoReport:
    """Restore files to before the turn that a message started. Raises `NothingToUndo`."""
    if session.parts.past is None:
        raise undo.NothingToUndo("This session keeps nothing on disk, so nothing can be brought back.")
    return await undo_turn(session, _turn_begun_by(session.parts.past, said))


def _turn_begun_by(past: undo.Past, said: str) -> int:
    turns = {each.after: each.turn for each in past.turns()}
    # Before its first turn a session has no transcript.
    for line in undo.lines_of(past.transcript) if turns else ():
        entry = line.entry
        if isinstance(entry, Said) and entry.id == said and entry.parent in turns:
            return turns[entry.parent]
    raise undo.NothingToUndo(f"No turn of this session began with a message of the id {said!r}.")
