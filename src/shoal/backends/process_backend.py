"""Process backend: each teammate is a process, forked from one that imported everything."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from shoal.backends.child_log import ChildLog
from shoal.backends.fork_link import Child, ForkLink, fork_server
from shoal.backends.line import SocketLine
from shoal.backends.processes import GuardedProcess
from shoal.core.backends import Berth, Wanted
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.ports import Processes
from shoal.core.roster import BackendType

SERVER_LOG = ".fork-server.log"
"""Not the log of a teammate: names do not start with a dot."""


class ProcessBerth:
    def __init__(self, process: GuardedProcess, line: SocketLine, log: ChildLog) -> None:
        self._process = process
        self._line = line
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def pane(self) -> str:
        return "process"

    @property
    def line(self) -> SocketLine:
        return self._line

    @property
    def alive(self) -> bool:
        return self._process.alive

    async def over(self) -> str:
        """Wait until the process is gone; return how it ended, as a clause with its traceback."""
        try:
            status = await self._process.wait()
        except ProcessError as lost:
            return str(lost)
        if status < 0:
            return f"it was killed by signal {-status}"
        return f"it ended with status {status}" + (self._log.traceback() if status else "")

    async def stop(self, *, grace: float = 2.0) -> None:
        """Send TERM to the process group, KILL after the grace; takes at most grace + 1 s."""
        try:
            await self._process.stop(grace=grace)
        except ProcessError:
            if self._process.alive:
                raise
        self._line.close()


class ProcessBackend:
    """`entry` is `module:function`, called in each child with the descriptor of its channel."""

    def __init__(
        self,
        processes: Processes,
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
        self._server: ForkLink | None = None
        self._starting = asyncio.Lock()
        self._closed = False

    @property
    def type(self) -> BackendType:
        return "process"

    @property
    def server(self) -> int | None:
        """The fork server's pid, while there is one."""
        return self._server.pid if self._server is not None and self._server.alive else None

    async def unavailable(self) -> str:
        if hasattr(os, "fork"):
            return ""
        return "This system cannot fork processes. Let teammates run in the lead's process (in-process)."

    async def prepare(self) -> None:
        """Start the fork server before the first spawn, without waiting for its imports."""
        await self._living()

    async def spawn(self, wanted: Wanted) -> ProcessBerth:
        name = wanted.papers.name
        if wanted.program:
            raise ProcessError(f"{name} is not one of ours: {wanted.program[0]} runs in a pane alone.")
        server = await self._living()
        log = ChildLog(self._logs / f"{name}.log")
        ours, theirs = socket.socketpair()
        line = SocketLine(ours)
        try:
            with theirs:
                line.send(wanted.brief)
                process = await server.fork(
                    Child(name=name, cwd=wanted.cwd, env=wanted.env, line=theirs.fileno(), log=log)
                )
        except BaseException:
            line.close()
            raise
        return ProcessBerth(process, line, log)

    def alive(self, berth: Berth) -> bool:
        return isinstance(berth, ProcessBerth) and berth.alive

    async def aclose(self) -> None:
        """End everything it started: TERM, a short grace, KILL."""
        self._closed = True
        async with self._starting:
            if self._server is not None:
                await self._server.close()

    async def _living(self) -> ForkLink:
        async with self._starting:
            if self._closed:
                raise ProcessError("The session is closed: no teammate can be started.")
            if self._server is None or not self._server.alive:
                self._server = await fork_server(
                    self._processes,
                    self._clock,
                    entry=self._entry,
                    preload=self._preload,
                    log=ChildLog(self._logs / SERVER_LOG),
                )
            return self._server
