"""`shoal plugin` commands: list and validate plug-ins."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.core.text.text_format import format_count_with_noun, strip_terminal_codes
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import CliTableCell, debug_option, json_option, print_json, print_table
from shoal.surfaces.cli.flags import plugin_dirs_option
from shoal.surfaces.terminal.text_styles import DIM, GREEN, RED, YELLOW

if TYPE_CHECKING:
    from shoal.app.reports.plugin_report import PluginReportRow

_STYLES = {"used": GREEN, "not trusted": YELLOW, "cannot be used": RED}


@click.group("plugin")
def plugin_commands() -> None:
    """List, check, enable and disable plug-ins. They come from --plugin-dir, from `plugins` under `shoal` in
    settings, from `plugins` in Shoal's home, and from `enabledPlugins` in settings."""


@plugin_commands.command("ls", short_help="List the plug-ins that are available here.")
@plugin_dirs_option
@json_option
@debug_option
def list_plugins(*, plugin_dirs: Sequence[Path], as_json: bool) -> int:
    """List the plug-ins that are available here, and the contents of each."""
    from shoal.app.reports.plugin_report import list_plugin_rows
    from shoal.app.settings.settings import load_settings

    project = Path.cwd().resolve()
    rows = list_plugin_rows(load_settings(cwd=project), project, plugin_dirs)
    if as_json:
        print_json(rows)
        return exit_codes.OK
    if not rows:
        click.echo("No plug-ins found. Try one: shoal --plugin-dir DIRECTORY")
        return exit_codes.OK
    print_table(
        ("NAME", "VERSION", "STATE", "BRINGS", "DIRECTORY"),
        [
            (
                CliTableCell(row.name),
                CliTableCell(row.version or "-"),
                CliTableCell(row.state, _STYLES[row.state]),
                CliTableCell(_format_plugin_contents(row)),
                CliTableCell(row.path, DIM),
            )
            for row in rows
        ],
    )
    for row in rows:
        for problem in row.problems:
            click.echo(strip_terminal_codes(problem))
    return exit_codes.OK


plugin_commands.add_command(copy(list_plugins), "list")


def _add_switch_command(name: str, *, on: bool) -> None:
    @plugin_commands.command(name, short_help=f"{name.capitalize()} an installed plug-in.")
    @click.argument("plugin", metavar="NAME@MARKETPLACE")
    @click.option(
        "-s",
        "--scope",
        type=click.Choice(("user", "project", "local")),
        default="user",
        help="Settings file.",
    )
    @debug_option
    def switch_plugin(*, plugin: str, scope: str) -> int:
        from shoal.app.reports.plugin_report import set_plugin_enabled
        from shoal.app.settings.settings import load_settings

        project = Path.cwd().resolve()
        path = set_plugin_enabled(load_settings(cwd=project), project, plugin, scope=scope, on=on)
        shown = strip_terminal_codes(plugin)
        click.echo(f"{'Enabled' if on else 'Disabled'} the plug-in {shown} in {path}.")
        return exit_codes.OK

    switch_plugin.help = f"""{name.capitalize()} a plug-in that Claude Code has installed in Shoal's home."""


for _name, _is_on in (("enable", True), ("disable", False)):
    _add_switch_command(_name, on=_is_on)


def _add_refused_command(name: str) -> None:
    @plugin_commands.command(
        name,
        short_help="Not available: Shoal does not install plug-ins.",
        context_settings={"ignore_unknown_options": True},
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def refuse_installation(*, arguments: Sequence[str]) -> int:
        raise click.UsageError(
            f"Shoal does not {f'{name} plug-ins' if name != 'marketplace' else 'manage marketplaces'}. "
            f"Run `{shlex.join(('claude', 'plugin', name, *arguments))}`: Shoal uses the plug-ins that "
            "Claude Code installed and enabled. Without Claude Code, put the plug-in's directory in "
            "`plugins` in Shoal's home, or pass it with --plugin-dir."
        )

    refuse_installation.help = "Shoal uses installed plug-ins, but does not install or update them."


for _name in ("install", "uninstall", "remove", "update", "marketplace"):
    _add_refused_command(_name)


@plugin_commands.command("validate", short_help="Check plug-in directories, or all plug-ins.")
@click.argument("paths", nargs=-1, metavar="[DIR]...", type=click.Path(path_type=Path))
@json_option
@debug_option
def validate_plugins(*, paths: Sequence[Path], as_json: bool) -> int:
    """Check plug-in directories, or all plug-ins that are available here. The exit code is 1 if there
    is a problem."""
    from shoal.app.reports.plugin_report import check_plugins
    from shoal.app.settings.settings import load_settings

    for path in paths:
        if not path.is_dir():
            raise click.UsageError(f"There is no directory {str(path)!r}.")
    project = Path.cwd().resolve()
    checked_plugins = check_plugins(load_settings(cwd=project), project, paths)
    if as_json:
        problems = [
            {"path": str(each.path), "line": each.line, "what": each.what, "plugin": each.plugin}
            for each in checked_plugins.problems
        ]
        names = [plugin.name for plugin in checked_plugins.plugins]
        print_json({"plugins": names, "problems": problems, "warnings": checked_plugins.warnings})
    else:
        for line in (
            *map(str, checked_plugins.problems),
            *(f"{text} (warning)" for text in checked_plugins.warnings),
        ):
            click.echo(strip_terminal_codes(line))
        counts = ((len(checked_plugins.plugins), "plug-in"), (len(checked_plugins.problems), "problem"))
        click.echo(", ".join(format_count_with_noun(number, word) for number, word in counts) + ".")
    return exit_codes.ERROR if checked_plugins.problems else exit_codes.OK


def _format_plugin_contents(row: PluginReportRow) -> str:
    parts = (
        (row.agents, "agent"),
        (row.skills, "skill"),
        (row.commands, "command"),
        (row.hooks, "hook"),
        (row.mcp_servers, "server"),
    )
    counts = (format_count_with_noun(len(things), word) for things, word in parts if things)
    return ", ".join(counts) or "-"
