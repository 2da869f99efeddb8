"""Starts each command in a new user shell, with the shell snapshot, in the agent's directory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from shoal.core.conversation.tools import ToolContext
from shoal.core.errors import ProcessError
from shoal.core.permissions.sandbox import Sandbox
from shoal.core.ports import ChildProcessHandle, ProcessLaunchSpec
from shoal.core.text.filenames import escape_filename
from shoal.core.user_environment import get_user_environment
from shoal.tools.command_environment import build_command_environment
from shoal.tools.shell_snapshot import ShellSnapshotFailedError, ShellSnapshotter, lock_shell_snapshot
from shoal.tools.tool_texts import format_tool_text

# A constant: command and names are passed as arguments, and no script is ever built from them. The trap
# writes the directory, so that `exit` and `set -e` do not lose it; it is written again afterward for
# commands that set their own trap.
_SCRIPT = r"""
__shoal_directory=$1 __shoal_command=$3
if [ -n "$2" ]; then . "$2" >/dev/null 2>&1; fi
shift 3
for __shoal_file; do . "$__shoal_file" >/dev/null 2>&1; done
set --
trap '\command pwd -P >|"$__shoal_directory" 2>/dev/null' EXIT
eval "$__shoal_command"
__shoal_status=$?
\command pwd -P >|"$__shoal_directory" 2>/dev/null
exit $__shoal_status
"""


_LAST_DIRECTORY_PREFIX = ".shoal-directory-"
"""Commands may create other files next to these."""


class ShellProcess:
    """Process of a command; its sandbox cleans up when it has ended."""

    def __init__(self, process: ChildProcessHandle, sandbox: Sandbox | None) -> None:
        self._process = process
        self._sandbox = sandbox
        self.findings: tuple[str, ...] = ()
        """Sentences about files that the command created; complete after its end."""

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        return await self._end_with(self._process.wait())

    async def stop(self, *, grace: float = 2.0) -> int:
        return await self._end_with(self._process.stop(grace=grace))

    async def _end_with(self, end: Awaitable[int]) -> int:
        try:
            status = await end
        except ProcessError:
            await self._finish()
            raise
        await self._finish()
        return status

    async def _finish(self) -> None:
        # Taken first: a stop and a wait may both see the end.
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            self.findings = await sandbox.finish_command()


def build_process_mark(*names: str) -> str:
    """Build the mark of a process: from the name of its session, then its own if another one starts it."""
    return "-".join(sha256(name.encode("utf-8", "replace")).hexdigest()[:8] for name in names)


class ShellEnvironment(Struct, frozen=True, kw_only=True):
    """Environment in which the commands of a session run. Each process of a run has its own `mark`.

    The mark of a process that another one starts is that of the other one, a hyphen and more.
    """

    home: Path
    variables: Mapping[str, str]
    mark: str
    sandbox: Sandbox | None = None
    variables_directory: Path | None = None
    """Directory of the files in which hooks leave variables for commands."""
    shared_snapshot: Path | None = None
    """Snapshot of the user's shell, taken and owned by another process of the run."""


