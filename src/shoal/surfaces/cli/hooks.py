"""`shoal hooks` commands: list the configured hooks and the origin of each."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from shoal.core.wording import clean
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.flags import settings_option
from shoal.surfaces.cli.printing import print_json
from shoal.surfaces.terminal.listings import hook_lines
from shoal.surfaces.terminal.paint import YELLOW, has_colours, painted


@click.group("hooks")
def command() -> None:
    """See the hooks of this directory, without running anything."""


@command.command("ls", short_help="List the hooks, and where each comes from.")
@settings_option
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def ls(*, settings: str | None, as_json: bool) -> int:
    """List the hooks, each with the file and line it comes from; what is not trusted is not run."""
    from shoal.app.views.hooks import seen_in

    seen = seen_in(Path.cwd(), given=settings)
    if as_json:
        print_json(seen)
        return exits.OK
    for line in hook_lines(seen.hooks, colours=has_colours(sys.stdout)):
        click.echo(line)
    for problem in (*seen.problems, *seen.warnings):
        click.echo(painted(clean(problem), YELLOW, colours=has_colours(sys.stdout)))
    return exits.OK
