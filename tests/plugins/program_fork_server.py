"""Fork server of one test process: it has imported Shoal, and forks the programs that tests start.

Run as `python program_fork_server.py SOCKET`, with the number of a connected stream socket. Each request is a
header with descriptors (standard input, output and error, the directory to start in, and those to pass on),
and a pickled body. The forked process is a child of our parent, as if the parent had started it; it answers
with its process id when it is in its own session and directory, and then runs as a fresh interpreter would.

A guardian that is forked here forks the fork server of its session in turn, instead of starting an
interpreter that imports everything again.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import fcntl
import gc
import importlib
import io
import linecache
import os
import pickle
import pkgutil
import platform
import random
import runpy
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import types
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

HEADER = struct.Struct("<Q")
ANSWER = struct.Struct("<q")
CLONE_CALLS = {"x86_64": 56, "aarch64": 220}
CLONE_PARENT = 0x8000
MOST_DESCRIPTORS = 32
FIRST_FREE = 64
"""Descriptors of a request are moved above this number and above their later places."""
THIRD_PARTY = (
    "httpx",
    "asyncio",
    "concurrent.futures",
    "subprocess",
    "multiprocessing",
    "msgspec",
    "click",
    "yaml",
)
LEFT_OUT = ("shoal.testing", "shoal.__main__")
GUARDIAN_OPTIONS = ["-I", "-S", "-E", "-X", "utf8"]
SESSION_FORK_SERVER = ["-P", "-u", "-X", "utf8", "-m", "shoal.backends.fork_server"]


def import_programs() -> None:
    """Import what the programs import, and nothing that starts a thread."""
    for name in THIRD_PARTY:
        importlib.import_module(name)
    package = importlib.import_module("shoal")
    for module in pkgutil.walk_packages(package.__path__, "shoal."):
        if not module.name.startswith(LEFT_OUT):
            with suppress(ImportError):  # the extras that are not installed
                importlib.import_module(module.name)
    if threading.active_count() > 1:
        raise RuntimeError(f"an import started a thread: {threading.enumerate()}")


def serve_requests(line: socket.socket) -> dict[str, Any]:
    """Fork a process for each request. Return only in a forked process, with its request."""
    while True:
        header, fds, _, _ = socket.recv_fds(line, HEADER.size, MOST_DESCRIPTORS)
        if not header:
            os._exit(0)
        body = line.recv(HEADER.unpack(header)[0], socket.MSG_WAITALL)
        pid = fork_sibling()
        if pid == 0:
            return set_up_process(line, pickle.loads(body), fds)
        if pid < 0:
            line.sendall(ANSWER.pack(-ctypes.get_errno()))
        for fd in fds:
            os.close(fd)


def fork_sibling() -> int:
    """Fork a process whose parent is our parent."""
    interpreter = ctypes.PyDLL(None, use_errno=True)
    interpreter.PyOS_BeforeFork()
    flags = ctypes.c_long(CLONE_PARENT | signal.SIGCHLD)
    pid: int = interpreter.syscall(CLONE_CALLS[platform.machine()], flags, None, None, None, None)
    if pid == 0:
        interpreter.PyOS_AfterFork_Child()
    else:
        interpreter.PyOS_AfterFork_Parent()
    return pid


def set_up_process(line: socket.socket, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Make this copy of the server the process that was requested, and answer with its id."""
    try:
        if request["start_new_session"]:
            os.setsid()
        if request["process_group"] >= 0:
            os.setpgid(0, request["process_group"])
        if request["terminal"]:
            os.close(os.open(request["terminal"], os.O_RDWR))
        first = max(FIRST_FREE, *request["pass_fds"], 0) + 1
        moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, first) for fd in (line.fileno(), *fds)]
        own, stdin, stdout, stderr, directory, *passed = moved
        os.fchdir(directory)
        places = {0: stdin, 1: stdout, 2: stderr} | dict(zip(request["pass_fds"], passed, strict=True))
        for place, fd in places.items():
            os.dup2(fd, place)
        close_all_but({*places, own})
        os.environ.clear()
        os.environ.update(request["env"])
        if request["terminal"]:
            os.environ.setdefault("PWD", str(Path.cwd()))  # as the shell that opens a terminal does
        time.tzset()
        random.seed()
        tempfile.tempdir = None  # an import asks for it
        os.umask(request["umask"])
    except OSError as error:
        line.sendall(ANSWER.pack(-(error.errno or errno.EIO)))
        os._exit(255)
    line.detach()
    with socket.socket(fileno=own) as answer:
        answer.sendall(ANSWER.pack(os.getpid()))
    open_standard_streams(is_buffered=not sys.__stdout__.write_through)
    return request


def close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not files
        if int(name) not in kept:
            with suppress(OSError):  # the one that listed them
                os.close(int(name))


