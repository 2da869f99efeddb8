"""How a run begins that a program drives: what it asks for first becomes part of the session's options."""

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
"""Seconds for all servers of the program together; it waits for twice as long to be answered."""


class Beginning(Struct, frozen=True, kw_only=True):
    options: Options
    opening: Control | None
    """The request that asked for it, which is answered once the session is there."""
    servers: tuple[ServerStanding, ...] = ()
    tools: tuple[RelayedTool, ...] = ()

    def settle(self, session: Session) -> None:
        """Tell the session of the program's servers, whose tools it has, and keep to its settings."""
        session.parts.servers.relayed = self.servers
        for tool in self.tools:
            tool.deadline = session.parts.settings.own.mcp_deadline


async def begin(
    program: DrivingProgram, output: StreamOutput, options: Options, servers: Sequence[str] = ()
) -> Beginning:
    """A request that asks for what cannot be had is refused, and the next one counts."""
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
        # What is chosen from is what Shoal brings; the program's own tools it has brought itself.
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
    """How the server stands, and its tools: one that fails costs no other."""

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
