"""`shoal demo` command: a team, or three agents, repair a small project on the screen, offline."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.app.definitions.bundled_docs import find_bundled_docs_directory
from shoal.app.demo.demo_project import SCRIPT_FILE, create_tutorial_project
from shoal.surfaces.cli.demo.demo_workspace import DemoWorkspace, open_demo_workspace
from shoal.surfaces.cli.headless.signal_handler import HeadlessSignalHandler
from shoal.surfaces.terminal.screen import TerminalScreen, open_terminal_screen
from shoal.surfaces.terminal.user_messages import print_user_message, unwrap_error_group

if TYPE_CHECKING:
    from shoal.surfaces.cli.demo.agents_demo import AgentsDemo
    from shoal.surfaces.cli.demo.team_demo import TeamDemo


TUTORIAL_DIRECTORY = "shoal-tutorial"


@click.command(
    name="demo",
    help=(
        "Watch a team repair a small project: offline, without a key, in about 30 seconds. The three "
        "teammates run in separate processes, share a task board and send each other mail; one of them is "
        "killed and recovers. With `agents`, three agents work in parallel git worktrees. With `tutorial`, "
        "Shoal creates the tutorial project here, with a script in place of a model."
    ),
)
@click.argument("what", type=click.Choice(["team", "agents", "tutorial"]), default="team")
@click.option("--fast", is_flag=True, help="Run without pauses.")
@click.option("--keep", is_flag=True, help="Keep the project and the transcripts, and print their paths.")
@click.option("--home", type=click.Path(path_type=Path), help="Keep the transcripts in this home directory.")
def demo_command(*, what: str, fast: bool, keep: bool, home: Path | None) -> int:
    if what == "tutorial":
        return _create_tutorial_and_print_steps()
    screen = open_terminal_screen(sys.stdout)
    signals = HeadlessSignalHandler()
    try:
        with open_demo_workspace(home, fast=fast, keep=keep) as workspace:
            demo = _create_demo(what, screen, workspace)
            try:
                return asyncio.run(demo.run(signals))
            finally:
                demo.remove_demo_worktrees()
    except asyncio.CancelledError:
        # Only a signal cancels the whole run.
        screen.close()
        print_user_message("Interrupted.")
        return signals.exit_code
    except ExceptionGroup as group:
        raise unwrap_error_group(group) from None
    finally:
        screen.close()


def _create_demo(demo_name: str, screen: TerminalScreen, workspace: DemoWorkspace) -> AgentsDemo | TeamDemo:
    if demo_name == "agents":
        from shoal.surfaces.cli.demo.agents_demo import AgentsDemo

        return AgentsDemo(screen, workspace)
    from shoal.surfaces.cli.demo.team_demo import TeamDemo

    return TeamDemo(screen, workspace)


def _create_tutorial_and_print_steps() -> int:
    try:
        create_tutorial_project(Path(TUTORIAL_DIRECTORY))
    except FileExistsError:
        raise click.ClickException(
            f"{TUTORIAL_DIRECTORY} already exists. Use it, or remove it and try again."
        ) from None
    click.echo(
        f"{TUTORIAL_DIRECTORY} contains a small project and {SCRIPT_FILE}, which stands in for a model. Next:"
    )
    click.echo(f"  cd {TUTORIAL_DIRECTORY}")
    click.echo(f"  export SHOAL_MODEL=scripted:$PWD/{SCRIPT_FILE}")
    click.echo(f"The tutorial is {find_bundled_docs_directory() / 'tutorial.md'}")
    return 0
