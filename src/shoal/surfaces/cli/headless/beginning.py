"""Start of a run that a program drives: its `initialize` request becomes part of the session's options."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

import shoal
from shoal.app.definitions.definitions import given_definitions
from shoal.app.options import Options
from shoal.core.errors import SettingsError, ShoalError
from shoal.core.mcp import ServerStanding
from shoal.surfaces.cli.headless.callbacks import hooks_of
from shoal.surfaces.cli.headless.driving import DrivingProgram
from shoal.surfaces.cli.headless.output import StreamOutput
from shoal.tools.relayed import RelayedServer, RelayedTool
from shoal.wire.stream_incoming import Control
from shoal.wire.stream_json import refused
from shoal.wire.stream_opening import Wishes, wishes_in

if TYPE_CHECKING:
    from shoal.app.session.session import Session

OPENED_WITHIN = 30.0
"""Timeout in seconds for all servers of the program together; the program waits twice as long."""


class Beginning(Struct, frozen=True, kw_only=True):
    options: Options
    opening: Control | None
    """Request that is answered once the session is open."""
    servers: tuple[ServerStanding, ...] = ()
    tools: tuple[RelayedTool, ...] = ()

    def settle(self, session: Session) -> None:
        """Register the program's servers with the session, and apply its settings to their tools."""
        session.parts.servers.relayed = self.servers
        for tool in self.tools:
            tool.deadline = session.parts.settings.own.mcp_deadline


async def begin(
    program: DrivingProgram, output: StreamOutput, options: Options, servers: Sequence[str] = ()
) -> Beginning:
    """Read the `initialize` request; one that cannot be met is refused, and the next one counts."""
    while (opening := await program.opening()) is not None:
        try:
            options = _with(options, wishes_in(opening.body), program)
            break
        except ShoalError as error:
            await output.send(refused(opening.id, str(error)))
    async with asyncio.TaskGroup() as group:
        opened = [group.create_task(_opened(program, name, options)) for name in servers]
    tools = tuple(tool for task in opened for tool in task.result()[1])
    if options.available_tools is not None:
        # `available_tools` restricts the tools of Shoal; the tools of the program are always included.
        names = (*options.available_tools, *(tool.schema.name for tool in tools))
        options = replace(options, available_tools=names)
    return Beginning(
        options=replace(options, tools=(*options.tools, *tools)),
        opening=opening,
        servers=tuple(task.result()[0] for task in opened),
        tools=tools,
    )


def _with(options: Options, wishes: Wishes, program: DrivingProgram) -> Options:
    if wishes.callbacks:
        options = replace(options, hooks=hooks_of(program, wishes.callbacks))
    if wishes.agents is not None:
        if options.agents is not None:
            raise SettingsError("Agents come with --agents and with initialize: give them in one place.")
        given_definitions(wishes.agents, Path.cwd())
        options = replace(options, agents=wishes.agents)
    return options


async def _opened(
    program: DrivingProgram, name: str, options: Options
) -> tuple[ServerStanding, tuple[RelayedTool, ...]]:
    """Open a server of the program and return its status and tools; a failure affects no other server."""

    async def exchange(server: str, message: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = await program.ask({"subtype": "mcp_message", "server_name": server, "message": message})
        response = answer.get("mcp_response")
        return response if isinstance(response, Mapping) else {}

    server = RelayedServer(name, exchange, version=shoal.__version__)
    standing = ServerStanding(name=name, status="connected", kind="sdk", origin="the driving program")
    try:
        async with options.clock.deadline(OPENED_WITHIN):
            tools = await server.open(OPENED_WITHIN)
    except TimeoutError:
        why = f"it did not come up within {OPENED_WITHIN:g} s"
        return replace(standing, status="failed", detail=why), ()
    except ShoalError as error:
        return replace(standing, status="failed", detail=str(error)), ()
    return replace(standing, tools=tuple(tool.schema.name for tool in tools)), tools