def open_standard_streams(*, is_buffered: bool) -> None:
    """Open sys.stdin, sys.stdout and sys.stderr as a fresh interpreter does."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, f"__{name}__")
        mode = "w" if number else "r"
        binary: Any = open(  # noqa: SIM115 - as long as the process
            number, f"{mode}b", buffering=-1 if is_buffered or mode == "r" else 0, closefd=False
        )
        getattr(binary, "raw", binary).name = f"<{name}>"
        stream: Any = io.TextIOWrapper(
            binary,
            encoding=old.encoding,
            errors=old.errors,
            newline="\n",
            line_buffering=is_buffered and (name == "stderr" or binary.isatty()),
            write_through=not is_buffered,
        )
        stream.mode = mode
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run_program(arguments: list[str]) -> None:
    """Run `-m MODULE`, `-c CODE`, a file or the guardian, with the arguments after it."""
    main = types.ModuleType("__main__")
    main.__builtins__ = __builtins__  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    sys.orig_argv = [sys.executable, *arguments]
    if arguments[: len(GUARDIAN_OPTIONS)] == GUARDIAN_OPTIONS:
        run_guardian(arguments[len(GUARDIAN_OPTIONS) :])
    elif arguments[: len(SESSION_FORK_SERVER)] == SESSION_FORK_SERVER:
        sys.argv = arguments[len(SESSION_FORK_SERVER) - 1 :]
        runpy._run_module_as_main(sys.argv[0])
    elif arguments[0] == "-m":
        sys.path[0] = str(Path.cwd())
        sys.argv = arguments[1:]
        runpy._run_module_as_main(arguments[1])
    elif arguments[0] == "-c":
        sys.path[0] = ""
        sys.argv = ["-c", *arguments[2:]]
        if sys.version_info >= (3, 13):
            # Tracebacks have the lines of such code since then.
            lines = arguments[1].splitlines(keepends=True)
            linecache.cache["<string>"] = (len(arguments[1]), None, lines, "<string>")
        exec(compile(arguments[1], "<string>", "exec"), vars(main))
    else:
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        sys.argv = list(arguments)
        main.__file__ = arguments[0]
        exec(compile(Path(arguments[0]).read_bytes(), arguments[0], "exec"), vars(main))


def run_guardian(arguments: list[str]) -> None:
    """Run the guardian of a session from the module that is already imported."""
    from shoal.backends import guardian

    start_program = guardian.spawn_program

    def spawn_program(argv: list[str], cwd: str, env: dict[str, str], fds: list[int]) -> int:
        options = argv[1 : 1 + len(SESSION_FORK_SERVER)]
        if argv[0] == sys.executable and options == SESSION_FORK_SERVER and "LD_LIBRARY_PATH" not in env:
            return fork_session_fork_server(argv, cwd, env, fds)
        return start_program(argv, cwd, env, fds)

    guardian.spawn_program = spawn_program
    sys.argv = arguments
    guardian.main()


def fork_session_fork_server(argv: list[str], cwd: str, env: dict[str, str], fds: list[int]) -> int:
    """Fork a process that does what this command line does. As after a spawn, it is in its own group."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            set_up_session_fork_server(cwd, env, fds, write_end)
            run_to_end(argv[1:])
        finally:
            os._exit(255)
    os.close(write_end)
    os.read(read_end, 1)
    os.close(read_end)
    return pid


def set_up_session_fork_server(cwd: str, env: dict[str, str], fds: list[int], done: int) -> None:
    from shoal.backends import fork_server

    os.setsid()
    fork_server.restore_python_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    close_all_but({0, 1, 2, done})
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:] = list(dict.fromkeys([*env.get("PYTHONPATH", "").split(os.pathsep), *sys.path]))
    time.tzset()
    random.seed()
    tempfile.tempdir = None
    open_standard_streams(is_buffered=False)
    # It runs as the main module, and a fresh interpreter has no other copy of it.
    del sys.modules["shoal.backends.fork_server"]
    gc.enable()
    os.close(done)


def run_to_end(arguments: list[str]) -> NoReturn:
    """Run the program and end the process as the interpreter does, but leave the modules as they are."""
    status: int = 0
    interrupted = False
    try:
        run_program(arguments)
    except SystemExit as request:
        if isinstance(request.code, int):
            status = request.code
        elif request.code is not None:
            sys.stderr.write(f"{request.code}\n")
            status = 1
    except BaseException as error:  # noqa: BLE001 - the outermost frame of a process
        error.__traceback__ = skip_own_frames(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        interrupted = isinstance(error, KeyboardInterrupt)
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not flush_streams() and status == 0:
        status = 120
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status & 0xFF)


def skip_own_frames(traceback: types.TracebackType | None) -> types.TracebackType | None:
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


def flush_streams() -> bool:
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except (OSError, ValueError) as error:
        sys.stderr.write(f"Exception ignored in: {sys.stdout!r}\n{type(error).__name__}: {error}\n")
        return False
    finally:
        with suppress(Exception):
            sys.stderr.flush()
    return True


def main() -> None:
    line = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()
    import_programs()
    gc.collect()
    gc.freeze()
    line.sendall(ANSWER.pack(0))
    request = serve_requests(line)
    gc.enable()
    run_to_end(request["arguments"])


if __name__ == "__main__":
    main()
