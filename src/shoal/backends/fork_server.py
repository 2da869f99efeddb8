"""The fork server: a process that has imported everything once, and forks teammates' processes in a moment.

Run as `python -m shoal.backends.fork_server MODULE:FUNCTION [MODULE ...]` under the session's guardian, with
the socket to the lead as its standard input. It imports the modules, stays single-threaded, and then speaks
as the guardian does, but for what it starts:

    lead → {"spawn": id, "title": "...", "cwd": "...", "env": {...}}   with two descriptors: line and log

The child calls FUNCTION with the number of the line's descriptor; its output goes to the log.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from shoal.backends.guardian import guard, restore_signals

DESCRIPTORS = 2
FAILED = 1
PR_SET_NAME = 15

Entry = Callable[[int], object]


def forked(entry: Entry, order: dict[str, Any], fds: list[int]) -> int:
    """The pid of a child that is ready to work; OSError says why it is not."""
    ready, done = os.pipe()
    try:
        pid = os.fork()
        if pid == 0:
            be_child(entry, order, fds, done)
    finally:
        os.close(done)
        # Its end of the pipe closes when it is in its own group, where signals reach it, or is dead.
        failure = read_to_end(ready)
    if failure:
        os.waitpid(pid, 0)
        raise OSError(failure)
    return pid


def be_child(entry: Entry, order: dict[str, Any], fds: list[int], done: int) -> NoReturn:
    """Whatever happens, the child never returns into the server's loop."""
    status = FAILED
    try:
        line, log = fds
        try:
            become(order, line, log, done)
        except Exception as error:  # noqa: BLE001 - told to the lead
            os.write(done, str(error).encode(errors="replace"))
            os._exit(FAILED)
        os.close(done)
        status = ended(entry, line)
    finally:
        os._exit(status)


def become(order: dict[str, Any], line: int, log: int, done: int) -> None:
    """Turn a copy of the server into a process of its own, with nothing of the server's or its siblings'."""
    os.setsid()
    restore_python_signals()
    os.dup2(log, 1)
    os.dup2(log, 2)
    close_all_but({0, 1, 2, line, done})
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    try:
        os.chdir(order["cwd"])
    except OSError as error:
        raise OSError(f"cannot work in {order['cwd']}: {error.strerror}") from error
    random.seed()
    set_name(order["title"])
    gc.enable()


def ended(entry: Entry, line: int) -> int:
    """Run the child's work; its exit status."""
    status = 0
    try:
        entry(line)
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)  # noqa: T201 - as the interpreter does at its end
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:  # noqa: BLE001 - the outermost frame of a process
        sys.excepthook(type(error), error, error.__traceback__)
        status = FAILED
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    return status


def restore_python_signals() -> None:
    """As a fresh interpreter has them: an end of a pipe is an error to be handled, not a death."""
    restore_signals()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - numbers, not files
        if int(name) not in kept:
            with suppress(OSError):  # the one that listed them
                os.close(int(name))


def set_name(title: str) -> None:
    """As `ps` and `top` show it: its first 15 bytes (Linux only)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_NAME, title.encode()[:15], 0, 0, 0)


def read_to_end(fd: int) -> str:
    with open(fd, "rb") as pipe:
        return pipe.read().decode()


def entry_of(name: str) -> Entry:
    module, _, function = name.partition(":")
    entry: Entry = getattr(importlib.import_module(module), function)
    return entry


def main() -> None:
    # What the collector does not touch is not copied: neither here nor, being frozen, in the children.
    gc.disable()
    lead = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    set_name("shoal:forks")
    entry, *preload = sys.argv[1:]
    for module in preload:
        importlib.import_module(module)
    start = partial(forked, entry_of(entry))
    gc.collect()
    gc.freeze()
    guard(lead, start, DESCRIPTORS)


if __name__ == "__main__":
    main()
