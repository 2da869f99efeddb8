"""Processes that cannot outlive the session: their parent is a guardian, which ends them with it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from shoal.backends.backend_texts import format_backend_notice
from shoal.backends.fork_server import close_other_descriptors, set_process_name
from shoal.backends.guardian import (
    ProcessGuardian,
    ProcessRecordFile,
    end_leftover_processes,
    kill_process_trees,
    open_process_record,
    restore_default_signals,
    set_up_child_reaping,
)
from shoal.backends.order_channel import GuardianOrderChannel, redecode_as_utf8
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.ports import ProcessLaunchSpec

GUARDIAN_LOST = (
    "The guardian process was killed, so all programs that it ran have ended. The next program starts "
    "under a new guardian."
)
SESSION_CLOSED = "The session was closed, so all its programs have ended."
START_TIMEOUT = 10.0
"""Seconds allowed for starting a program; the guardian takes a few milliseconds."""
KILL_TIMEOUT = 0.8
"""Seconds from KILL to the report of the end."""
GUARDIAN_SCRIPT = Path(__file__).with_name("guardian.py")
END_TIMEOUT = 6.0
"""Seconds a guardian may take to end everything; it promises less."""


class ForkedGuardian:
    """Guardian that this process forked from itself, with which it shares memory."""

    def __init__(self, pid: int, end: socket.socket) -> None:
        self.pid = pid
        self.end = end
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return its exit status, negative for a signal; None while it runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def wait(self) -> int:
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


_forked_guardian: ForkedGuardian | None = None


def fork_guardian() -> None:
    """Fork a guardian for the first process launcher of this process, which has no threads and no loop yet.

    A separate program would need 6 MB for each teammate.
    """
    global _forked_guardian  # noqa: PLW0603 - one per process
    own_end, guardian_end = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _run_forked_guardian(guardian_end)
    guardian_end.close()
    _forked_guardian = ForkedGuardian(pid, own_end)


def _run_forked_guardian(end: socket.socket) -> NoReturn:
    try:
        os.setsid()
        os.chdir("/")
        null_fd = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null_fd, fd)
        close_other_descriptors({0, 1, 2, end.fileno()})
        restore_default_signals()
        set_process_name("shoal:guardian")
        ProcessGuardian(end, set_up_child_reaping()).serve()
    finally:
        os._exit(0)


class ProcessGuardianClient:
    """Handle of one guardian. `on_lost` is called once, if it ends without being asked to."""

    def __init__(
        self,
        on_message: Callable[[dict[str, Any]], None],
        on_lost: Callable[[], None],
        record_directory: Path | None = None,
    ) -> None:
        global _forked_guardian
        self._on_lost = on_lost
        self._guardian: subprocess.Popen[bytes] | ForkedGuardian
        if _forked_guardian is not None:
            self._guardian, _forked_guardian = _forked_guardian, None
            self._channel = GuardianOrderChannel(self._guardian.end, on_message, self._on_guardian_end)
            if record_directory is not None:
                self._channel.send_order({"records": redecode_as_utf8(str(record_directory))})
            return
        own_end, guardian_end = socket.socketpair()
        with guardian_end:
            self._guardian = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    "-E",
                    "-X",
                    "utf8",
                    str(GUARDIAN_SCRIPT),
                    str(guardian_end.fileno()),
                    *(() if record_directory is None else (str(record_directory),)),
                ],
                pass_fds=[guardian_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        self._channel = GuardianOrderChannel(own_end, on_message, self._on_guardian_end)

    @property
    def pid(self) -> int:
        return self._guardian.pid

    @property
    def is_alive(self) -> bool:
        return self._channel.is_open

    @property
    def was_killed(self) -> bool:
        """True if it ended by a signal, and so did not remove its record."""
        return (self._guardian.poll() or 0) < 0

    def send_order(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send an order in sequence, as fast as it is read by the guardian; never blocks or splits it."""
        if self.is_alive:
            self._channel.send_order(message, descriptors)

    def _on_guardian_end(self) -> None:
        # Its socket is closed, so it is dead or about to be: this does not wait.
        self._guardian.kill()
        self._guardian.wait()
        if not self._channel.is_finishing:
            self._on_lost()

    def kill_guardian(self) -> None:
        """Give up on a guardian that does not answer."""
        self._guardian.send_signal(signal.SIGKILL)
        self._channel.close()

    async def close(self) -> None:
        """Make it end everything, and wait until it has."""
        if not await self._channel.make_peer_end_everything(asyncio.timeout(END_TIMEOUT)):
            self.kill_guardian()


