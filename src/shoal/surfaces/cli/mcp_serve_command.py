"""`shoal mcp serve` command: Shoal's teams as an MCP server on standard input and output."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import debug_option
from shoal.surfaces.cli.flags import (
    parse_budget,
    parse_permission_mode,
    parse_permission_rules,
    plugin_dirs_option,
    settings_option,
)

if TYPE_CHECKING:
    from shoal.app.run_access.background_runs import BackgroundRunFlags

INSTALL_COMMAND = "pip install 'shoal[mcp]'"


@click.command("serve", short_help="Let an MCP client lead or join teams.")
@click.option("--team", metavar="NAME", help="Join this team at startup.")
@click.option("--as", "name", metavar="NAME", help="Your member name; a new name is added to the team.")
@click.option(
    "--model",
    metavar="NAME",
    help="Model for runs that the client starts; the options below apply to them too.",
)
@click.option(
    "--permission-mode", "mode", type=parse_permission_mode, metavar="MODE", help="Same as for `shoal`."
)
@click.option("--dangerously-skip-permissions", "skip", is_flag=True, help="Same as for `shoal`.")
@click.option("--allowedTools", "--allowed-tools", "allowed", multiple=True, metavar="RULES")
@click.option("--disallowedTools", "--disallowed-tools", "disallowed", multiple=True, metavar="RULES")
@click.option("--max-budget-usd", type=parse_budget, metavar="USD", help="Budget for each run.")
@click.option(
    "--max-runs",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    help="Maximum number of runs at once.",
)
@settings_option
@plugin_dirs_option
@debug_option
def serve_mcp(*, team: str | None, name: str | None, **given: Any) -> int:
    """Let an MCP client lead or join teams, and start runs. The client starts this command as its server,
    which speaks MCP on standard input and output and exits when the client does."""
    if find_spec("mcp") is None:
        raise click.ClickException(f"The MCP server needs the official SDK. Install it: {INSTALL_COMMAND}")
    if (team is None) != (name is None):
        raise click.UsageError("--team and --as must be used together.")
    flags = _build_run_flags(given)
    asyncio.run(_run_mcp_server(team, name, flags))
    return exit_codes.OK


def _build_run_flags(flag_values: dict[str, Any]) -> BackgroundRunFlags:
    from shoal.app.run_access.background_runs import BackgroundRunFlags

    return BackgroundRunFlags(
        model=flag_values["model"],
        mode=flag_values["mode"],
        allowed=parse_permission_rules(flag_values["allowed"], "--allowedTools"),
        disallowed=parse_permission_rules(flag_values["disallowed"], "--disallowedTools"),
        skip_permissions=flag_values["skip"],
        max_budget_usd=flag_values["max_budget_usd"],
        settings=flag_values["settings"],
        plugin_dirs=tuple(path.resolve() for path in flag_values["plugin_dirs"]),
        max_concurrent=flag_values["max_runs"],
    )


async def _run_mcp_server(team: str | None, name: str | None, flags: BackgroundRunFlags) -> None:
    from shoal.app.run_access.background_runs import BackgroundRunManager
    from shoal.app.settings.configured_store import open_configured_store
    from shoal.app.settings.settings import load_settings
    from shoal.app.teams.external_member import ExternalMember
    from shoal.app.teams.team_store import TeamStore
    from shoal.core.clock import SystemClock
    from shoal.core.ids import IdGenerator
    from shoal.runs.spawn_policy import SpawnPolicy
    from shoal.surfaces.mcp.mcp_server import TeamMcpServerTools, create_mcp_server
    from shoal.surfaces.terminal.user_messages import print_user_message

    cwd, clock, ids = Path.cwd(), SystemClock(), IdGenerator()
    settings = load_settings(cwd=cwd, given=flags.settings)
    store = open_configured_store(settings)
    team_store = TeamStore(store, clock=clock, ids=ids, report=print_user_message)
    try:
        external_member = ExternalMember(team_store, home=settings.home, clock=clock, ids=ids, cwd=cwd)
        if team is not None and name is not None:
            await external_member.join_team(team, name)
        runs_directory = settings.home / "shoal" / "mcp" / "runs"
        runs = BackgroundRunManager(settings.home, runs_directory, cwd=cwd, flags=flags, ids=ids, clock=clock)
        model = flags.model or settings.models.main
        tools = TeamMcpServerTools(
            team_store, external_member, runs, model=model, kind=SpawnPolicy().default_kind
        )
        await create_mcp_server(tools).run_stdio_async()
    finally:
        await team_store.aclose()
