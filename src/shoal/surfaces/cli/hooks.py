"""`shoal hooks`: what is run when agents do something, and who set it up."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.surfaces.cli import exits
from shoal.surfaces.cli.paint import BOLD, DIM, YELLOW, clean, cut, has_colours, one_line, painted

if TYPE_CHECKING:
    from shoal.app.hooks_view import HookShown

_WIDEST = 100
NONE = 'There are no hooks here. They stand in settings files under "hooks": see docs/hooks.md.'


@click.group("hooks")
def command() -> None:
    """See the hooks of this directory, without running anything."""


@command.command("ls")
@click.option("--settings", metavar="FILE|JSON", help="Settings on top of those in files.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def ls(*, settings: str | None, as_json: bool) -> int:
    """List the hooks, each with the file and line it comes from; what is not trusted is not run."""
    from shoal.app.hooks_view import seen_in

    seen = seen_in(Path.cwd(), given=settings)
    if as_json:
        from shoal.wire.content import dump

        click.echo(dump(seen))
        return exits.OK
    for line in told(seen.hooks, colours=has_colours(sys.stdout)):
        click.echo(line)
    for problem in seen.problems:
        click.echo(painted(clean(problem), YELLOW, colours=has_colours(sys.stdout)))
    return exits.OK


def told(hooks: Iterable[HookShown], *, colours: bool) -> Iterator[str]:
    shown = list(hooks)
    if not shown:
        yield NONE
    for event in dict.fromkeys(hook.event for hook in shown):
        yield painted(event, BOLD, colours=colours)
        for hook in (each for each in shown if each.event == event):
            state = "" if hook.trusted else f"  {painted('not trusted', YELLOW, colours=colours)}"
            whose = f"  agent {clean(hook.agent)}" if hook.agent else ""
            does = cut(one_line(clean(hook.does)), _WIDEST)
            origin = painted(clean(hook.origin), DIM, colours=colours)
            yield f"  {clean(hook.matcher) or '*'}  {does}{whose}{state}  {origin}"
    if any(not hook.trusted for hook in shown):
        yield "What is not trusted is not run. See it with `shoal trust --show`, trust it with `shoal trust`."
