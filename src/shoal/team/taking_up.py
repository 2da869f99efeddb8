"""Continues a member that an earlier process left."""

from __future__ import annotations

from collections.abc import Container

from shoal.core.names import TaskId
from shoal.core.record import TaskBoard
from shoal.runs.endings import Ending
from shoal.runs.outfit import Outfit
from shoal.team.footing import Footing
from shoal.team.letters import Letter, task_letter
from shoal.team.member import Member, told_of
from shoal.team.prompts import CUT_OFF


async def go_on(
    on: Footing, member: Member, board: TaskBoard, held: tuple[TaskId, ...], told: Container[str]
) -> None:
    """Restore the idle state, or queue a notice that it was cut off at work.

    `lead_mail_ids` are the ids of all mail that its lead ever received.
    """
    await _tell_again(on, member, board, held)
    if was_cut_off(member.outfit):
        letter = Letter(rank=0, by="runtime", text=CUT_OFF)
        on.queue.put(letter.item(f"again-{on.ids.short()}", member.id))
    elif member.agent.conversation.messages:
        member.state = "idle"
        if member.rest_id not in told:
            # Its process died between its last text and the idle notice.
            await member.rest("available", Ending(status="completed", text=member.words))


async def _tell_again(on: Footing, member: Member, board: TaskBoard, held: tuple[TaskId, ...]) -> None:
    """Queue notices of tasks that it claimed just before its process ended and does not know."""
    heard = member.outfit.delivered
    for ident in held:
        task = await board.get(ident)
        if task is not None and told_of(task) not in heard:
            on.queue.put(task_letter(task).item(told_of(task), member.id))


def was_cut_off(outfit: Outfit) -> bool:
    """Return True if its process ended during work: the last message is not its own, or is a call."""
    said = outfit.agent.conversation.messages
    return bool(said) and (said[-1].role == "user" or bool(said[-1].tool_uses))
