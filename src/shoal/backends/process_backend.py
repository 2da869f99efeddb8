"""Process backend: each teammate is a process, forked from one that imported everything."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.backends.backend_texts import format_backend_notice
from shoal.backends.guarded_processes import GuardedProcess, dispatch_guardian_message, kill_and_mark_all_lost
from shoal.backends.order_channel import GuardianOrderChannel, redecode_as_utf8
from shoal.backends.socket_channel import SocketChannel
from shoal.core.clock import Clock
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import ProcessError
from shoal.core.ports import ChildProcessHandle, ProcessLauncher, ProcessLaunchSpec
from shoal.core.teams.member_backends import MemberProcess, MemberProcessLaunchSpec
from shoal.core.teams.roster import BackendType

FORK_SERVER_LOG = ".fork-server.log"
"""Not the log of a teammate: names do not start with a dot."""
FORK_SERVER_FILES = ".fork-server-files"
"""Directory for temporary files of the fork server, which may be killed before it has removed them."""
FORK_TIMEOUT = 30.0
"""Seconds allowed for forking a child, including the server's imports; a loaded machine takes a few."""
END_TIMEOUT = 6.0
"""Seconds a fork server may take to end everything; it promises less."""
INTERPRETER_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")
"""Some interpreters do not start without these variables; the children have another environment."""
START_ATTEMPTS = 3
"""Number of fork servers to try, if each of them or its guardian dies while a member starts."""
FORK_SERVER_LOST = "the fork server, which starts teammates, is gone"
SESSION_CLOSED = "the session was closed"
TRACEBACK_HEADER = "Traceback (most recent call last):"
MAX_TAIL = 1 << 14
MAX_TRACEBACK_LINES = 6
"""Maximum lines of a traceback: the last location in the code, and the error."""


class ForkedMemberProcess:
    def __init__(self, process: GuardedProcess, channel: SocketChannel, log: ChildProcessLog) -> None:
        self._process = process
        self._channel = channel
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def pane(self) -> str:
        return "process"

    @property
    def channel(self) -> SocketChannel:
        return self._channel

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive

    async def wait_until_exit(self) -> str:
        """Wait until the process is gone; return how it ended, as a clause with its traceback."""
        try:
            status = await self._process.wait()
        except ProcessError as error:
            return str(error)
        if status < 0:
            return format_end_reason("killed_by_signal", signal=-status)
        how = format_end_reason("ended_with_status", status=status)
        return how + (self._log.read_last_traceback() if status else "")

    async def stop(self, *, grace: float = 2.0) -> None:
        """Send TERM to the process group, KILL after the grace; takes at most grace + 1 s."""
        try:
            await self._process.stop(grace=grace)
        except ProcessError:
            if self._process.is_alive:
                raise
        self._channel.close()


