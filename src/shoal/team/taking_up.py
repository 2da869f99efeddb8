"""How a member goes on that an earlier process left."""

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
    """Idle as it was, or with word that it was cut off at work.

    `held` are the tasks it has claimed, `told` is all mail that its lead ever got.
    """
    await _tell_again(on, member, board, held)
    if was_cut_off(member.outfit):
        letter = Letter(rank=0, by="runtime", text=CUT_OFF)
        on.queue.put(letter.item(f"again-{on.ids.short()}", member.id))
    elif member.agent.conversation.messages:
        member.state = "idle"
        if member.rest_id not in told:
            # Its process died between its last words and the notice that it is idle.
            await member.rest("available", Ending(status="completed", text=member.words))


async def _tell_again(on: Footing, member: Member, board: TaskBoard, held: tuple[TaskId, ...]) -> None:
    """Of the tasks that it took by itself just before its process ended, and has not heard of."""
    heard = member.outfit.delivered
    for ident in held:
        task = await board.get(ident)
        if task is not None and told_of(task) not in heard:
            on.queue.put(task_letter(task).item(told_of(task), member.id))


def was_cut_off(outfit: Outfit) -> bool:
    """Whether its process ended while it was at work: the last word is not its own, or is a call."""
    said = outfit.agent.conversation.messages
    return bool(said) and (said[-1].role == "user" or bool(said[-1].tool_uses))
