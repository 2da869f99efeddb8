"""`shoal team attach` command: view a whole team and send messages to its members."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import debug_option
from shoal.surfaces.cli.team_store_access import run_with_team_store
from shoal.surfaces.cli.teams.team_overview import (
    describe_idle_team,
    find_named_or_running_team,
    find_team_run,
)

if TYPE_CHECKING:
    from shoal.app.teams.team_store import TeamStore
    from shoal.core.teams.roster import TeamRoster

_SHOAL_SERVER_ARGS = ("-L", "shoal")


@click.command("attach", short_help="Watch a team, answer its questions, and talk to it.")
@click.argument("name", required=False)
@click.option("--panes", is_flag=True, help="If members run in tmux panes: attach to tmux instead.")
@click.option("--json", "as_json", is_flag=True, help="Print the events, one JSON object per line.")
@debug_option
def attach_to_team(*, name: str | None, panes: bool, as_json: bool) -> int:
    """Attach to a team: watch it, answer its questions, and talk to it.

    Your messages go to the lead, `@name text` goes to that member, and `@* text` goes to everybody.
    Ctrl-D leaves; the team continues.
    """

    async def load_team(store: TeamStore) -> TeamRoster:
        return await find_named_or_running_team(store, name)

    from shoal.app.run_access.stored_runs import run_with_current_copies

    team = run_with_team_store(load_team)
    run = find_team_run(team)
    if panes:
        return _attach_to_panes(team)
    if not run.is_live:
        advice = f"Resume it: shoal team resume {team.name}."
        if run.journal_path.exists():
            advice += f" See what it did: shoal watch {run.session}"
        raise click.ClickException(describe_idle_team(team, advice))
    if as_json:
        from shoal.surfaces.cli.watch_command import print_run_events_as_json

        try:
            asyncio.run(run_with_current_copies(run.copies, print_run_events_as_json(run)))
        except KeyboardInterrupt:
            return exit_codes.INTERRUPTED
        return exit_codes.OK
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            f"Standard input and output must be a terminal. Use --json, shoal watch {run.session}, or shoal "
            "team send."
        )
    from shoal.surfaces.cli.terminal_mode import should_use_plain_terminal

    if not should_use_plain_terminal(Path.cwd()):
        from shoal.surfaces.tui.launch import run_attached_full_screen

        return asyncio.run(run_with_current_copies(run.copies, run_attached_full_screen(run, run.home)))
    from shoal.surfaces.cli.teams.team_terminal import run_team_terminal

    return asyncio.run(run_with_current_copies(run.copies, run_team_terminal(team, run)))


def _attach_to_panes(team: TeamRoster) -> int:
    """Replace this process with tmux, attached to the session that holds the team's panes."""
    import shutil

    ids = [member.tmux_pane_id for member in team.members if member.tmux_pane_id.startswith("%")]
    if not ids:
        raise click.ClickException(
            f"No member of the team {team.name} has a tmux pane. Watch it here instead: shoal team attach "
            f"{team.name}"
        )
    if shutil.which("tmux") is None:
        raise click.ClickException("tmux is not installed, so there are no panes to attach to.")
    for server in (_SHOAL_SERVER_ARGS, ()):
        session = _find_tmux_session(server, ids[0])
        if session:
            tmux_command = ["tmux", *server, "attach-session", "-t", f"={session}"]
            os.execvp("tmux", tmux_command)  # noqa: S606 - no shell reads a name
    raise click.ClickException(f"The pane {ids[0]} is gone: no tmux server on this machine has it.")


def _find_tmux_session(server: tuple[str, ...], pane: str) -> str:
    import subprocess

    tmux_command = ["tmux", *server, "display-message", "-p", "-t", pane, "#{session_name}"]
    try:
        process = subprocess.run(tmux_command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout.strip() if process.returncode == 0 else ""
