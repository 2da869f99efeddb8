"""Hooks of the driving program: functions in that program, called through control requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.core.hooks import HOOK_EVENTS, Hook, HookDecision, HookEvent, PythonCallbackHookAction
from shoal.surfaces.cli.headless.driving_program import DrivingProgramConnection
from shoal.wire.stream_initialize_codec import HookCallbackRegistration
from shoal.wire.stream_input_codec import InvalidInputStreamLineError

ORIGIN = "the driving program"
_EXTRA_TIMEOUT = 5.0
"""Extra seconds of the hook runner's timeout, so that our own timeout fires first."""


def build_callback_hooks(
    program: DrivingProgramConnection, registrations: Sequence[HookCallbackRegistration]
) -> dict[str, list[Hook]]:
    """Build the hooks by event for options. Raises `InvalidInputStreamLineError` for an unknown event."""
    hooks: dict[str, list[Hook]] = {}
    for registration in registrations:
        hooks.setdefault(registration.event, []).append(_build_callback_hook(program, registration))
    return hooks


def _build_callback_hook(program: DrivingProgramConnection, registration: HookCallbackRegistration) -> Hook:
    async def request_hook_decision(fields: dict[str, Any]) -> Any:
        request = {
            "subtype": "hook_callback",
            "callback_id": registration.callback,
            "input": fields,
            "tool_use_id": fields.get("tool_use_id"),
        }
        try:
            return await program.send_control_request(request, timeout=registration.seconds)
        except TimeoutError:
            # A hook that did not answer has not agreed.
            return HookDecision(
                blocked=f"the program's hook did not answer within {registration.seconds:g} s"
            )

    request_hook_decision.__qualname__ = registration.callback
    return Hook(
        event=_parse_hook_event(registration.event),
        matcher=registration.matcher,
        action=PythonCallbackHookAction(function=request_hook_decision),
        seconds=registration.seconds + _EXTRA_TIMEOUT,
        blocks_on_failure=registration.blocks_on_failure,
        origin=ORIGIN,
    )


def _parse_hook_event(name: str) -> HookEvent:
    for event in HOOK_EVENTS:
        if event == name:
            return event
    raise InvalidInputStreamLineError(
        f"there is no event {name!r} that hooks could hear of; there are {', '.join(HOOK_EVENTS)}"
    )