class GuardedProcess:
    def __init__(self, send_signal: Callable[[int], None], clock: Clock) -> None:
        self.pid = 0
        self._send_signal = send_signal
        self._clock = clock
        self._status: int | None = None
        self._failure = ""
        self._start_known = asyncio.Event()
        self._exited = asyncio.Event()
        self._gone = asyncio.Event()

    @property
    def is_alive(self) -> bool:
        return self.pid != 0 and not self._exited.is_set()

    async def wait(self) -> int:
        """Return the exit status; negative for a signal. Raises `ProcessError` if the process was lost."""
        await self._exited.wait()
        if self._status is None:
            raise ProcessError(self._failure)
        return self._status

    async def stop(self, *, grace: float = 2.0) -> int:
        """Send TERM to the whole group, KILL after the grace; takes at most grace + 1 s."""
        try:
            if not self._gone.is_set():
                self._send_signal(signal.SIGTERM)
                async with self._clock.deadline(grace):
                    await self._gone.wait()
        except TimeoutError:
            self._send_signal(signal.SIGKILL)
        except asyncio.CancelledError:
            self._send_signal(signal.SIGKILL)
            raise
        try:
            async with self._clock.deadline(KILL_TIMEOUT):
                await self._gone.wait()
        except TimeoutError:
            if self.may_have_group_members:
                kill_process_trees([self.pid])
            if not self._exited.is_set():
                raise ProcessError(format_backend_notice("not_killed", pid=self.pid)) from None
        return await self.wait()

    async def wait_until_started(self) -> None:
        """Wait until the process has started. Raises `ProcessError` if it could not."""
        await self._start_known.wait()
        if not self.pid:
            raise ProcessError(self._failure)

    def handle_guardian_message(self, message: dict[str, Any]) -> None:
        if "started" in message:
            self.pid = message["pid"]
            self._start_known.set()
        elif "exited" in message:
            self._status = message["status"]
            self._exited.set()
        elif "gone" in message:
            self._gone.set()
        else:
            self._finish_with_failure(f"{message['error'][:1].upper()}{message['error'][1:]}.")

    @property
    def may_have_group_members(self) -> bool:
        """True if its group may have members."""
        return self.pid != 0 and not self._gone.is_set()

    def mark_lost(self, why: str) -> None:
        """Mark the process as lost: no further message about it will arrive."""
        self._finish_with_failure(why)

    def _finish_with_failure(self, failure: str) -> None:
        self._failure = failure
        self._start_known.set()
        self._exited.set()
        self._gone.set()


