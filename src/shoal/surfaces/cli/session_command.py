"""`shoal sessions` command: list the sessions that can be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import print_json
from shoal.surfaces.terminal.listings import format_session_lines, list_recent_sessions

if TYPE_CHECKING:
    from shoal.core.store import SessionListEntry


@click.command("sessions")
@click.option("--all", "everywhere", is_flag=True, help="Include all directories.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Show at most N sessions.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def session_command(*, everywhere: bool, limit: int, as_json: bool) -> int:
    """List the sessions in this directory, newest first."""
    sessions = list_recent_sessions(everywhere=everywhere, limit=limit)
    if as_json:
        print_json([_session_to_dict(session) for session in sessions])
    elif sessions:
        for line in format_session_lines(sessions):
            click.echo(line)
        click.echo(f"\nResume the first one: shoal --resume {sessions[0].session[:8]}")
    else:
        searched_place = "any directory" if everywhere else f"{Path.cwd()} (try --all)"
        click.echo(f"There are no sessions in {searched_place}.")
    return exit_codes.OK


def pick_session() -> str:
    """Let the user choose a session from a list, and return its id."""
    sessions = list_recent_sessions(limit=10)
    if not sessions:
        raise click.UsageError(
            f"There are no sessions in {Path.cwd()}. List all sessions: shoal sessions --all"
        )
    for number, line in enumerate(format_session_lines(sessions), 1):
        click.echo(f"{number:>3}  {line}", err=True)
    chosen_number: int = click.prompt(
        "Session to resume", type=click.IntRange(1, len(sessions)), default=1, err=True
    )
    return sessions[chosen_number - 1].session


def _session_to_dict(session: SessionListEntry) -> dict[str, object]:
    return {
        "session": session.session,
        "prompt": session.prompt,
        "updated_at": session.at,
        "bytes": session.size,
        "transcript": None if session.path is None else str(session.path),
    }
