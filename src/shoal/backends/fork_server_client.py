"""Client of the fork server: starts it under the guardian, sends orders, and ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.backends.child_log import ChildProcessLog
from shoal.backends.guarded_processes import GuardedProcess, dispatch_guardian_message, kill_and_mark_all_lost
from shoal.backends.order_channel import GuardianOrderChannel, redecode_as_utf8
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.ports import ChildProcessHandle, ProcessLauncher, ProcessLaunchSpec

FORK_TIMEOUT = 30.0
"""Seconds to fork a child, including the server's imports; a loaded machine takes a few."""
END_TIMEOUT = 6.0
"""Seconds a fork server may take to end everything; it promises less."""
INTERPRETER_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")
"""Some interpreters do not start without these variables; the children have another environment."""
FORK_SERVER_LOST = "the fork server, from which teammates are forked, is gone"
SESSION_CLOSED = "the session was closed"


class ForkedChildSpec(Struct, frozen=True, kw_only=True):
    """Process to be forked; `channel` is the descriptor of its end."""

    name: str
    cwd: Path
    env: Mapping[str, str]
    channel: int
    log: ChildProcessLog


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
            raise ProcessError(f"{child.name} was not started: {error}.") from error
        try:
            async with self._clock.deadline(FORK_TIMEOUT):
                await process.wait_until_started()
        except TimeoutError:
            await self._process.stop(grace=0)
            raise ProcessError(f"{child.name} was not started: the fork server does not respond.") from None
        except ProcessError as error:
            raise ProcessError(f"{child.name} was not started: {error}") from error
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
    processes: ProcessLauncher, clock: Clock, *, entry: str, preload: Sequence[str], log: ChildProcessLog
) -> ForkServerClient:
    """Start a fork server without waiting: it accepts orders once its imports are done."""
    own_end, server_end = socket.socketpair()
    try:
        with server_end, log.open_for_append() as output:
            process = await processes.start_process(
                _build_fork_server_launch(entry, preload, server_end.fileno(), output)
            )
    except OSError as error:
        own_end.close()
        raise ProcessError(f"Cannot start the fork server of teammates: {error}.") from error
    except BaseException:
        own_end.close()
        raise
    return ForkServerClient(process, own_end, clock, log)


def _build_fork_server_launch(
    entry: str, preload: Sequence[str], control: int, log: int
) -> ProcessLaunchSpec:
    # It can import what we can, from the same places; -P excludes the directory it runs in.
    path = os.pathsep.join(place for place in sys.path if Path(place).is_absolute())
    interpreter_env = {name: os.environ[name] for name in INTERPRETER_VARIABLES if name in os.environ}
    return ProcessLaunchSpec(
        argv=[sys.executable, "-P", "-u", "-X", "utf8", "-m", "shoal.backends.fork_server", entry, *preload],
        cwd=Path("/"),
        env={**interpreter_env, "PYTHONPATH": path},
        stdin=control,
        stdout=log,
        stderr=log,
    )


def _build_fork_order(identity: int, child: ForkedChildSpec) -> dict[str, Any]:
    return {
        "spawn": identity,
        "title": f"shoal:{child.name}",
        "cwd": redecode_as_utf8(str(child.cwd)),
        "env": {redecode_as_utf8(name): redecode_as_utf8(value) for name, value in child.env.items()},
    }
