"""`shoal mcp` commands: list, show, test, add, remove and log in to MCP servers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.core.wording import clean
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.mcp_serve import serve
from shoal.surfaces.cli.printing import Cell, debug_option, json_option, print_facts, print_json, print_table
from shoal.surfaces.terminal.paint import DIM, GREEN, RED, YELLOW, has_colours, painted

if TYPE_CHECKING:
    from shoal.app.views.mcp import McpView
    from shoal.core.mcp import Server, ServerStanding

LOGIN = 300.0
"""Timeout in seconds for the user to log in."""
STYLES = {"connected": GREEN, "failed": RED, "needs-auth": YELLOW, "pending": YELLOW, "disabled": DIM}
NONE = "No MCP server is configured here. Add one: shoal mcp add NAME COMMAND [ARGS]…"

config_option = click.option(
    "--mcp-config", multiple=True, metavar="FILE|JSON", help="Servers on top of those in files."
)
scope_option = click.option(
    "--project", is_flag=True, help="In the project's .mcp.json, not in your settings."
)


@click.group("mcp")
def command() -> None:
    """List, show, try, add and remove MCP servers, or be one with `serve`. Yours are in `mcpServers` of
    settings.json in Shoal's home, those of a project in its .mcp.json, which counts once it is trusted."""


command.add_command(serve)


@command.command("ls")
@config_option
@json_option
@debug_option
def ls(*, mcp_config: Sequence[str], as_json: bool) -> int:
    """List the servers that are configured here. None is started: see `shoal mcp test`."""
    view = _view(mcp_config)
    if as_json:
        print_json([_row(view, server, why) for server, why in view.all()])
        return exits.OK
    rows = [
        (
            Cell(server.name),
            Cell(server.kind),
            Cell(_target(view, server)),
            Cell(why or "on", YELLOW if why else ""),
            Cell(server.origin, DIM),
        )
        for server, why in view.all()
    ]
    if rows:
        print_table(("NAME", "KIND", "TARGET", "STATE", "ORIGIN"), rows)
    else:
        click.echo(NONE)
    _tell_problems(view)
    return exits.OK


@command.command("show")
@click.argument("name")
@config_option
@json_option
@debug_option
def show(*, name: str, mcp_config: Sequence[str], as_json: bool) -> int:
    """Show how a server is configured."""
    view = _view(mcp_config)
    row = _row(view, *view.server(name))
    if as_json:
        print_json(row)
    else:
        print_facts([(key, _text(value)) for key, value in row.items()])
    return exits.OK


@command.command("test", short_help="Start servers, list what they have, end them.")
@click.argument("names", nargs=-1, metavar="[NAME]…")
@config_option
@json_option
@debug_option
def test(*, names: Sequence[str], mcp_config: Sequence[str], as_json: bool) -> int:
    """Start servers, list what they have, and end them: all, or those that are named."""
    view = _view(mcp_config)
    standings = asyncio.run(view.tested(names))
    if as_json:
        print_json(standings)
    else:
        for standing in standings:
            _tell(standing)
        if not standings:
            click.echo("None is started here: `shoal mcp ls` says why." if view.all() else NONE)
        _tell_problems(view)
    well = all(standing.status == "connected" for standing in standings)
    return exits.OK if well else exits.ERROR