class ProcessBackend:
    """`entry` is `module:function`, called in each child with the descriptor of its channel."""

    def __init__(
        self,
        processes: ProcessLauncher,
        clock: Clock,
        *,
        entry: str,
        preload: Sequence[str] = (),
        log_directory: Path,
    ) -> None:
        self._processes = processes
        self._clock = clock
        self._entry = entry
        self._preload = tuple(preload)
        self._logs = log_directory
        self._server: ForkServerClient | None = None
        self._starting = asyncio.Lock()
        self._closed = False

    @property
    def type(self) -> BackendType:
        return "process"

    @property
    def fork_server_pid(self) -> int | None:
        """The fork server's pid, while there is one."""
        return self._server.pid if self._server is not None and self._server.is_alive else None

    async def explain_unavailable(self) -> str:
        if hasattr(os, "fork"):
            return ""
        return "This system cannot fork processes. Set teammate_mode to in-process."

    async def start_setup(self) -> None:
        """Start the fork server before the first spawn, without waiting for its imports."""
        await self._get_or_start_fork_server()

    async def spawn_member(self, launch: MemberProcessLaunchSpec) -> ForkedMemberProcess:
        if launch.program:
            raise ProcessError(format_backend_notice("needs_pane", program=launch.program[0]))
        attempts_left = START_ATTEMPTS
        while True:
            attempts_left -= 1
            try:
                return await self._fork_member(launch)
            except ProcessError:
                was_lost = not self._closed and (self._server is None or not self._server.is_alive)
                if not was_lost or not attempts_left:
                    raise

    async def _fork_member(self, launch: MemberProcessLaunchSpec) -> ForkedMemberProcess:
        name, server = launch.launch_args.name, await self._get_or_start_fork_server()
        log = ChildProcessLog(self._logs / f"{name}.log")
        own_end, member_end = socket.socketpair()
        line = SocketChannel(own_end)
        try:
            with member_end:
                line.send(launch.bootstrap)
                process = await server.fork_child(
                    ForkedChildSpec(
                        name=name, cwd=launch.cwd, env=launch.env, channel=member_end.fileno(), log=log
                    )
                )
        except BaseException:
            line.close()
            raise
        return ForkedMemberProcess(process, line, log)

    async def fork_helper(self, child: ForkedChildSpec) -> None:
        """Fork a process that is not a member, if the fork server is running; it is never restarted."""
        if self._server is None or not self._server.is_alive:
            raise ProcessError(format_backend_notice("fork_server_silent"))
        await self._server.fork_child(child)

    def is_process_alive(self, process: MemberProcess) -> bool:
        return isinstance(process, ForkedMemberProcess) and process.is_alive

    async def aclose(self) -> None:
        """End everything it started: TERM, a short grace, KILL."""
        self._closed = True
        async with self._starting:
            if self._server is not None:
                await self._server.close()
                _remove_directory(self._logs / FORK_SERVER_FILES)

    async def _get_or_start_fork_server(self) -> ForkServerClient:
        async with self._starting:
            if self._closed:
                raise ProcessError(format_backend_notice("lead_closed"))
            if self._server is None or not self._server.is_alive:
                self._server = await start_fork_server(
                    self._processes,
                    self._clock,
                    entry=self._entry,
                    preload=self._preload,
                    log=ChildProcessLog(self._logs / FORK_SERVER_LOG),
                    temporary_files=self._logs / FORK_SERVER_FILES,
                )
            return self._server


