"""Starts `python -m shoal` and other programs of the tests by forking a process that has imported Shoal.

Tests start thousands of programs, and each takes a quarter of a second only to import modules. A forked
program has the same arguments, environment, directory, descriptors, session and parent as a started one. The
start itself leaves other traces: imported modules, memory, and the command line in /proc. A test that looks
at one of these has the mark `fresh_interpreter`.

Forked are `python -m shoal`, the guardian of a session of the test process (which forks the session's fork
server), code and files of the tests that import Shoal, and what a test names with `fork_program`.
"""

from __future__ import annotations

import atexit
import inspect
import os
import pickle
import platform
import re
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from program_fork_server import ANSWER, CLONE_CALLS, GUARDIAN_OPTIONS, HEADER

TESTS = Path(__file__).parents[1]
SRC = TESTS.parent / "src"
GUARDIAN = (*GUARDIAN_OPTIONS, str(SRC / "shoal" / "backends" / "guardian.py"))
SERVER_PROGRAM = Path(__file__).with_name("program_fork_server.py")
FIRST_FORKED = 3
"""A run of one or two programs starts them: importing everything takes longer."""
# Read by the interpreter or the C library when a process starts.
START_VARIABLES = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "FAKETIME")
# Kept here because some tests remove the names that only Linux has.
DIRECTORY_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY
SHOAL_SCRIPT = f'#!/bin/sh\nexec {sys.executable} -m shoal "$@"\n'
"""A program file, for what starts one by its path."""
OPEN_TERMINAL = ("sh", "-c", 'exec "$@" <"$0"')
"""Before a terminal and a program: opened by the first process of a session, it becomes its terminal."""

_IMPORTS_SHOAL = re.compile(r"^\s*(from|import) shoal\b", re.MULTILINE)
_LOOKS_AT_START = re.compile(
    r"sys\.(modules|flags|path\b|orig_argv|getsizeof)|find_spec|maxrss|VmRSS|VmHWM|smaps|statm|tracemalloc|heap|gc\.|"
    r"cmdline"
)
"""What a program reads that a fork does not have, or has more of."""

_PIPE_ENDS = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_execute_child = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_signature = inspect.signature(_execute_child)
_programs: set[tuple[str, ...]] = {("-m", "shoal"), GUARDIAN}
_variables_at_start = dict(os.environ)
_is_paused = False
_test_process = os.getpid()


def fork_program(*words: str) -> None:
    """Let programs that start with these arguments of the interpreter be forked."""
    _programs.add(words)


