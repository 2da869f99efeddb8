"""Process backend: each teammate is a process, forked from one that imported everything."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from shoal.backends.child_log import ChildProcessLog
from shoal.backends.fork_server_client import ForkedChildSpec, ForkServerClient, start_fork_server
from shoal.backends.guarded_processes import GuardedProcess
from shoal.backends.socket_channel import SocketChannel
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.ports import ProcessLauncher
from shoal.core.teams.member_backends import MemberProcess, MemberProcessLaunchSpec
from shoal.core.teams.roster import BackendType

FORK_SERVER_LOG = ".fork-server.log"
"""Not the log of a teammate: names do not start with a dot."""


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
            return f"it was killed by signal {-status}"
        return f"it ended with status {status}" + (self._log.read_last_traceback() if status else "")

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
        name = launch.launch_args.name
        if launch.program:
            raise ProcessError(f"{name} is another program: {launch.program[0]} can only run in a pane.")
        server = await self._get_or_start_fork_server()
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

    def is_process_alive(self, process: MemberProcess) -> bool:
        return isinstance(process, ForkedMemberProcess) and process.is_alive

    async def aclose(self) -> None:
        """End everything it started: TERM, a short grace, KILL."""
        self._closed = True
        async with self._starting:
            if self._server is not None:
                await self._server.close()

    async def _get_or_start_fork_server(self) -> ForkServerClient:
        async with self._starting:
            if self._closed:
                raise ProcessError("Cannot start a teammate because the session is closed.")
            if self._server is None or not self._server.is_alive:
                self._server = await start_fork_server(
                    self._processes,
                    self._clock,
                    entry=self._entry,
                    preload=self._preload,
                    log=ChildProcessLog(self._logs / FORK_SERVER_LOG),
                )
            return self._server
