"""Hooks of the driving program: functions in that program, called through control requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.core.hooks import EVENTS, Called, Hook, HookEvent, Verdict
from shoal.surfaces.cli.headless.driving import DrivingProgram
from shoal.wire.stream_incoming import BadLine
from shoal.wire.stream_opening import CallbackWish

ORIGIN = "the driving program"
_LATER = 5.0
"""Extra seconds of the hook runner's timeout, so that our own timeout fires first."""


def hooks_of(program: DrivingProgram, wishes: Sequence[CallbackWish]) -> dict[str, list[Hook]]:
    """Build the hooks by event, as session options expect them. Raises `BadLine` for an unknown event."""
    hooks: dict[str, list[Hook]] = {}
    for wish in wishes:
        hooks.setdefault(wish.event, []).append(_hook(program, wish))
    return hooks


def _hook(program: DrivingProgram, wish: CallbackWish) -> Hook:
    async def called(fields: dict[str, Any]) -> Any:
        request = {
            "subtype": "hook_callback",
            "callback_id": wish.callback,
            "input": fields,
            "tool_use_id": fields.get("tool_use_id"),
        }
        try:
            return await program.ask(request, within=wish.seconds)
        except TimeoutError:
            # A hook that did not answer has not agreed.
            return Verdict(blocked=f"the program's hook did not answer within {wish.seconds:g} s")

    called.__qualname__ = wish.callback
    return Hook(
        event=_event(wish.event),
        matcher=wish.matcher,
        does=Called(function=called),
        seconds=wish.seconds + _LATER,
        blocks_on_failure=wish.blocks_on_failure,
        origin=ORIGIN,
    )


def _event(name: str) -> HookEvent:
    for event in EVENTS:
        if event == name:
            return event
    raise BadLine(f"there is no event {name!r} that hooks could hear of; there are {', '.join(EVENTS)}")