class ProgramForkServer:
    """One server process, for one set of start variables and one network namespace."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._line, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER_PROGRAM), str(other.fileno())],
                env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables},
                cwd="/",
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
            )
        self._is_ready = False
        atexit.register(self.close)

    def is_ready(self, seconds: float = 0) -> bool:
        """Return False while the server imports: a test must not wait for it."""
        if not self._is_ready and select.select([self._line], [], [], seconds)[0]:
            self._is_ready = self._read_answer() == 0
        return self._is_ready

    def fork_process(self, request: Mapping[str, Any], fds: Sequence[int]) -> int:
        body = pickle.dumps(request)
        with self._lock:
            socket.send_fds(self._line, [HEADER.pack(len(body))], fds)
            self._line.sendall(body)
            return self._read_answer()

    def _read_answer(self) -> int:
        answer = self._line.recv(ANSWER.size, socket.MSG_WAITALL)
        if len(answer) < ANSWER.size:
            raise RuntimeError(f"the fork server of the tests ended with {self._process.wait()}")
        (number,) = ANSWER.unpack(answer)
        return int(number)

    def close(self) -> None:
        self._line.close()
        self._process.kill()
        self._process.wait()


def _get_fork_server(variables: tuple[tuple[str, str], ...]) -> ProgramForkServer:
    return _get_fork_server_of_network(variables, _read_network_namespace())


@cache
def _get_fork_server_of_network(variables: tuple[tuple[str, str], ...], _network: str) -> ProgramForkServer:
    return ProgramForkServer(dict(variables))


def _read_network_namespace() -> str:
    """Return the namespace of this thread; a test may have moved it to a machine of its own."""
    return str(Path("/proc/thread-self/ns/net").readlink())


class _ForkRequest:
    """What is needed to fork a process that `subprocess.Popen` was to start."""

    def __init__(self, call: Mapping[str, Any]) -> None:
        self._call = call
        words = [*map(os.fsdecode, call["args"])] if isinstance(call["args"], list | tuple) else []
        self.terminal: Any = ""
        if tuple(words[:3]) == OPEN_TERMINAL:
            self.terminal = words[3]
            words = words[4:]
        elif words and _is_shoal_script(words[0]):
            words = [sys.executable, "-m", "shoal", *words[1:]]
        self._words = words
        self._env: Mapping[Any, Any] = os.environ if call["env"] is None else call["env"]

    @property
    def can_be_forked(self) -> bool:
        call = self._call
        return (
            self._words[:1] == [sys.executable]
            and (any(self._starts_with(each) for each in _programs) or self._is_program_of_tests)
            and not (self._starts_with(GUARDIAN) and self._has_own_start_variables)
            and not call["shell"]
            and call["close_fds"]
            and all(call[name] is None for name in ("executable", "preexec_fn", "gid", "gids", "uid"))
            and not any(os.fsdecode(name).startswith("LD_") for name in self._env)
        )

    def _starts_with(self, words: tuple[str, ...]) -> bool:
        return tuple(self._words[1 : 1 + len(words)]) == words

    @property
    def _is_program_of_tests(self) -> bool:
        """Return True for code and files of the tests that import Shoal and do not look at their start."""
        if self._words[1:2] == ["-c"]:
            text = "".join(self._words[2:3])
        elif self._words[1:] and Path(self._words[1]).is_relative_to(TESTS):
            text = _read_program(self._words[1])
        else:
            return False
        path = dict(self.start_variables).get("PYTHONPATH", "")
        return (
            _IMPORTS_SHOAL.search(text) is not None
            and _LOOKS_AT_START.search(text) is None
            and path.partition(os.pathsep)[0] == str(SRC)
        )

    @property
    def _has_own_start_variables(self) -> bool:
        """Return True if the test has set variables that the guardian ignores and its copy would not."""
        variables = dict(self.start_variables)
        return variables.pop("PYTHONPATH", "").partition(os.pathsep)[0] != str(SRC) or any(
            _variables_at_start.get(name) != value for name, value in variables.items()
        )

    @property
    def start_variables(self) -> tuple[tuple[str, str], ...]:
        pairs = ((os.fsdecode(name), os.fsdecode(value)) for name, value in self._env.items())
        return tuple(sorted(pair for pair in pairs if pair[0].startswith(START_VARIABLES)))

    def fork(self, server: ProgramForkServer) -> int:
        call = self._call
        request = {
            "arguments": self._words[1:],
            "env": {os.fsdecode(name): os.fsdecode(value) for name, value in self._env.items()},
            "terminal": self.terminal,
            "start_new_session": call["start_new_session"],
            "process_group": call["process_group"],
            "pass_fds": tuple(call["pass_fds"]),
            "umask": call["umask"] if call["umask"] >= 0 else _get_umask(),
        }
        with ExitStack() as exit_stack:
            directory = os.open(call["cwd"] or ".", DIRECTORY_FLAGS)
            exit_stack.callback(os.close, directory)
            ends = (call["p2cread"], call["c2pwrite"], call["errwrite"])
            standard = [number if end == -1 else end for number, end in enumerate(ends)]
            return server.fork_process(request, [*standard, directory, *call["pass_fds"]])


def wait_for_fork_server(env: Mapping[str, str]) -> None:
    """Start the server for programs with this environment, and wait until it has imported everything."""
    call = {"args": (), "env": env}
    assert _get_fork_server(_ForkRequest(call).start_variables).is_ready(60)


def _is_shoal_script(word: str) -> bool:
    path = Path(word)
    if not path.is_absolute() or not path.is_file() or path.stat().st_size != len(SHOAL_SCRIPT):
        return False
    return path.read_bytes() == SHOAL_SCRIPT.encode()


@cache
def _read_program(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def _get_umask() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("Umask:")).split()[1], 8)


_counts: dict[tuple[tuple[tuple[str, str], ...], str], int] = {}


def _execute_or_fork(self: Any, *arguments: Any, **named: Any) -> None:
    call = _signature.bind(self, *arguments, **named).arguments
    request = _ForkRequest(call)
    # The server gives its forks the parent that it has itself.
    if _is_paused or os.getpid() != _test_process or not request.can_be_forked:
        _execute_child(self, *arguments, **named)
        return
    variables = request.start_variables
    place = (variables, _read_network_namespace())
    _counts[place] = _counts.get(place, 0) + 1
    if _counts[place] < FIRST_FORKED or not _get_fork_server(variables).is_ready():
        _execute_child(self, *arguments, **named)
        return
    sys.audit("subprocess.Popen", sys.executable, call["args"], call["cwd"], call["env"])
    pid = request.fork(_get_fork_server(variables))
    if pid < 0:
        raise OSError(-pid, os.strerror(-pid))
    self.pid = pid
    self._child_created = True
    self._close_pipe_fds(*(call[name] for name in _PIPE_ENDS))


def can_fork() -> bool:
    return sys.platform == "linux" and platform.machine() in CLONE_CALLS


@pytest.fixture(autouse=True)
def _fresh_interpreters(request: pytest.FixtureRequest) -> Iterator[None]:
    global _is_paused  # noqa: PLW0603
    _is_paused = request.node.get_closest_marker("fresh_interpreter") is not None
    yield
    _is_paused = False


if can_fork():
    subprocess.Popen._execute_child = _execute_or_fork  # type: ignore[attr-defined]
