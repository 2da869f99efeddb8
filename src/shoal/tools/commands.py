"""Starts each command in a new user shell, with the shell snapshot, in the agent's directory."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from shoal.core.filenames import shown
from shoal.core.ports import Launch, Process
from shoal.core.sandbox import Sandbox
from shoal.core.tools import Site
from shoal.tools.environment import command_environment
from shoal.tools.snapshot import Capture, NoSnapshot, hold

# A constant: command and names are passed as arguments, and no script is ever built from them. The trap
# writes the directory, so that `exit` and `set -e` do not lose it; it is written again afterwards for
# commands that set their own trap.
_SCRIPT = r"""
__shoal_directory=$1 __shoal_command=$3
if [ -n "$2" ]; then . "$2" >/dev/null 2>&1; fi
set --
trap '\command pwd -P >|"$__shoal_directory" 2>/dev/null' EXIT
eval "$__shoal_command"
__shoal_status=$?
\command pwd -P >|"$__shoal_directory" 2>/dev/null
exit $__shoal_status
"""


class Commands:
    """Launches shell commands. The snapshot is taken in the background; the first command waits for it."""

    def __init__(self, capture: Capture, tasks: asyncio.TaskGroup, note: Callable[[str], None]) -> None:
        self._capture = capture
        self._tasks = tasks
        self._note = note
        self.sandbox: Sandbox | None = None
        self._snapshot: asyncio.Task[Path | None] | None = None
        self._hold: int | None = None
        self.given: Path | None = None
        """Snapshot taken and owned by another process of the run."""
        self._places: Path | None = None
        self._started = 0

    @property
    def taken(self) -> Path | None:
        """Path of the snapshot, or None if there is none yet."""
        done = self._snapshot is not None and self._snapshot.done() and not self._snapshot.cancelled()
        return self._snapshot.result() if done and self._snapshot is not None else self.given

    def prepare(self) -> None:
        if self._snapshot is None:
            self._snapshot = self._tasks.create_task(self._taken())

    async def start(self, command: str, site: Site, output: int, *, directory_file: Path | None) -> Process:
        """Start a command that writes its last directory to `directory_file`. Raises `ProcessError`."""
        snapshot = await self._wanted()
        # If the snapshot was deleted meanwhile, it is skipped instead of failing every command.
        known = str(snapshot) if snapshot is not None and snapshot.exists() else ""
        shell = self._capture.shell
        told = str(directory_file or os.devnull)
        launch = Launch(
            argv=(shell.path, "-c", _SCRIPT, shell.kind, told, known, command),
            cwd=site.workspace.cwd,
            env=command_environment(site.env),
            stdout=output,
            stderr=output,
        )
        sandbox = self._sandbox_of(site)
        if sandbox is not None:
            await sandbox.ready()
            launch = sandbox.wrap(launch)
        return await site.processes.start(launch)

    async def _wanted(self) -> Path | None:
        if self.given is not None and self.given.exists():
            return self.given
        self.prepare()
        assert self._snapshot is not None
        return await asyncio.shield(self._snapshot)

    def are_confined(self, site: Site) -> bool:
        sandbox = self._sandbox_of(site)
        return sandbox is not None and sandbox.holds

    def leave_nothing(self, site: Site) -> bool:
        """Return True if processes that a command started end together with it."""
        sandbox = self._sandbox_of(site)
        return sandbox is not None and sandbox.ends_all

    def _sandbox_of(self, site: Site) -> Sandbox | None:
        return self.sandbox if site.sandbox is None else site.sandbox

    def directory_file(self) -> Path:
        """Return a new path for a command to write its last directory to."""
        if self._places is None:
            self._places = self._place
            try:
                self._places.mkdir(mode=0o700)
            except FileExistsError:
                # It belongs to someone else.
                self._places = Path(mkdtemp(prefix=f"{self._place.name}-"))
        self._started += 1
        return self._places / str(self._started)

    @property
    def _place(self) -> Path:
        return Path(gettempdir()) / f"shoal-{self._capture.mark}"

    def clear(self) -> None:
        """Remove files of an earlier process with the same mark, which cannot be alive any more."""
        self._capture.clear()
        shutil.rmtree(self._place, ignore_errors=True)

    def close(self) -> None:
        """Remove the snapshot and temporary files; call it after every command has ended."""
        if self._snapshot is not None and self._snapshot.done() and not self._snapshot.cancelled():
            snapshot = self._snapshot.result()
            if snapshot is not None:
                snapshot.unlink(missing_ok=True)
        elif self._snapshot is not None:
            self._snapshot.cancel()
        if self._hold is not None:
            os.close(self._hold)
            self._hold = None
        if self._places is not None:
            shutil.rmtree(self._places, ignore_errors=True)

    async def _taken(self) -> Path | None:
        try:
            snapshot = await self._capture.take()
            self._hold = hold(snapshot)
        except (NoSnapshot, OSError) as why:
            self._note(f"Commands run without your shell's functions and aliases: {why}.")
            return None
        return snapshot


def follow(file: Path, site: Site) -> str:
    """Move the agent to the directory its command ended in; return a note for the model."""
    try:
        ended_in = Path(os.fsdecode(file.read_bytes().removesuffix(b"\n")))
    except OSError:
        return ""
    before = site.workspace.cwd
    if not ended_in.is_absolute() or os.path.realpath(before) == str(ended_in):
        return ""
    if site.workspace.move(ended_in):
        return f"The working directory is now {shown(ended_in)}."
    return (
        f"The command ended in {shown(ended_in)}, which is outside the project: "
        f"the working directory is {shown(before)} again."
    )
