"""`shoal mcp` commands: list, show, test, add, remove and log in to MCP servers."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.core.text.text_format import format_count_with_noun, strip_terminal_codes
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import (
    CliTableCell,
    debug_option,
    json_option,
    print_json,
    print_name_value_lines,
    print_table,
)
from shoal.surfaces.cli.mcp_serve_command import serve_mcp
from shoal.surfaces.terminal.text_styles import DIM, GREEN, RED, YELLOW, apply_style, has_colours

if TYPE_CHECKING:
    from shoal.app.reports.mcp_report import McpServerAdmin
    from shoal.core.extensions.mcp_servers import McpServerConfig, McpServerStatus

LOGIN_TIMEOUT = 300.0
"""Timeout in seconds for the user to log in."""
STATUS_STYLES = {"connected": GREEN, "failed": RED, "needs-auth": YELLOW, "pending": YELLOW, "disabled": DIM}
NO_SERVERS = "No MCP server is configured here. Add one: shoal mcp add NAME COMMAND [ARGS]…"

config_option = click.option(
    "--mcp-config", multiple=True, metavar="FILE|JSON", help="Additional servers, as JSON."
)
scope_option = click.option(
    "-s",
    "--scope",
    type=click.Choice(("local", "user", "project")),
    help="Scope: local (yours, for this project) or user (yours, for all projects), both in .claude.json; "
    "or project (everyone's, in .mcp.json).",
)
project_option = click.option("--project", is_flag=True, help="Shorthand for --scope project.")
_VALUE_OPTIONS = ("-s", "--scope", "-t", "--transport", "-e", "--env", "-H", "--header")
_REPEATED_OPTIONS = {
    "-e": re.compile(r"[A-Za-z_]\w*="),
    "--env": re.compile(r"[A-Za-z_]\w*="),
    "-H": re.compile(r"[\w-]+:\s"),
    "--header": re.compile(r"[\w-]+:\s"),
}
"""Options that take several values in a row."""


class McpAddCommand(click.Command):
    """Command whose options may precede or follow the name; those of the added command are left alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, order_mcp_add_arguments(args))


def order_mcp_add_arguments(args: Sequence[str]) -> list[str]:
    """Return the options first, then `--`, the name, and the command or the URL."""
    options: list[str] = []
    words: list[str] = []
    pending = list(args)
    while pending:
        word = pending.pop(0)
        if word == "--":
            words += pending
            break
        if _is_command_complete(words, options):
            words += [word, *pending]
            break
        if not word.startswith("-") or word == "-":
            words.append(word)
            continue
        options.append(word)
        if word in _VALUE_OPTIONS and pending:
            options.append(pending.pop(0))
            while word in _REPEATED_OPTIONS and pending and _REPEATED_OPTIONS[word].match(pending[0]):
                options += [word, pending.pop(0)]
    return [*options, "--", *words] if words else options


def _is_command_complete(words: Sequence[str], options: Sequence[str]) -> bool:
    """Return True if the rest belongs to a command: it was named, and it is not a URL."""
    is_url = len(words) > 1 and words[1].startswith(("http://", "https://"))
    return len(words) > 1 and not is_url and not {"http", "sse"} & set(options)


def _parse_mcp_server_json(text: str) -> dict[str, Any]:
    """Return the configuration that `shoal mcp add-json` is given. Raises `UsageError`."""
    from shoal.wire.json_codec import decode_json

    try:
        raw = decode_json(text.encode())
    except ValueError as error:
        raise click.UsageError(f"The configuration is not valid JSON: {error}.") from error
    if not isinstance(raw, dict):
        raise click.UsageError('Write the configuration as a JSON object: {"command": "…", "args": []}.')
    return raw


@click.group("mcp")
def mcp_commands() -> None:
    """List, show, test, add and remove MCP servers, or run Shoal as a server with `serve`. Your own servers
    are in .claude.json, which Claude Code reads too, and in your settings.json. The project's servers are in
    .mcp.json; Shoal uses those that others added only after you trust the project."""


mcp_commands.add_command(serve_mcp)


@mcp_commands.command("ls")
@config_option
@json_option
@debug_option
def list_mcp_servers(*, mcp_config: Sequence[str], as_json: bool) -> int:
    """List the configured servers without starting them. `shoal mcp test` starts them."""
    view = _open_mcp_server_admin(mcp_config)
    if as_json:
        print_json([_mcp_server_to_dict(view, server, why) for server, why in view.list_servers()])
        return exit_codes.OK
    rows = [
        (
            CliTableCell(server.name),
            CliTableCell(server.transport_type),
            CliTableCell(_format_mcp_server_target(view, server)),
            CliTableCell(why or "on", YELLOW if why else ""),
            CliTableCell(server.origin, DIM),
        )
        for server, why in view.list_servers()
    ]
    if rows:
        print_table(("NAME", "KIND", "TARGET", "STATE", "ORIGIN"), rows)
    else:
        click.echo(NO_SERVERS)
    _print_mcp_config_problems(view)
    return exit_codes.OK


