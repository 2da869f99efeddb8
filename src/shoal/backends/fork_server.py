"""Fork server: a process that has imported everything once, and quickly forks the processes of teammates.

Run as `python -m shoal.backends.fork_server MODULE:FUNCTION [MODULE ...]` under the session's guardian, with
the socket to the lead as its standard input. It imports the modules, stays single-threaded, and then uses the
guardian's protocol, except for what it starts:

    lead → {"spawn": id, "title": "...", "cwd": "...", "env": {...}}   with two descriptors: channel and log

The child calls FUNCTION with the number of the channel's descriptor; its output goes to the log. An order may
name another function, `"entry": "module:function"`, and its `"arguments"`.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
import random
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from shoal.backends.guardian import (
    KILL_GRACE,
    ProcessGuardian,
    collect_descendant_pids,
    is_signal_target_alive,
    list_descendant_pids,
    read_process_tree,
    restore_default_signals,
    send_signals,
    set_up_child_reaping,
)

EXIT_FAILED = 1
KILL_DELAY = KILL_GRACE + 0.5
"""Seconds from a child's end to KILL for its descendants; a guardian among them has ended its own by then."""
KILL_INTERVAL = 0.1
PR_SET_NAME = 15

ChildEntry = Callable[[int], object]


class ForkServer(ProcessGuardian):
    """Guardian of the processes it forks; all descendants of a child end with it."""

    descriptors = 2

    def __init__(self, lead: socket.socket, wake: int, entry: ChildEntry) -> None:
        super().__init__(lead, wake)
        self._entry = entry
        self._adopted: set[int] = set()
        """Processes whose parent ended: they are now our children and belong to no living child."""
        self._due: dict[int, float] = {}
        """Time at which the remaining descendants of a dead child are sent KILL."""

    def start_process(self, order: dict[str, Any], fds: list[int]) -> int:
        read_end, write_end = os.pipe()
        try:
            pid = os.fork()
            if pid == 0:
                run_forked_child(self._entry, order, fds, write_end)
        finally:
            os.close(write_end)
            # Its end of the pipe closes when it is in its own group, where signals reach it, or is dead.
            failure = read_descriptor_to_end(read_end)
        if failure:
            os.waitpid(pid, 0)
            raise OSError(failure)
        return pid

    def on_child_exit(self, pid: int, identity: int | None) -> None:
        if identity is None:  # a descendant of an ending child, and may have forked after the listing
            identity = next((ending for ending in self._due if pid in self._strays.get(ending, ())), None)
        if identity is None:
            return
        families = read_process_tree()
        own_children = set(families.get(os.getpid(), ())) - set(self._leaders)
        orphans = own_children - self._adopted
        self._adopted = own_children
        strays = self._strays.setdefault(identity, set())
        new_strays = (
            orphans.union(*(collect_descendant_pids(orphan, families) for orphan in orphans)) - strays
        )
        strays |= new_strays
        group = self._groups[identity]
        if strays or is_signal_target_alive(os.killpg, group):
            send_signals(
                signal.SIGTERM, groups=[] if identity in self._due else [group], pids=list(new_strays)
            )
            self._due.setdefault(identity, time.monotonic() + KILL_DELAY)

    def kill_overdue_processes(self) -> float | None:
        now = time.monotonic()
        self._due = {identity: when for identity, when in self._due.items() if identity in self._groups}
        for identity in [identity for identity, when in self._due.items() if when <= now]:
            strays = self._strays.setdefault(identity, set())
            strays.update(*(list_descendant_pids(stray) for stray in tuple(strays)))
            send_signals(signal.SIGKILL, groups=[self._groups[identity]], pids=list(strays))
            self._due[identity] = now + KILL_INTERVAL
        return max(0, min(self._due.values()) - now) if self._due else None


def run_forked_child(entry: ChildEntry, order: dict[str, Any], fds: list[int], done: int) -> NoReturn:
    """Run the child; it never returns into the server's loop."""
    status = EXIT_FAILED
    try:
        line, log = fds
        try:
            set_up_forked_child(order, line, log, done)
        except Exception as error:  # noqa: BLE001 - reported to the lead
            os.write(done, str(error).encode(errors="replace"))
            os._exit(EXIT_FAILED)
        os.close(done)
        status = run_child_entry_point(entry, order, line)
    finally:
        os._exit(status)


