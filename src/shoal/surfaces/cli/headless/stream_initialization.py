"""Start of a run that a program drives: its `initialize` request becomes part of the session's options."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

import shoal
from shoal.app.definitions.agent_catalog import parse_agents_option
from shoal.app.options import Options
from shoal.core.errors import SettingsError, ShoalError
from shoal.core.extensions.hooks import HOOK_EVENTS, Hook, HookDecision, HookEvent, PythonCallbackHookAction
from shoal.core.extensions.mcp_servers import McpServerStatus
from shoal.surfaces.cli.headless.driving_program import DrivingProgramConnection
from shoal.tools.relayed_mcp import DrivingProgramMcpServer, RelayedMcpServer
from shoal.wire.stream_input_codec import (
    ControlRequestInputStreamLine,
    HookCallbackRegistration,
    InvalidInputStreamLineError,
    StreamInitializeRequest,
    parse_stream_initialize_request,
)
from shoal.wire.stream_output_codec import build_control_error_response

OPEN_TIMEOUT = 30.0
"""Timeout in seconds for all servers of the program together; the program waits twice as long."""
ORIGIN = "the driving program"
_EXTRA_TIMEOUT = 5.0
"""Seconds added to the hook runner's timeout, so that our own timeout fires first."""


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
    raise InvalidInputStreamLineError(f"unknown hook event {name!r}; known events: {', '.join(HOOK_EVENTS)}")


class StreamInitializationResult(Struct, frozen=True, kw_only=True):
    options: Options
    initialize_request: ControlRequestInputStreamLine | None
    """Request that is answered once the session is open."""


async def process_initialize_request(
    program: DrivingProgramConnection, options: Options, servers: Sequence[str] = ()
) -> StreamInitializationResult:
    """Read the `initialize` request; one that cannot be met is refused, and the next one counts."""
    while (initialize_request := await program.take_initialize_request()) is not None:
        try:
            request = parse_stream_initialize_request(initialize_request.body)
            options = _apply_initialize_request(options, request, program)
            servers = tuple(dict.fromkeys((*servers, *request.mcp_servers)))
            break
        except ShoalError as error:
            await program.send_line(build_control_error_response(initialize_request.id, str(error)))
    async with asyncio.TaskGroup() as group:
        opened = [group.create_task(_open_relayed_mcp_server(program, name, options)) for name in servers]
    return StreamInitializationResult(
        options=replace(options, relayed_servers=tuple(task.result() for task in opened)),
        initialize_request=initialize_request,
    )


def _apply_initialize_request(
    options: Options, request: StreamInitializeRequest, program: DrivingProgramConnection
) -> Options:
    if request.callbacks:
        options = replace(options, hooks=build_callback_hooks(program, request.callbacks))
    if request.agents is not None:
        if options.agents is not None:
            raise SettingsError(
                "Agents are defined both by --agents and by initialize. Use only one of them."
            )
        parse_agents_option(request.agents, Path.cwd())
        options = replace(options, agents=request.agents)
    if request.skills is not None:
        options = replace(options, skills=request.skills)
    return options


async def _open_relayed_mcp_server(
    program: DrivingProgramConnection, name: str, options: Options
) -> RelayedMcpServer:
    """Open a server of the program and list its tools; a failure affects no other server."""

    async def exchange_mcp_message(server: str, message: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = await program.send_control_request(
            {"subtype": "mcp_message", "server_name": server, "message": message}
        )
        response = answer.get("mcp_response")
        return response if isinstance(response, Mapping) else {}

    server = DrivingProgramMcpServer(name, exchange_mcp_message, version=shoal.__version__)
    status = McpServerStatus(name=name, status="connected", kind="sdk", origin="the driving program")
    try:
        async with options.clock.deadline(OPEN_TIMEOUT):
            tools = await server.list_tools()
    except TimeoutError:
        reason = f"it did not start within {OPEN_TIMEOUT:g} s"
        return RelayedMcpServer(server, replace(status, status="failed", detail=reason))
    except ShoalError as error:
        return RelayedMcpServer(server, replace(status, status="failed", detail=str(error)))
    names = tuple(tool.schema.name for tool in tools)
    status = replace(status, tools=names, instructions=server.instructions)
    return RelayedMcpServer(server, status, tools)