class GuardedProcessLauncher:
    """Starts processes through a guardian, which itself starts with the first of them."""

    def __init__(self, clock: Clock, record_directory: Path | None = None) -> None:
        """`record_directory` lists the running processes, so that others of the home can end leftovers."""
        self._clock = clock
        self._record_directory = record_directory
        self._guardian_client: ProcessGuardianClient | None = None
        self._own_record: ProcessRecordFile | None = None
        """Lists processes that no guardian started."""
        self._running: dict[int, GuardedProcess] = {}
        self._last = 0
        self._closed = False

    @property
    def guardian_pid(self) -> int | None:
        """The guardian's pid, while there is one."""
        return (
            self._guardian_client.pid
            if self._guardian_client is not None and self._guardian_client.is_alive
            else None
        )

    def start_guardian_early(self) -> None:
        """Start the guardian in the background for a process that follows soon, which reports failures."""
        with suppress(ProcessError):
            self._get_or_start_guardian()

    async def start_process(self, launch: ProcessLaunchSpec) -> GuardedProcess:
        link = self._get_or_start_guardian()
        self._last = identity = self._last + 1

        def send_signal(number: int) -> None:
            link.send_order({"signal": identity, "number": number})

        self._running[identity] = process = GuardedProcess(send_signal, self._clock)
        try:
            _send_spawn_order(link, identity, launch)
        except (OSError, ValueError) as error:
            self._running.pop(identity, None)
            raise ProcessError(
                format_backend_notice("not_started", program=launch.argv[0], error=error)
            ) from error
        try:
            async with self._clock.deadline(START_TIMEOUT):
                await process.wait_until_started()
        except TimeoutError:
            link.kill_guardian()
            raise ProcessError(format_backend_notice("guardian_silent", program=launch.argv[0])) from None
        except asyncio.CancelledError:
            send_signal(signal.SIGKILL)
            raise
        return process

    def record_process(self, pid: int) -> None:
        """Record a process that no guardian started, such as the program in a pane: if this process is
        killed, others of the home end it."""
        if self._own_record is None and self._record_directory is not None:
            self._own_record = open_process_record(str(self._record_directory))
        if self._own_record is not None:
            self._own_record.add_process(pid)

    async def aclose(self) -> None:
        """End everything: TERM, a short grace, KILL."""
        self._closed = True
        if self._guardian_client is not None:
            await self._guardian_client.close()
        kill_and_mark_all_lost(self._running, SESSION_CLOSED)
        if self._guardian_client is not None and self._guardian_client.was_killed:
            self._remove_records_of_dead_guardians()
        if self._own_record is not None:
            self._own_record.remove()
            self._own_record = None

    def _get_or_start_guardian(self) -> ProcessGuardianClient:
        if self._closed:
            raise ProcessError(format_backend_notice("session_closed"))
        if self._guardian_client is None or not self._guardian_client.is_alive:
            try:
                self._guardian_client = ProcessGuardianClient(
                    self._dispatch_guardian_message, self._on_guardian_lost, self._record_directory
                )
            except OSError as error:
                raise ProcessError(format_backend_notice("guardian_not_started", error=error)) from error
        return self._guardian_client

    def _dispatch_guardian_message(self, message: dict[str, Any]) -> None:
        dispatch_guardian_message(message, self._running)

    def _on_guardian_lost(self) -> None:
        kill_and_mark_all_lost(self._running, GUARDIAN_LOST)
        self._remove_records_of_dead_guardians()

    def _remove_records_of_dead_guardians(self) -> None:
        """Remove the records of guardians that were killed, and end what they left."""
        if self._record_directory is not None:
            end_leftover_processes(str(self._record_directory))


def dispatch_guardian_message(message: dict[str, Any], running: dict[int, GuardedProcess]) -> None:
    """Pass a message to its process, which is removed after its end."""
    identity = next(message[kind] for kind in ("started", "failed", "exited", "gone") if kind in message)
    running[identity].handle_guardian_message(message)
    if "gone" in message or "failed" in message:
        del running[identity]


def kill_and_mark_all_lost(running: dict[int, GuardedProcess], why: str) -> None:
    """End all processes and their descendants from here, because their parent is gone."""
    kill_process_trees([process.pid for process in running.values() if process.may_have_group_members])
    for process in running.values():
        process.mark_lost(why)
    running.clear()


def _send_spawn_order(guardian: ProcessGuardianClient, identity: int, launch: ProcessLaunchSpec) -> None:
    order = {
        "spawn": identity,
        "argv": [redecode_as_utf8(word) for word in launch.argv],
        "cwd": redecode_as_utf8(str(launch.cwd)),
        "env": {redecode_as_utf8(name): redecode_as_utf8(value) for name, value in launch.env.items()},
    }
    stdin = os.open(os.devnull, os.O_RDONLY) if launch.stdin is None else launch.stdin
    try:
        guardian.send_order(order, [stdin, launch.stdout, launch.stderr])
    finally:
        if launch.stdin is None:
            os.close(stdin)
