"""Viewer of a teammate's pane, forked from the fork server, which imports this module before it forks.

The viewer uses the terminal of the pane without being part of its session. A shell in the pane waits at the
other end of a pipe: for the viewer's pid, to tell it about a new size, and for its exit status.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

# Imported here, so that all viewers share them.
from shoal.app.run_access import conversation_path  # noqa: F401
from shoal.app.run_access.stored_runs import find_process_run, run_with_current_copies
from shoal.core.errors import ShoalError
from shoal.surfaces.cli.view_command import TerminalAgentViewer
from shoal.surfaces.terminal.screen import open_terminal_screen


def main(pipe: int) -> None:
    """Show one member until it is gone; the arguments are the session, the member and the terminal."""
    session, agent, terminal = sys.argv[1:]
    fd = os.open(terminal, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    os.dup2(fd, sys.stdin.fileno())
    os.dup2(fd, sys.stdout.fileno())
    os.close(fd)
    # The inherited one seeks, because it was opened for the server's log.
    sys.stdout = os.fdopen(sys.stdout.fileno(), "w", encoding="utf-8", closefd=False)
    os.write(pipe, f"viewer {os.getpid()}\n".encode())
    # Without a report of its end, the pane shows the member with another viewer.
    os.write(pipe, f"{_show_member(session, agent)}\n".encode())


def _show_member(session: str, agent: str) -> str:
    """Show the member; return the report for the shell: `end STATUS`, or `gone 0` if the lead is gone."""
    try:
        run = find_process_run(session)
    except ShoalError as error:
        sys.stdout.write(f"{error}\n")
        return "end 1"
    screen = open_terminal_screen(sys.stdout)
    viewer = TerminalAgentViewer(run, agent, screen, exits_with_agent=False)
    status = asyncio.run(run_with_current_copies(run.copies, viewer.run_with_prompt()))
    # The fork server ends it with its lead, whose process may still be in the process table.
    return "gone 0" if status == 128 + signal.SIGTERM or not run.is_live else f"end {status}"
