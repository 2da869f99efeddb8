"""Messages to all members: one that cannot receive it does not keep it from the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from shoal.core.errors import AgentRequestRefused, ShoalError
from shoal.core.names import AgentName
from shoal.team.team_prompts import format_team_notice

Receipt = TypeVar("Receipt")


async def post_to_all(
    recipients: Sequence[AgentName], post: Callable[[AgentName], Awaitable[Receipt]]
) -> tuple[Receipt, ...]:
    """Post to each recipient; raise `AgentRequestRefused` at the end if some could not receive it."""
    receipts: list[Receipt] = []
    sent: list[AgentName] = []
    errors: dict[AgentName, ShoalError] = {}
    for recipient in recipients:
        try:
            receipts.append(await post(recipient))
        except ShoalError as error:
            errors[recipient] = error
        else:
            sent.append(recipient)
    if errors:
        raise AgentRequestRefused(
            format_team_notice(
                "broadcast_incomplete",
                sent=", ".join(sent) or "nobody",
                failures=" ".join(f"{name}: {error}" for name, error in errors.items()),
            )
        ) from next(iter(errors.values()))
    return tuple(receipts)
