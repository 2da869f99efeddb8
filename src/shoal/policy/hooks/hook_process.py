"""Command hooks: run by a shell, or as a program with arguments; the event is JSON on standard input."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from shoal.core.clock import Clock
from shoal.core.extensions.hooks import ShellCommandHookAction
from shoal.core.ports import ChildProcessHandle, ProcessLauncher, ProcessLaunchSpec
from shoal.wire.hook_output_codec import HookContinueInBackgroundRequest, parse_async_hook_request

MAX_OUTPUT = 1 << 20
"""Maximum number of bytes used from a hook's output; the rest is read and dropped."""
_CHUNK = 1 << 16
_MAX_FINAL_READ = 1 << 20
"""Bytes read after the hook ended: the pipe capacity, even if one of its children keeps writing."""
_STOP_GRACE = 1.0
_PROJECT_PLACEHOLDER = "${CLAUDE_PROJECT_DIR}"
_VARIABLES_FILE = "CLAUDE_ENV_FILE"
_MAX_FIRST_LINE = 4096
"""Maximum number of bytes in the first line; a longer one is not recognized."""


class HookCommandResult(Struct, frozen=True, kw_only=True):
    status: int | None
    """None if the command was stopped by the timeout."""
    out: str
    err: str


class _HookOutputPipe:
    """Pipe for the output of a hook: read as it fills, only the beginning is kept."""

    def __init__(self) -> None:
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._loop = asyncio.get_running_loop()
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._loop.add_reader(self._reader, self._read_chunk)
        self._open = True
        self._buffer = bytearray()

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call the listener whenever output has arrived."""
        self._listeners = (*self._listeners, listener)

    @property
    def text(self) -> str:
        return self._buffer.decode(errors="replace")

    @property
    def first_line(self) -> tuple[str, bool]:
        """First line as far as it was written, and True if it is complete."""
        line, end, _ = self._buffer[:_MAX_FIRST_LINE].partition(b"\n")
        return line.decode(errors="replace"), bool(end) or len(line) == _MAX_FIRST_LINE

    def close(self) -> None:
        """Read the remaining output; a daemon left by the hook may still hold the write end."""
        for _ in range(_MAX_FINAL_READ // _CHUNK):
            if not self._open or not self._read_chunk():
                break
        if self._open:
            self._close_reader()

    def _read_chunk(self) -> bool:
        try:
            data = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._close_reader()
        self._buffer += data[: MAX_OUTPUT - len(self._buffer)]
        for listener in self._listeners if data else ():
            listener()
        return bool(data)

    def _close_reader(self) -> None:
        self._open = False
        self._loop.remove_reader(self._reader)
        os.close(self._reader)


class HookRunResources(Struct, frozen=True, kw_only=True):
    """Resources that hooks run with."""

    processes: ProcessLauncher
    clock: Clock
    env: Mapping[str, str]
    root: Path
    """The project directory, used if the agent's own directory is gone."""
    variables_directory: Path | None = None
    """Directory of the files in which hooks set variables for agents' shell commands."""