class ShellCommandLauncher:
    """Launches shell commands. The snapshot is taken in the background; the first command waits for it."""

    def __init__(
        self,
        snapshotter: ShellSnapshotter,
        tasks: asyncio.TaskGroup,
        note: Callable[[str], None],
        environment: ShellEnvironment,
    ) -> None:
        self._snapshotter = snapshotter
        self._tasks = tasks
        self._note = note
        self._sandbox = environment.sandbox
        self._snapshot_task: asyncio.Task[Path | None] | None = None
        self._snapshot_lock: int | None = None
        self._shared_snapshot = environment.shared_snapshot
        self._variables_directory = environment.variables_directory
        self._directory: Path | None = None
        self._command_count = 0

    @property
    def shell_snapshot_path(self) -> Path | None:
        """Path of the snapshot, or None if there is none yet."""
        is_done = (
            self._snapshot_task is not None
            and self._snapshot_task.done()
            and not self._snapshot_task.cancelled()
        )
        return (
            self._snapshot_task.result()
            if is_done and self._snapshot_task is not None
            else self._shared_snapshot
        )

    def prepare_shell_snapshot(self) -> None:
        if self._snapshot_task is None:
            self._snapshot_task = self._tasks.create_task(self._take_shell_snapshot())

    async def start_command(
        self, command: str, context: ToolContext, output: int, *, directory_file: Path | None
    ) -> ShellProcess:
        """Start a command that writes its last directory to `directory_file`. Raises `ProcessError`."""
        snapshot = await self._wait_for_shell_snapshot()
        # If the snapshot was deleted meanwhile, it is skipped instead of failing every command.
        snapshot_argument = str(snapshot) if snapshot is not None and snapshot.exists() else ""
        shell = self._snapshotter.shell
        directory_argument = str(directory_file or os.devnull)
        arguments = (directory_argument, snapshot_argument, command, *self._list_variable_files(context))
        launch = ProcessLaunchSpec(
            argv=(shell.path, "-c", _SCRIPT, shell.kind, *arguments),
            cwd=context.workspace.cwd,
            env=build_command_environment(context.env),
            stdout=output,
            stderr=output,
        )
        sandbox = self._select_sandbox(context)
        if sandbox is not None:
            await sandbox.detect_availability()
            await sandbox.begin_command()
            launch = await sandbox.wrap_launch(launch, self._prepare_directory())
        try:
            return ShellProcess(await context.processes.start_process(launch), sandbox)
        except BaseException:
            if sandbox is not None:
                await sandbox.finish_command()
            raise

    def _list_variable_files(self, context: ToolContext) -> list[str]:
        """Return the files that set variables for a command: the user's, then those of hooks."""
        own = context.env.get("CLAUDE_ENV_FILE", "")
        files = [own] if own and os.path.isfile(own) else []  # noqa: PTH113 - of any text
        if self._variables_directory is None:
            return files
        try:
            with os.scandir(self._variables_directory) as entries:
                found = sorted(entry.path for entry in entries if entry.stat().st_size)
        except OSError:
            return files
        return files + found

    async def _wait_for_shell_snapshot(self) -> Path | None:
        if self._shared_snapshot is not None and self._shared_snapshot.exists():
            return self._shared_snapshot
        self.prepare_shell_snapshot()
        assert self._snapshot_task is not None
        return await asyncio.shield(self._snapshot_task)

    def is_sandboxed(self, context: ToolContext) -> bool:
        sandbox = self._select_sandbox(context)
        return sandbox is not None and sandbox.is_active

    def has_process_cleanup(self, context: ToolContext) -> bool:
        """Return True if processes that a command started end together with it."""
        sandbox = self._select_sandbox(context)
        return sandbox is not None and sandbox.ends_all_processes

    def _select_sandbox(self, context: ToolContext) -> Sandbox | None:
        return self._sandbox if context.sandbox is None else context.sandbox

    def allocate_last_directory_file(self) -> Path:
        """Return a new path for a command to write its last directory to."""
        self._command_count += 1
        return self._prepare_directory() / f"{_LAST_DIRECTORY_PREFIX}{self._command_count}"

    def _prepare_directory(self) -> Path:
        """Return the directory for temporary files of this process's commands."""
        if self._directory is None:
            self._directory = default = self._default_directory
            try:
                self._directory.mkdir(mode=0o700)
            except FileExistsError:
                # It belongs to someone else.
                from tempfile import mkdtemp

                self._directory = Path(mkdtemp(prefix=f"{default.name}-", dir=default.parent))
        return self._directory

    @property
    def _default_directory(self) -> Path:
        user = get_user_environment(self._snapshotter.env)
        return Path(user.temporary_directory) / f"shoal-{self._snapshotter.mark}"

    def remove_leftover_files(self) -> None:
        """Remove files of an earlier process with the same mark, and of those it started; none is alive."""
        self._snapshotter.remove_leftover_snapshots()
        self._remove_directories(self._default_directory)

    def _remove_directories(self, *directories: Path) -> None:
        """Remove these directories and those of processes that this one started."""
        import shutil

        default = self._default_directory
        for path in (*directories, *default.parent.glob(f"{default.name}-*")):
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Remove the snapshot and temporary files; call it after every command and teammate has ended."""
        if (
            self._snapshot_task is not None
            and self._snapshot_task.done()
            and not self._snapshot_task.cancelled()
        ):
            snapshot = self._snapshot_task.result()
            if snapshot is not None:
                snapshot.unlink(missing_ok=True)
        elif self._snapshot_task is not None:
            self._snapshot_task.cancel()
        if self._snapshot_lock is not None:
            os.close(self._snapshot_lock)
            self._snapshot_lock = None
        # Also the files of teammates whose processes were killed and not started again.
        self._snapshotter.remove_leftover_snapshots()
        self._remove_directories(*(() if self._directory is None else (self._directory,)))

    async def _take_shell_snapshot(self) -> Path | None:
        try:
            snapshot = await self._snapshotter.take_snapshot()
            self._snapshot_lock = lock_shell_snapshot(snapshot)
        except (ShellSnapshotFailedError, OSError) as error:
            self._note(
                f"Commands run without your shell's functions and aliases: {str(error).removesuffix('.')}."
            )
            return None
        return snapshot


def follow_command_directory(file: Path, context: ToolContext) -> str:
    """Move the agent to the directory its command ended in; return a note for the model."""
    try:
        last_directory = Path(os.fsdecode(file.read_bytes().removesuffix(b"\n")))
    except OSError:
        return ""
    before = context.workspace.cwd
    if not last_directory.is_absolute() or os.path.realpath(before) == str(last_directory):
        return ""
    if context.workspace.change_directory(last_directory):
        return format_tool_text("Bash", "directory", cwd=escape_filename(last_directory))
    return format_tool_text(
        "Bash", "outside", path=escape_filename(last_directory), cwd=escape_filename(before)
    )