@command.command("add", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-t", "--transport", type=click.Choice(("stdio", "http", "sse")), help="stdio for a command.")
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="Environment of a command.")
@click.option("-H", "--header", multiple=True, metavar="NAME: VALUE", help="Header for an address.")
@scope_option
@debug_option
@click.argument("name")
@click.argument("target", metavar="COMMAND|URL")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def add(
    *,
    name: str,
    target: str,
    args: Sequence[str],
    transport: str | None,
    env: Sequence[str],
    header: Sequence[str],
    project: bool,
) -> int:
    """Add a server: a command with its arguments, or an address. Options come before NAME.

    Write ${VARIABLE} where a key belongs, and set the variable where Shoal runs.
    """
    kind = transport or ("http" if target.startswith(("http://", "https://")) else "stdio")
    if kind == "stdio":
        given: dict[str, Any] = {"command": target, "args": list(args), "env": _pairs(env, "=", "--env")}
    else:
        if args:
            raise click.UsageError(f"An address takes no arguments; left over: {' '.join(args)}.")
        given = {"type": kind, "url": target, "headers": _pairs(header, ":", "--header")}
    path, replaced = _view(()).add(name, given, project=project)
    click.echo(f"{'Replaced' if replaced else 'Added'} the MCP server {clean(name)} in {path}.")
    if project:
        click.echo("It is started once the project is trusted: shoal trust")
    return exits.OK


@command.command("remove")
@click.argument("name")
@scope_option
@debug_option
def remove(*, name: str, project: bool) -> int:
    """Remove a server from your settings, or from the project."""
    path = _view(()).remove(name, project=project)
    if path is None:
        where = "the project's .mcp.json" if project else "your settings"
        raise click.ClickException(
            f"There is no MCP server {name!r} in {where}. `shoal mcp ls` shows origins."
        )
    click.echo(f"Removed the MCP server {clean(name)} from {path}.")
    return exits.OK


@command.command("login", short_help="Log in to a server at an address.")
@click.argument("name")
@config_option
@debug_option
def login(*, name: str, mcp_config: Sequence[str]) -> int:
    """Log in to a server at an address; your browser leads you back here."""

    async def go() -> tuple[str, ...]:
        async def open_it(url: str) -> None:
            click.echo(f"Open this address to log in to {clean(name)}:\n  {clean(url)}")
            import webbrowser

            await asyncio.to_thread(webbrowser.open, url)

        async with asyncio.timeout(LOGIN):
            return await view.log_in(name, open_it)

    view = _view(mcp_config)
    try:
        tools = asyncio.run(go())
    except TimeoutError:
        raise click.ClickException(f"Nobody logged in within {LOGIN:g} s.") from None
    except ExceptionGroup as group:
        from shoal.surfaces.terminal.sentences import unwrapped

        raise click.ClickException(f"The login to {name} failed: {unwrapped(group)}") from group
    click.echo(f"Logged in to {clean(name)}, which has {len(tools)} tools.")
    return exits.OK


def _view(given: Sequence[str]) -> McpView:
    from shoal.app.views.mcp import McpView

    return McpView(Path.cwd().resolve(), given=given)


def _row(view: McpView, server: Server, why: str) -> dict[str, Any]:
    return {
        "name": server.name,
        "kind": server.kind,
        "enabled": not why,
        "why_not": why,
        "origin": server.origin,
        **view.shown(server),
    }


def _text(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case list():
            return " ".join(value)
        case dict():
            return "\n".join(f"{name}={each}" for name, each in value.items())
        case _:
            return str(value or "")


def _target(view: McpView, server: Server) -> str:
    shown = view.shown(server)
    return shown["url"] if "url" in shown else " ".join((shown["command"], *shown["args"]))


def _tell(standing: ServerStanding) -> None:
    colours = has_colours(sys.stdout)
    state = painted(standing.status, STYLES[standing.status], colours=colours)
    click.echo(f"{clean(standing.name)}  {state}  {standing.kind}  {clean(standing.detail)}".rstrip())
    for name in standing.tools:
        click.echo(f"  {clean(name)}")
    for name in standing.prompts:
        click.echo(f"  /{clean(name)}")


def _tell_problems(view: McpView) -> None:
    from shoal.surfaces.terminal.sentences import say

    for problem in view.configured.problems:
        say(problem)


def _pairs(words: Sequence[str], between: str, flag: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        name, found, value = word.partition(between)
        if not found or not name.strip():
            raise click.UsageError(f"{flag} takes NAME{between}VALUE, not {word!r}.")
        pairs[name.strip()] = value.strip() if between == ":" else value
    return pairs
