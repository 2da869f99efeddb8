"""`shoal team attach` command: view a whole team and send messages to its members."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.surfaces.cli import exits
from shoal.surfaces.cli.printing import debug_option
from shoal.surfaces.cli.record import with_record
from shoal.surfaces.cli.teams.view import run_of, team_running

if TYPE_CHECKING:
    from shoal.app.teams.record import AgentsRecord
    from shoal.core.roster import Team

_OWN_SERVER = ("-L", "shoal")


@click.command("attach", short_help="See a team at work, answer it, talk to it.")
@click.argument("name", required=False)
@click.option("--panes", is_flag=True, help="Where members have tmux panes: attach to these instead.")
@click.option("--json", "as_json", is_flag=True, help="The events themselves, one JSON object per line.")
@debug_option
def attach(*, name: str | None, panes: bool, as_json: bool) -> int:
    """Be there while a team works: see what it does, answer what it asks, and talk to it.

    What you type goes to the lead, `@name text` to that member, `@* text` to everybody. Ctrl-D leaves, and
    the team goes on.
    """

    async def work(record: AgentsRecord) -> Team:
        return await team_running(record, name)

    team = with_record(work)
    run = run_of(team)
    if panes:
        return _to_panes(team)
    if not run.is_live:
        raise click.ClickException(
            f"The team {team.name} does not run. Go on with it: shoal team resume {team.name}. "
            f"See what it did: shoal watch {run.session}"
        )
    if as_json:
        from shoal.surfaces.cli.watch import print_events

        try:
            asyncio.run(print_events(run))
        except KeyboardInterrupt:
            return exits.INTERRUPTED
        return exits.OK
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            f"There is no terminal to talk at. Use --json, shoal watch {run.session}, or shoal team send."
        )
    from shoal.surfaces.cli.plainness import is_plain

    if not is_plain(Path.cwd()):
        from shoal.surfaces.tui.launch import attached as on_full_screen

        return asyncio.run(on_full_screen(run, run.home))
    from shoal.surfaces.cli.teams.attached import attached

    return asyncio.run(attached(team, run))


def _to_panes(team: Team) -> int:
    """Replace this process by tmux, attached to the session that holds the team's panes."""
    import shutil

    ids = [member.tmux_pane_id for member in team.members if member.tmux_pane_id.startswith("%")]
    if not ids:
        raise click.ClickException(
            f"No member of the team {team.name} has a tmux pane. Without --panes you see it here: "
            f"shoal team attach {team.name}"
        )
    if shutil.which("tmux") is None:
        raise click.ClickException("tmux is not installed, so there are no panes to attach to.")
    for server in (_OWN_SERVER, ()):
        session = _session_of(server, ids[0])
        if session:
            words = ["tmux", *server, "attach-session", "-t", f"={session}"]
            os.execvp("tmux", words)  # noqa: S606 - no shell reads a name
    raise click.ClickException(f"The pane {ids[0]} is gone: no tmux server here has it.")


def _session_of(server: tuple[str, ...], pane: str) -> str:
    import subprocess

    asked = ["tmux", *server, "display-message", "-p", "-t", pane, "#{session_name}"]
    try:
        ran = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.strip() if ran.returncode == 0 else ""
