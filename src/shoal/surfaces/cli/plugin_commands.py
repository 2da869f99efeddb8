"""`shoal plugin` commands: list and validate plug-ins."""

from __future__ import annotations

from collections.abc import Sequence
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
    """List and check plug-ins. They come from --plugin-dir, from `plugins` under `shoal` in settings, and
    from `plugins` in Shoal's home."""


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