class HookProcess:
    """Running hook command; its starter waits for it or hands it to the background."""

    def __init__(
        self, process: ChildProcessHandle, out: _HookOutputPipe, err: _HookOutputPipe, clock: Clock
    ) -> None:
        self._process = process
        self._out = out
        self._err = err
        self._clock = clock
        self._checks_first_line = True
        self._wait_timeout: asyncio.Timeout | None = None
        self.detach_request: HookContinueInBackgroundRequest | None = None
        """Request in the first line to stop waiting for the command, or None."""
        out.subscribe(self._check_for_detach_request)
        self._check_for_detach_request()

    async def wait_or_detach(self, seconds: float) -> HookCommandResult | None:
        """Wait for the command to end within `seconds`; return None if it asks to run in the background."""
        if self._is_detached():
            return None
        try:
            async with self._clock.deadline(seconds), asyncio.timeout(None) as self._wait_timeout:
                status = await self._process.wait()
        except TimeoutError:
            return None if self._is_detached() else await self._stop_process()
        except asyncio.CancelledError:
            await self._stop_process()
            raise
        except BaseException:
            self._close_pipes()
            raise
        finally:
            self._wait_timeout = None
        # Reads the remaining output, which may contain the first line.
        self._close_pipes()
        return None if self._is_detached() else self._build_command_result(status)

    async def wait_for_exit(self, seconds: float) -> HookCommandResult:
        """Wait for the command to end, regardless of its first line."""
        self._checks_first_line = False
        try:
            async with self._clock.deadline(seconds):
                status = await self._process.wait()
        except TimeoutError:
            return await self._stop_process()
        except asyncio.CancelledError:
            await self._stop_process()
            raise
        finally:
            self._close_pipes()
        return self._build_command_result(status)

    def _is_detached(self) -> bool:
        return self.detach_request is not None

    async def _stop_process(self) -> HookCommandResult:
        try:
            await self._process.stop(grace=_STOP_GRACE)
        finally:
            self._close_pipes()
        return self._build_command_result(None)

    def _build_command_result(self, status: int | None) -> HookCommandResult:
        out = self._out.text
        line, _, rest = out.partition("\n")
        return HookCommandResult(
            status=status, out=out if parse_async_hook_request(line) is None else rest, err=self._err.text
        )

    def _close_pipes(self) -> None:
        self._out.close()
        self._err.close()

    def _check_for_detach_request(self) -> None:
        """Check the first line as it arrives."""
        if not self._checks_first_line:
            return
        line, is_complete = self._out.first_line
        self.detach_request = parse_async_hook_request(line)
        self._checks_first_line = not is_complete and self.detach_request is None
        if self.detach_request is not None and self._wait_timeout is not None:
            self._wait_timeout.reschedule(asyncio.get_running_loop().time())


async def start_hook_command(
    action: ShellCommandHookAction,
    data: bytes,
    *,
    cwd: Path,
    environment: HookRunResources,
    variables_file: Path | None = None,
) -> HookProcess:
    """Start a hook command; its children end with the session at the latest. Raises `ProcessError`."""
    variables = {} if variables_file is None else {_VARIABLES_FILE: str(variables_file)}
    out, err = _HookOutputPipe(), _HookOutputPipe()
    try:
        with _open_hook_input(data) as stdin:
            launch = ProcessLaunchSpec(
                argv=_build_hook_argv(action, environment.env),
                cwd=_choose_hook_directory(cwd, environment.root),
                env={**environment.env, **variables},
                stdin=stdin,
                stdout=out.writer,
                stderr=err.writer,
            )
            process = await environment.processes.start_process(launch)
    except BaseException:
        out.close()
        err.close()
        raise
    finally:
        os.close(out.writer)
        os.close(err.writer)
    return HookProcess(process, out, err, environment.clock)


def _build_hook_argv(action: ShellCommandHookAction, env: Mapping[str, str]) -> tuple[str, ...]:
    if action.args is not None:
        # No shell fills in variables here.
        return tuple(
            word.replace(_PROJECT_PLACEHOLDER, env.get("CLAUDE_PROJECT_DIR", ""))
            for word in (action.command, *action.args)
        )
    if action.shell == "powershell":
        return ("pwsh", "-NoProfile", "-NonInteractive", "-Command", action.command)
    return ("/bin/sh", "-c", action.command)


@contextmanager
def _open_hook_input(data: bytes) -> Iterator[int]:
    """Provide the input as a file, not a pipe: a hook that does not read it blocks nobody."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("hook", os.MFD_CLOEXEC)
        try:
            _write_all_and_rewind(fd, data)
            yield fd
        finally:
            os.close(fd)
        return
    from tempfile import TemporaryFile

    with TemporaryFile() as file:
        _write_all_and_rewind(file.fileno(), data)
        yield file.fileno()


def _write_all_and_rewind(fd: int, data: bytes) -> None:
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(fd, remaining) :]
    os.lseek(fd, 0, os.SEEK_SET)


def _choose_hook_directory(cwd: Path, root: Path) -> Path:
    """Return the project directory if the agent's own directory was removed."""
    return cwd if cwd.is_dir() else root
