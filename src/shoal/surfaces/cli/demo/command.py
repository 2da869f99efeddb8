"""`shoal demo` command: a team, or three agents, repair a small project on the screen, offline."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.surfaces.cli.demo.place import Where, a_place
from shoal.surfaces.cli.headless.signals import Signals
from shoal.surfaces.terminal.screen import Screen, screen_for
from shoal.surfaces.terminal.sentences import say, unwrapped

if TYPE_CHECKING:
    from shoal.surfaces.cli.demo.agents import AgentsDemo
    from shoal.surfaces.cli.demo.team import TeamDemo


@click.command(
    name="demo",
    help="Watch a team repair a small project: offline, without a key, in about 30 seconds. Its three "
    "teammates run in processes of their own, share a board and write to each other; one of them is killed. "
    "With `agents` three agents work side by side in git worktrees. With `tutorial` a project is laid out "
    "here to follow the tutorial in, with a script that stands in for a model.",
)
@click.argument("what", type=click.Choice(["team", "agents", "tutorial"]), default="team")
@click.option("--fast", is_flag=True, help="Without pauses.")
@click.option("--keep", is_flag=True, help="Keep the project and the transcripts, and say where they are.")
@click.option("--home", type=click.Path(path_type=Path), help="Keep the transcripts in this home.")
def command(*, what: str, fast: bool, keep: bool, home: Path | None) -> int:
    if what == "tutorial":
        from shoal.surfaces.cli.demo.tutorial import lay_out

        return lay_out()
    screen = screen_for(sys.stdout)
    signals = Signals()
    try:
        with a_place(home, fast=fast, keep=keep) as where:
            demo = _demo(what, screen, where)
            try:
                return asyncio.run(demo.run(signals))
            finally:
                demo.clear_up()
    except asyncio.CancelledError:
        # Only a signal cancels the whole run.
        screen.close()
        say("Interrupted.")
        return signals.exit_code
    except ExceptionGroup as group:
        raise unwrapped(group) from None
    finally:
        screen.close()


def _demo(what: str, screen: Screen, where: Where) -> AgentsDemo | TeamDemo:
    if what == "agents":
        from shoal.surfaces.cli.demo.agents import AgentsDemo

        return AgentsDemo(screen, where)
    from shoal.surfaces.cli.demo.team import TeamDemo

    return TeamDemo(screen, where)
