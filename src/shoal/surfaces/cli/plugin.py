"""`shoal plugin` commands: list and validate plug-ins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.core.wording import clean, many
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.flags import plugin_dirs_option
from shoal.surfaces.cli.printing import Cell, debug_option, json_option, print_json, print_table
from shoal.surfaces.terminal.paint import DIM, GREEN, RED, YELLOW

if TYPE_CHECKING:
    from shoal.app.views.plugins import PluginRow

_STYLES = {"used": GREEN, "not trusted": YELLOW, "cannot be used": RED}


@click.group("plugin")
def command() -> None:
    """List and check plug-ins. They come from --plugin-dir, from `plugins` under `shoal` in settings, and
    from `plugins` in Shoal's home."""


@command.command("ls", short_help="List the plug-ins that are found from here.")
@plugin_dirs_option
@json_option
@debug_option
def ls(*, plugin_dirs: Sequence[Path], as_json: bool) -> int:
    """List the plug-ins that are found from here, and what each brings."""
    from shoal.app.settings.settings import load_settings
    from shoal.app.views.plugins import plugin_rows

    project = Path.cwd().resolve()
    rows = plugin_rows(load_settings(cwd=project), project, plugin_dirs)
    if as_json:
        print_json(rows)
        return exits.OK
    if not rows:
        click.echo("There is no plug-in here. Try one: shoal --plugin-dir DIRECTORY")
        return exits.OK
    print_table(
        ("NAME", "VERSION", "STATE", "BRINGS", "DIRECTORY"),
        [
            (
                Cell(row.name),
                Cell(row.version or "-"),
                Cell(row.state, _STYLES[row.state]),
                Cell(_brings(row)),
                Cell(row.path, DIM),
            )
            for row in rows
        ],
    )
    for row in rows:
        for problem in row.problems:
            click.echo(clean(problem))
    return exits.OK


@command.command("validate", short_help="Check plug-ins: directories, or all.")
@click.argument("paths", nargs=-1, metavar="[DIR]...", type=click.Path(path_type=Path))
@json_option
@debug_option
def validate(*, paths: Sequence[Path], as_json: bool) -> int:
    """Check plug-ins: these directories, or all that are found from here. Exit code 1 where something is
    wrong."""
    from shoal.app.settings.settings import load_settings
    from shoal.app.views.plugins import checked_plugins

    for path in paths:
        if not path.is_dir():
            raise click.UsageError(f"There is no directory {str(path)!r}.")
    project = Path.cwd().resolve()
    checked = checked_plugins(load_settings(cwd=project), project, paths)
    if as_json:
        problems = [
            {"path": str(each.path), "line": each.line, "what": each.what, "plugin": each.plugin}
            for each in checked.problems
        ]
        names = [plugin.name for plugin in checked.plugins]
        print_json({"plugins": names, "problems": problems, "warnings": checked.warnings})
    else:
        for line in (*map(str, checked.problems), *(f"{text} (warning)" for text in checked.warnings)):
            click.echo(clean(line))
        counts = ((len(checked.plugins), "plug-in"), (len(checked.problems), "problem"))
        click.echo(", ".join(many(number, word) for number, word in counts) + ".")
    return exits.ERROR if checked.problems else exits.OK


def _brings(row: PluginRow) -> str:
    parts = (
        (row.agents, "agent"),
        (row.skills, "skill"),
        (row.commands, "command"),
        (row.hooks, "hook"),
        (row.mcp_servers, "server"),
    )
    told = (many(len(things), word) for things, word in parts if things)
    return ", ".join(told) or "-"
