"""`shoal attach` command: view a run of another process and send messages to its agents."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click


@click.command("attach")
@click.argument("session", required=False)
def attach_command(*, session: str | None) -> int:
    """Attach to a run in another terminal or in the background: watch it, answer its questions and talk to
    its agents.

    SESSION is the beginning of its id; default: the last active run in this directory. The run continues
    when you leave.
    """
    from shoal.app.run_access.stored_runs import open_stored_runs, run_with_current_copies
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.surfaces.cli.terminal_mode import should_use_plain_terminal

    cwd = Path.cwd()
    home = find_process_shoal_home()
    stored_runs = open_stored_runs(home, session or "")
    if session is None:
        runs = stored_runs.list_live_runs_in_directory(cwd)
        if not runs:
            raise click.ClickException(
                "There is no live run in this directory. List finished runs: shoal sessions"
            )
        run = runs[0]
    else:
        run = stored_runs.find_run(session)
    if not run.is_live:
        raise click.ClickException(
            f"The run {run.session} has ended. Resume it: shoal --resume {run.session}"
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or should_use_plain_terminal(cwd):
        raise click.ClickException(
            f"This terminal does not support full-screen mode. Follow the run: shoal watch {run.session}. "
            f"Send a "
            f'message: shoal send {run.session} lead "…"'
        )
    from shoal.surfaces.tui.launch import run_attached_full_screen

    return asyncio.run(run_with_current_copies(run.copies, run_attached_full_screen(run, home)))
