"""`shoal --agent-id …` command: this process as a member of a team that another program leads.

Users do not type these arguments: the lead's program starts its teammates with them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from shoal.core.clock import SystemClock
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.terminal.text_styles import BOLD, DIM

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.core.events import Event
    from shoal.core.teams.member_backends import MemberLaunchArgs
    from shoal.surfaces.terminal.screen import TerminalScreen


@click.command(
    name="member", context_settings={"ignore_unknown_options": True, "allow_extra_args": True}, hidden=True
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def member_command(*, words: tuple[str, ...]) -> int:
    from shoal.core.errors import InvalidName
    from shoal.wire.launch_args_codec import parse_member_launch_flags

    try:
        launch_args = _find_team_directory(parse_member_launch_flags(words))
    except (ValueError, InvalidName) as error:
        raise click.UsageError(f"This process cannot join the team as a teammate: {error}.") from error
    return asyncio.run(_serve_member(launch_args))


def _find_team_directory(launch_args: MemberLaunchArgs) -> MemberLaunchArgs:
    """Use the lower-case directory of the team if only that one exists: other programs fold its name."""
    from msgspec.structs import replace

    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.core.ids import AgentId
    from shoal.core.names import TeamName
    from shoal.core.teams.roster import format_agent_id

    teams, team = find_process_shoal_home() / "teams", TeamName(launch_args.team.lower())
    if (teams / launch_args.team / "config.json").exists() or not (teams / team / "config.json").exists():
        return launch_args
    return replace(launch_args, team=team, agent=AgentId(format_agent_id(launch_args.name, team)))


async def _serve_member(launch_args: MemberLaunchArgs) -> int:
    from shoal.app.session.member_main import build_foreign_member_options, run_member_of_foreign_lead
    from shoal.app.session.session import Session
    from shoal.surfaces.terminal.screen import open_terminal_screen

    screen = open_terminal_screen(sys.stdout)
    try:
        async with Session(build_foreign_member_options(launch_args)) as session:
            _print_member_header(screen, launch_args)
            session.subscribe(_create_event_printer(screen))
            async with asyncio.TaskGroup() as tasks:
                input_task = (
                    tasks.create_task(_forward_typed_lines(session, launch_args.name))
                    if sys.stdin.isatty()
                    else None
                )
                end = await run_member_of_foreign_lead(session)
                if input_task is not None:
                    input_task.cancel()
    finally:
        screen.close()
    return exit_codes.OK if end.status != "failed" else exit_codes.ERROR


def _create_event_printer(screen: TerminalScreen) -> Callable[[Event], None]:
    from shoal.app.run_view.agent_status import RunViewAgentsState
    from shoal.surfaces.cli.plain.turn_printer import RunEventPrinter

    statuses, clock = RunViewAgentsState(), SystemClock()
    printer = RunEventPrinter(screen, is_observer=True, statuses=statuses)

    def print_event(event: Event) -> None:
        statuses.apply_event(event, clock.now() / 1000)
        printer.print_event(event)

    return print_event


def _print_member_header(screen: TerminalScreen, launch_args: MemberLaunchArgs) -> None:
    screen.write(f"{launch_args.name}", BOLD)
    screen.write(f"  {launch_args.kind} in the team {launch_args.team} · {launch_args.model}\n", DIM)


async def _forward_typed_lines(session: Session, name: str) -> None:
    """Send each typed line to the member, as a message from the user."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if text := line.decode(errors="replace").strip():
            await session.send(name, text)