@mcp_commands.command("show")
@click.argument("name")
@config_option
@json_option
@debug_option
def show_mcp_server(*, name: str, mcp_config: Sequence[str], as_json: bool) -> int:
    """Show a server's configuration."""
    view = _open_mcp_server_admin(mcp_config)
    row = _mcp_server_to_dict(view, *view.find_server(name))
    if as_json:
        print_json(row)
    else:
        print_name_value_lines([(key, _format_mcp_config_value(value)) for key, value in row.items()])
    return exit_codes.OK


@mcp_commands.command("test", short_help="Start servers, list their tools, and stop them.")
@click.argument("names", nargs=-1, metavar="[NAME]…")
@config_option
@json_option
@debug_option
def test_mcp_servers(*, names: Sequence[str], mcp_config: Sequence[str], as_json: bool) -> int:
    """Start all servers, or only the named servers, list their tools, and stop them."""
    view = _open_mcp_server_admin(mcp_config)
    statuses = asyncio.run(view.probe_servers(names))
    if as_json:
        print_json(statuses)
    else:
        for server_status in statuses:
            _print_mcp_server_status(server_status)
        if not statuses:
            click.echo(
                "No server can be started. Find out why: shoal mcp ls" if view.list_servers() else NO_SERVERS
            )
        _print_mcp_config_problems(view)
    all_connected = all(status.status == "connected" for status in statuses)
    return exit_codes.OK if all_connected else exit_codes.ERROR


@mcp_commands.command("add", short_help="Add a server, given as a command or a URL.", cls=McpAddCommand)
@click.option(
    "-t", "--transport", type=click.Choice(("stdio", "http", "sse")), help="Transport; stdio for a command."
)
@click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="Environment variable for a command.")
@click.option("-H", "--header", multiple=True, metavar="NAME: VALUE", help="HTTP header for a URL.")
@scope_option
@project_option
@debug_option
@click.argument("name")
@click.argument("target", metavar="COMMAND|URL")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def add_mcp_server(  # noqa: PLR0913 - the options of the command
    *,
    name: str,
    target: str,
    args: Sequence[str],
    transport: str | None,
    env: Sequence[str],
    header: Sequence[str],
    scope: str | None,
    project: bool,
) -> int:
    """Add a server: a command with its arguments, or a URL. Put options before COMMAND, or separate
    them from it with `--`. The default scope is local. To replace a server, remove it first.

    Write ${VARIABLE} in place of a key, and set the variable in Shoal's environment.
    """
    kind = transport or ("http" if target.startswith(("http://", "https://")) else "stdio")
    if kind == "stdio":
        server_config: dict[str, Any] = {
            "command": target,
            "args": list(args),
            "env": _parse_key_value_pairs(env, "=", "--env"),
        }
    else:
        if args:
            raise click.UsageError(f"A URL takes no arguments, but these were given: {' '.join(args)}.")
        server_config = {
            "type": kind,
            "url": target,
            "headers": _parse_key_value_pairs(header, ":", "--header"),
        }
    return _add_configured_server(name, server_config, "project" if project else scope or "local")


@mcp_commands.command("add-json", short_help="Add a server from JSON, as in .mcp.json.")
@click.argument("name")
@click.argument("config", metavar="JSON")
@scope_option
@debug_option
def add_mcp_server_json(*, name: str, config: str, scope: str | None) -> int:
    """Add a server from its configuration as JSON, as in .mcp.json."""
    return _add_configured_server(name, _parse_mcp_server_json(config), scope or "local")


def _add_configured_server(name: str, server_config: dict[str, Any], scope: str) -> int:
    added = _open_mcp_server_admin(()).add_server(name, server_config, scope=scope)
    click.echo(f"Added the MCP server {strip_terminal_codes(name)} to {added.path}.")
    if not added.trusted:
        click.echo(
            "The file has other servers that you have not trusted. The server starts only after you review "
            "all of them: shoal trust"
        )
    return exit_codes.OK


@mcp_commands.command("remove", short_help="Remove a server from its file.")
@click.argument("name")
@scope_option
@project_option
@debug_option
def remove_mcp_server(*, name: str, scope: str | None, project: bool) -> int:
    """Remove a server from its file; with --scope, only from that scope's files. You can also remove servers
    that Claude Code keeps in .claude.json."""
    paths = _open_mcp_server_admin(()).remove_server(name, scope="project" if project else scope)
    if not paths:
        raise click.ClickException(
            f"There is no MCP server {name!r} to remove. List the servers with their origins: shoal mcp ls"
        )
    for path in paths:
        click.echo(f"Removed the MCP server {strip_terminal_codes(name)} from {path}.")
    return exit_codes.OK


@mcp_commands.command("list")
@config_option
@debug_option
def list_mcp_server_health(*, mcp_config: Sequence[str]) -> int:
    """Start the servers and list their states."""
    view = _open_mcp_server_admin(mcp_config)
    found = view.list_servers()
    statuses = {status.name: status for status in asyncio.run(view.probe_servers())}
    for server, why in found:
        status = statuses.get(server.name)
        state = why if status is None else status.status + (f": {status.detail}" if status.detail else "")
        target = _format_mcp_server_target(view, server)
        click.echo(strip_terminal_codes(f"{server.name}: {target} - {state}"))
    if not found:
        click.echo(NO_SERVERS)
    _print_mcp_config_problems(view)
    return exit_codes.OK