def set_up_forked_child(order: dict[str, Any], channel: int, log: int, done: int) -> None:
    """Turn a copy of the server into a separate process, with nothing of the server or its siblings."""
    os.setsid()
    restore_python_signals()
    os.dup2(log, 1)
    os.dup2(log, 2)
    close_other_descriptors({0, 1, 2, channel, done})
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    try:
        os.chdir(order["cwd"])
    except OSError as error:
        raise OSError(f"cannot start in {order['cwd']}: {error.strerror}") from error
    random.seed()
    set_process_name(order["title"])
    gc.enable()


def run_child_entry_point(entry: ChildEntry, order: dict[str, Any], channel: int) -> int:
    """Run the child's work and return its exit status."""
    status = 0
    try:
        if "entry" in order:
            sys.argv[1:] = order["arguments"]
            entry = import_child_entry_point(order["entry"])
        entry(channel)
    except SystemExit as exit_request:
        if isinstance(exit_request.code, str):
            print(exit_request.code, file=sys.stderr)  # noqa: T201 - as the interpreter does at its end
        status = (
            exit_request.code if isinstance(exit_request.code, int) else int(exit_request.code is not None)
        )
    except BaseException as error:  # noqa: BLE001 - the outermost frame of a process
        sys.excepthook(type(error), error, error.__traceback__)
        status = EXIT_FAILED
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    return status


def restore_python_signals() -> None:
    """Restore the signals of a fresh interpreter: a closed pipe is an error to handle, not fatal."""
    restore_default_signals()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def close_other_descriptors(kept: set[int]) -> None:
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - numbers, not files
        if int(name) not in kept:
            with suppress(OSError):  # the descriptor that listed them
                os.close(int(name))


def set_process_name(title: str) -> None:
    """Set the name that `ps` and `top` show: the first 15 bytes (Linux only)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_NAME, title.encode()[:15], 0, 0, 0)


def read_descriptor_to_end(fd: int) -> str:
    with open(fd, "rb") as pipe:
        return pipe.read().decode()


def import_child_entry_point(name: str) -> ChildEntry:
    module, _, function = name.partition(":")
    entry: ChildEntry = getattr(importlib.import_module(module), function)
    return entry


class LeadDeathWatch:
    """Ends this process at once when the lead closes its end of the socket.

    It is needed while modules are imported, which may take seconds: nobody reads from the socket yet, and the
    guardian may have been killed with the lead.
    """

    def __init__(self, lead: socket.socket) -> None:
        self._fd = lead.fileno()
        self._poll = select.poll()
        self._poll.register(self._fd, 0)  # a closed end is always reported
        self._flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)

    def __enter__(self) -> None:
        signal.signal(signal.SIGIO, self._exit_if_disconnected)
        fcntl.fcntl(self._fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self._fd, fcntl.F_SETFL, self._flags | os.O_ASYNC)
        self._exit_if_disconnected()  # it may have been closed before

    def __exit__(self, *_: object) -> None:
        fcntl.fcntl(self._fd, fcntl.F_SETFL, self._flags)
        signal.signal(signal.SIGIO, signal.SIG_DFL)

    def _exit_if_disconnected(self, *_: object) -> None:
        if self._poll.poll(0):
            os._exit(EXIT_FAILED)  # it has no children yet


def main() -> None:
    # Pages that the collector touches are copied in each child, and so are pages where it frees objects: the
    # child fills the gaps. So nothing is collected here, not even once before the objects are frozen.
    gc.disable()
    lead = socket.socket(fileno=os.dup(0))
    null_fd = os.open(os.devnull, os.O_RDWR)
    os.dup2(null_fd, 0)
    os.close(null_fd)
    set_process_name("shoal:forks")
    entry, *preload = sys.argv[1:]
    with LeadDeathWatch(lead):
        for module in preload:
            importlib.import_module(module)
        entry_function = import_child_entry_point(entry)
    if threading.active_count() > 1:
        raise RuntimeError(f"One of these modules starts a thread when imported: {', '.join(sys.argv[1:])}.")
    gc.freeze()
    ForkServer(lead, set_up_child_reaping(), entry_function).serve()


if __name__ == "__main__":
    main()
