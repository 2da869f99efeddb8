"""How a run begins that a program drives: what it asks for first becomes part of the session's options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.definitions import given_definitions
from shoal.app.options import Options
from shoal.core.errors import SettingsError, ShoalError
from shoal.surfaces.cli.driving import DrivingProgram
from shoal.surfaces.cli.output import StreamOutput
from shoal.wire.stream_json import Control, refused
from shoal.wire.stream_opening import Wishes, wishes_in


class Beginning(Struct, frozen=True, kw_only=True):
    options: Options
    opening: Control | None
    """The request that asked for it, which is answered once the session is there."""


async def begin(
    program: DrivingProgram, output: StreamOutput, options: Options, servers: Sequence[str] = ()
) -> Beginning:
    """A request that asks for what cannot be had is refused, and the next one counts."""
    while (opening := await program.opening()) is not None:
        try:
            options = _with(options, wishes_in(opening.body))
            break
        except ShoalError as error:
            await output.send(refused(opening.id, str(error)))
    return Beginning(options=options, opening=opening)


def _with(options: Options, wishes: Wishes) -> Options:
    if wishes.callbacks:
        raise SettingsError("Hooks of a driving program are not known here yet: leave them out.")
    if wishes.agents is not None:
        if options.agents is not None:
            raise SettingsError("Agents come with --agents and with initialize: give them in one place.")
        given_definitions(wishes.agents, Path.cwd())
        options = replace(options, agents=wishes.agents)
    return options