class ChildProcessLog:
    """Output of a child process, quoted when it dies of an error.

    It is one child's part of a file, to which earlier children may have written too.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = 0

    @contextmanager
    def open_for_append(self) -> Iterator[int]:
        """Open a descriptor that appends to the file; only its owner can read it."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._path, flags, 0o600)
        try:
            self._start = os.fstat(fd).st_size
            yield fd
        finally:
            os.close(fd)

    def read_last_traceback(self) -> str:
        """Return the end of the last traceback, as the rest of a clause; empty if there is none."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                file.seek(max(self._start, os.fstat(file.fileno()).st_size - MAX_TAIL))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        _, found, rest = text.rpartition(TRACEBACK_HEADER)
        if not found:
            return ""
        return ":\n" + "\n".join(rest.strip("\n").splitlines()[-MAX_TRACEBACK_LINES:])


class ForkedChildSpec(Struct, frozen=True, kw_only=True):
    """Process to be forked; `channel` is the descriptor of its end."""

    name: str
    cwd: Path
    env: Mapping[str, str]
    channel: int
    log: ChildProcessLog
    entry: str = ""
    """Function to call, as `module:function`; empty for that of members."""
    arguments: tuple[str, ...] = ()


class ForkServerClient:
    """Handle of one fork server, from its start to its end."""

    def __init__(
        self, process: ChildProcessHandle, end: socket.socket, clock: Clock, log: ChildProcessLog
    ) -> None:
        self._process = process
        self._clock = clock
        self._log = log
        self._children: dict[int, GuardedProcess] = {}
        self._last = 0
        self._channel = GuardianOrderChannel(end, self._dispatch_server_message, self._on_server_end)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._channel.is_open

    async def fork_child(self, child: ForkedChildSpec) -> GuardedProcess:
        self._last = identity = self._last + 1

        def send_signal(number: int) -> None:
            self._channel.send_order({"signal": identity, "number": number})

        self._children[identity] = process = GuardedProcess(send_signal, self._clock)
        try:
            with child.log.open_for_append() as log:
                self._channel.send_order(_build_fork_order(identity, child), [child.channel, log])
        except (OSError, ValueError) as error:
            self._children.pop(identity, None)
            raise ProcessError(f"{error}.") from error
        try:
            async with self._clock.deadline(FORK_TIMEOUT):
                await process.wait_until_started()
        except TimeoutError:
            await self._process.stop(grace=0)
            raise ProcessError(format_backend_notice("fork_server_silent")) from None
        except asyncio.CancelledError:
            send_signal(signal.SIGKILL)
            raise
        return process

    async def close(self) -> None:
        """Make it end everything, and wait until it has."""
        if not await self._channel.make_peer_end_everything(self._clock.deadline(END_TIMEOUT)):
            self._channel.close()
        with suppress(ProcessError):  # its guardian is gone as well
            await self._process.stop(grace=0)

    def _dispatch_server_message(self, message: dict[str, Any]) -> None:
        dispatch_guardian_message(message, self._children)

    def _on_server_end(self) -> None:
        reason = (
            SESSION_CLOSED
            if self._channel.is_finishing
            else FORK_SERVER_LOST + self._log.read_last_traceback()
        )
        kill_and_mark_all_lost(self._children, reason)


async def start_fork_server(
    processes: ProcessLauncher,
    clock: Clock,
    *,
    entry: str,
    preload: Sequence[str],
    log: ChildProcessLog,
    temporary_files: Path,
) -> ForkServerClient:
    """Start a fork server without waiting: it accepts orders once its imports are done.

    The directory of its temporary files is created; the files of an earlier fork server there are removed.
    """
    own_end, server_end = socket.socketpair()
    try:
        with server_end, log.open_for_append() as output:
            _make_empty_directory(temporary_files)
            process = await processes.start_process(
                _build_fork_server_launch(entry, preload, server_end.fileno(), output, temporary_files)
            )
    except OSError as error:
        own_end.close()
        raise ProcessError(format_backend_notice("fork_server_not_started", error=error)) from error
    except BaseException:
        own_end.close()
        raise
    return ForkServerClient(process, own_end, clock, log)


def _make_empty_directory(path: Path) -> None:
    _remove_directory(path)
    # An earlier fork server may still be writing while it ends.
    path.mkdir(mode=0o700, exist_ok=True)


def _remove_directory(path: Path) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def build_interpreter_environment() -> dict[str, str]:
    """Return the variables with which another interpreter can import what this one can, and no others."""
    path = os.pathsep.join(place for place in sys.path if Path(place).is_absolute())
    variables = {name: os.environ[name] for name in INTERPRETER_VARIABLES if name in os.environ}
    return {**variables, "PYTHONPATH": path}


def _build_fork_server_launch(
    entry: str, preload: Sequence[str], control: int, log: int, temporary_files: Path
) -> ProcessLaunchSpec:
    # -P excludes the directory it runs in.
    return ProcessLaunchSpec(
        argv=[sys.executable, "-P", "-u", "-X", "utf8", "-m", "shoal.backends.fork_server", entry, *preload],
        cwd=Path("/"),
        env={**build_interpreter_environment(), "TMPDIR": str(temporary_files)},
        stdin=control,
        stdout=log,
        stderr=log,
    )


def _build_fork_order(identity: int, child: ForkedChildSpec) -> dict[str, Any]:
    entry = {"entry": child.entry, "arguments": child.arguments} if child.entry else {}
    return {
        **entry,
        "spawn": identity,
        "title": f"shoal:{child.name}",
        "cwd": redecode_as_utf8(str(child.cwd)),
        "env": {redecode_as_utf8(name): redecode_as_utf8(value) for name, value in child.env.items()},
    }
