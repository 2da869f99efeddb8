"""`shoal mcp serve` command: Shoal's teams as an MCP server on standard input and output."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.surfaces.cli import exits
from shoal.surfaces.cli.flags import budget, permission_mode, plugin_dirs_option, rules, settings_option
from shoal.surfaces.cli.printing import debug_option

if TYPE_CHECKING:
    from shoal.app.outside.background_runs import RunFlags

INSTALL = "pip install 'shoal[mcp]'"


@click.command("serve")
@click.option("--team", metavar="NAME", help="Be in this team from the start.")
@click.option("--as", "name", metavar="NAME", help="Under this name; a member that is new is entered.")
@click.option("--model", metavar="NAME", help="For the runs that the client starts, as all below.")
@click.option("--permission-mode", "mode", type=permission_mode, metavar="MODE", help="As for `shoal`.")
@click.option("--dangerously-skip-permissions", "skip", is_flag=True, help="As for `shoal`.")
@click.option("--allowedTools", "--allowed-tools", "allowed", multiple=True, metavar="RULES")
@click.option("--disallowedTools", "--disallowed-tools", "disallowed", multiple=True, metavar="RULES")
@click.option("--max-budget-usd", type=budget, metavar="USD", help="For each.")
@click.option("--max-runs", type=click.IntRange(min=0), default=8, show_default=True, help="At once.")
@settings_option
@plugin_dirs_option
@debug_option
def serve(*, team: str | None, name: str | None, **given: Any) -> int:
    """Let an MCP client lead or join teams, and start runs. A client starts this as its server: it speaks the
    protocol on standard input and output, and ends with its client."""
    if find_spec("mcp") is None:
        raise click.ClickException(f"The MCP server needs the official SDK. Install it: {INSTALL}")
    if (team is None) != (name is None):
        raise click.UsageError("--team and --as go together: which team, and who in it.")
    flags = _flags(given)
    asyncio.run(_serve(team, name, flags))
    return exits.OK


def _flags(given: dict[str, Any]) -> RunFlags:
    from shoal.app.outside.background_runs import RunFlags

    return RunFlags(
        model=given["model"],
        mode=given["mode"],
        allowed=rules(given["allowed"], "--allowedTools"),
        disallowed=rules(given["disallowed"], "--disallowedTools"),
        skip_permissions=given["skip"],
        max_budget_usd=given["max_budget_usd"],
        settings=given["settings"],
        plugin_dirs=tuple(path.resolve() for path in given["plugin_dirs"]),
        most=given["max_runs"],
    )


async def _serve(team: str | None, name: str | None, flags: RunFlags) -> None:
    from shoal.app.outside.background_runs import BackgroundRuns
    from shoal.app.settings.settings import load_settings
    from shoal.app.teams.guest import Guest
    from shoal.app.teams.record import AgentsRecord
    from shoal.core.clock import SystemClock
    from shoal.core.ids import Ids
    from shoal.runs.habits import Habits
    from shoal.surfaces.mcp.server import TeamTools, server_with
    from shoal.surfaces.terminal.sentences import say

    cwd, clock, ids = Path.cwd(), SystemClock(), Ids()
    settings = load_settings(cwd=cwd, given=flags.settings)
    record = AgentsRecord(settings.home, clock=clock, ids=ids, report=say)
    try:
        guest = Guest(record, clock=clock, ids=ids, cwd=cwd)
        if team is not None and name is not None:
            await guest.sit(team, name)
        kept = settings.home / "shoal" / "mcp" / "runs"
        runs = BackgroundRuns(settings.home, kept, cwd=cwd, flags=flags, ids=ids, clock=clock)
        model = flags.model or settings.model
        tools = TeamTools(record, guest, runs, model=model, kind=Habits().usual)
        await server_with(tools).run_stdio_async()
    finally:
        await record.aclose()