mcp_commands.add_command(copy(show_mcp_server), "get")


@mcp_commands.command("logout")
@click.argument("name")
@config_option
@debug_option
def log_out_of_mcp_server(*, name: str, mcp_config: Sequence[str]) -> int:
    """Delete the stored login for a remote server."""
    was_logged_in = _open_mcp_server_admin(mcp_config).log_out_of_server(name)
    shown = strip_terminal_codes(name)
    click.echo(f"Logged out of {shown}." if was_logged_in else f"You are not logged in to {shown}.")
    return exit_codes.OK


@mcp_commands.command("reset-project-choices", short_help="Forget your choices for servers in .mcp.json.")
@debug_option
def reset_mcp_project_choices() -> int:
    """Forget which servers in the project's .mcp.json you trusted, approved or turned off, in Shoal and in
    Claude Code."""
    remaining = _open_mcp_server_admin(()).forget_project_choices()
    if remaining:
        click.echo(
            "Shoal forgot your choices for the servers in .mcp.json. Your user settings still allow or deny "
            f"these servers in all projects: {', '.join(map(strip_terminal_codes, remaining))}."
        )
    else:
        click.echo("Shoal asks again before it starts the servers in .mcp.json.")
    return exit_codes.OK


@mcp_commands.command("login", short_help="Log in to a remote server.")
@click.argument("name")
@config_option
@debug_option
def log_in_to_mcp_server(*, name: str, mcp_config: Sequence[str]) -> int:
    """Log in to a remote server in your browser."""

    async def log_in() -> tuple[str, ...]:
        async def open_login_page(url: str) -> None:
            click.echo(
                f"Open this URL to log in to {strip_terminal_codes(name)}:\n  {strip_terminal_codes(url)}"
            )
            import webbrowser

            await asyncio.to_thread(webbrowser.open, url)

        async with asyncio.timeout(LOGIN_TIMEOUT):
            return await view.log_in_to_server(name, open_login_page)

    view = _open_mcp_server_admin(mcp_config)
    try:
        tools = asyncio.run(log_in())
    except TimeoutError:
        raise click.ClickException(
            f"The login was not completed within {LOGIN_TIMEOUT:g} s. Try again: shoal mcp login {name}"
        ) from None
    except ExceptionGroup as group:
        from shoal.surfaces.terminal.user_messages import unwrap_error_group

        raise click.ClickException(f"The login to {name} failed: {unwrap_error_group(group)}") from group
    click.echo(
        f"Logged in to {strip_terminal_codes(name)}, which has {format_count_with_noun(len(tools), 'tool')}."
    )
    return exit_codes.OK


def _open_mcp_server_admin(mcp_config: Sequence[str]) -> McpServerAdmin:
    from shoal.app.reports.mcp_report import McpServerAdmin

    return McpServerAdmin(Path.cwd().resolve(), given=mcp_config)


def _mcp_server_to_dict(
    view: McpServerAdmin, server: McpServerConfig, disabled_reason: str
) -> dict[str, Any]:
    return {
        "name": server.name,
        "kind": server.transport_type,
        "enabled": not disabled_reason,
        "why_not": disabled_reason,
        "origin": server.origin,
        **view.describe_server_without_secrets(server),
    }


def _format_mcp_config_value(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case list():
            return " ".join(value)
        case dict():
            return "\n".join(f"{name}={each}" for name, each in value.items())
        case _:
            return str(value or "")


def _format_mcp_server_target(view: McpServerAdmin, server: McpServerConfig) -> str:
    config = view.describe_server_without_secrets(server)
    return config["url"] if "url" in config else " ".join((config["command"], *config["args"]))


def _print_mcp_server_status(server: McpServerStatus) -> None:
    colours = has_colours(sys.stdout)
    state = apply_style(server.status, STATUS_STYLES[server.status], colours=colours)
    detail = strip_terminal_codes(server.detail)
    click.echo(f"{strip_terminal_codes(server.name)}  {state}  {server.kind}  {detail}".rstrip())
    for name in server.tools:
        click.echo(f"  {strip_terminal_codes(name)}")
    for name in server.prompts:
        click.echo(f"  /{strip_terminal_codes(name)}")


def _print_mcp_config_problems(view: McpServerAdmin) -> None:
    from shoal.surfaces.terminal.user_messages import print_user_message

    for problem in view.problems:
        print_user_message(problem)


def _parse_key_value_pairs(values: Sequence[str], separator: str, flag: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for pair in values:
        name, has_separator, value = pair.partition(separator)
        if not has_separator or not name.strip():
            raise click.UsageError(f"{flag} takes NAME{separator}VALUE, not {pair!r}.")
        pairs[name.strip()] = value.strip() if separator == ":" else value
    return pairs
