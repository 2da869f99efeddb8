"""Run as `python -I -S -E script_process.py MEMORY_BYTES CPU_SECONDS`: executes an untrusted workflow script.

Before it reads the script, the process gives up everything but reading, writing and memory: a filter refuses
every other system call, so there are no files, sockets, processes or threads. Its only connection is a pair
of pipes with frames of JSON: a length of four bytes, then the text. Standard library only.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import inspect
import json
import linecache
import os
import platform
import resource
import struct
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

# fmt: off
SCRIPT_MODULES = (
    "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "difflib", "enum", "fractions",
    "functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "re", "statistics", "string",
    "textwrap", "traceback", "typing", "unicodedata",
)
"""Modules that scripts can import: later imports find no files."""
ALLOWED_CALLS = {
    # read write close fstat poll lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn
    # sched_yield mremap madvise getpid exit futex clock_gettime clock_getres clock_nanosleep exit_group
    # epoll_wait epoll_ctl epoll_pwait gettid sigaltstack getrandom restart_syscall nanosleep getrusage
    "x86_64": (
        0, 1, 3, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 28, 39, 60, 202, 228, 229, 230, 231,
        232, 233, 281, 186, 131, 318, 219, 35, 98,
    ),
    # The same without epoll_wait, and ppoll instead of poll.
    "aarch64": (
        63, 64, 57, 80, 73, 62, 222, 226, 215, 214, 134, 135, 139, 124, 216, 233, 172, 93, 98, 113,
        114, 115, 94, 21, 22, 178, 132, 278, 128, 101, 165,
    ),
}
# fmt: on
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
EXIT_NO_FILTER = 3
NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER_MODE, SET_DUMPABLE = 38, 22, 2, 4
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050001, 0x80000000
NUMBER_OFFSET, ARCHITECTURE_OFFSET = 0, 4
HEADER = struct.Struct(">I")
CHUNK = 1 << 16
SCRIPT_NAME = "<workflow>"
MAX_MESSAGE = 4_000
MAX_WORKERS = 1_000
"""Maximum number of steps of one `map` or `pipeline` at the same time."""


class FilterInstruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("operand", ctypes.c_uint32),
    )


class FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(FilterInstruction)))


def give_up_system_calls() -> None:
    """Refuse all system calls except a few. Raises OSError: a script must not run without this."""
    machine = platform.machine()
    if machine not in ALLOWED_CALLS:
        raise OSError(f"there is no system call filter for {machine}")
    allowed = ALLOWED_CALLS[machine]
    lines = [
        (LOAD, 0, 0, ARCHITECTURE_OFFSET),
        (JUMP_IF_EQUAL, 1, 0, ARCHITECTURES[machine]),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_OFFSET),
        # Each jumps over the remaining comparisons and the refusal.
        *((JUMP_IF_EQUAL, len(allowed) - index, 0, number) for index, number in enumerate(allowed)),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    ]
    program = FilterProgram(
        len(lines), (FilterInstruction * len(lines))(*(FilterInstruction(*line) for line in lines))
    )
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(SET_DUMPABLE, 0, 0, 0, 0)
    for arguments in (
        (NO_NEW_PRIVILEGES, 1, 0, 0, 0),
        (SET_SECCOMP, FILTER_MODE, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def limit_resources(memory: int, cpu_seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    # At the first limit the signal says why it ends; a script that ignores that is killed at the second.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


class ScriptRunFailed(Exception):
    """An agent did not complete its work."""


class ScriptWorkflowError(Exception):
    """A step was refused, or the workflow cannot continue."""


# Scripts know them by the names of the library.
ScriptRunFailed.__name__, ScriptWorkflowError.__name__ = "RunFailed", "WorkflowError"


class ShellResult(NamedTuple):
    exit_code: int
    text: str


class NoDefault:
    """Type of the marker for a missing default."""


NO_DEFAULT = NoDefault()


class Connection:
    """The pipes to the parent: requests with numbers, and their answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buffer = bytearray()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self._last = 0

    def send(self, message: dict[str, Any]) -> None:
        text = json.dumps(message).encode()
        data = HEADER.pack(len(text)) + text
        while data:
            data = data[os.write(1, data) :]

    async def request(self, step: str, **fields: Any) -> Any:
        number = self._send_request(step, fields)
        future = self._waiting[number] = self._loop.create_future()
        return await future

    def request_and_block(self, step: str, **fields: Any) -> Any:
        """Ask for a step that the script does not await."""
        number = self._send_request(step, fields)
        while number not in self._answers:
            self.read_answers()
        return get_answer(self._answers.pop(number))

    def read_start(self) -> dict[str, Any]:
        while (started := self._take_frame()) is None:
            self._fill_buffer()
        return started

    def read_answers(self) -> None:
        """Read once, and wake those that wait for the answers."""
        self._fill_buffer()
        while (frame := self._take_frame()) is not None:
            future = self._waiting.pop(frame["id"], None)
            if future is None:
                self._answers[frame["id"]] = frame
            elif not future.done():
                try:
                    future.set_result(get_answer(frame))
                except (ScriptRunFailed, ScriptWorkflowError) as error:
                    future.set_exception(error)

    def _send_request(self, step: str, fields: dict[str, Any]) -> int:
        self._last += 1
        self.send({"type": step, "id": self._last, **fields})
        return self._last

    def _fill_buffer(self) -> None:
        data = os.read(0, CHUNK)
        if not data:
            os._exit(0)  # the parent is gone
        self._buffer += data

    def _take_frame(self) -> dict[str, Any] | None:
        if len(self._buffer) < HEADER.size:
            return None
        end = HEADER.size + HEADER.unpack(self._buffer[: HEADER.size])[0]
        if len(self._buffer) < end:
            return None
        frame: dict[str, Any] = json.loads(bytes(self._buffer[HEADER.size : end]))
        del self._buffer[:end]
        return frame


def get_answer(frame: dict[str, Any]) -> Any:
    if "error" in frame:
        raise (
            ScriptRunFailed(frame["message"])
            if frame["error"] == "RunFailed"
            else ScriptWorkflowError(frame["message"])
        )
    return frame.get("value")


class Flow:
    """The workflow as the script sees it: the same steps as `shoal.Workflow`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def phase(self, name: str) -> None:
        self._connection.request_and_block("phase", name=name)

    async def agent(self, agent: str, prompt: str, **options: Any) -> Any:
        return await self._run_agent(build_path(f"agent {agent}"), agent, prompt, **options)

    async def map(
        self,
        agent: str,
        prompts: Iterable[str],
        *,
        at_once: int = 20,
        default: Any = NO_DEFAULT,
        **options: Any,
    ) -> list[Any]:
        path = build_path(f"map {agent}")

        async def run_prompt(prompt: str) -> Any:
            return await self._run_agent(path, agent, prompt, **options)

        return await run_for_each(prompts, run_prompt, at_once, default)

    async def pipeline(
        self, items: Iterable[Any], *stages: Callable[[Any], Awaitable[Any]], at_once: int = 20
    ) -> list[Any]:
        async def run_stages(item: Any) -> Any:
            for stage in stages:
                item = await stage(item)
            return item

        return await run_for_each(items, run_stages, at_once, NO_DEFAULT)

    async def ask(self, question: str, options: Sequence[str]) -> Any:
        path = build_path("ask")
        return await self._connection.request("ask", path=path, question=question, options=list(options))

    async def shell(self, command: str, *, timeout: float | None = None) -> ShellResult:
        path = build_path("shell")
        value = await self._connection.request("shell", path=path, command=command, timeout=timeout)
        return ShellResult(value["exit_code"], value["text"])

    async def sleep(self, seconds: float) -> None:
        await self._connection.request("sleep", path=build_path("sleep"), seconds=seconds)

    def now(self) -> datetime:
        milliseconds = self._connection.request_and_block("now", path=build_path("now"))
        return datetime.fromtimestamp(milliseconds / 1000, UTC)

    def random(self) -> float:
        return float(self._connection.request_and_block("random", path=build_path("random")))

    async def _run_agent(
        self,
        path: str,
        agent: str,
        prompt: str,
        *,
        schema: dict[str, Any] | None = None,
        model: str | None = None,
        isolation: str | None = None,
    ) -> Any:
        return await self._connection.request(
            "agent", path=path, agent=agent, prompt=prompt, schema=schema, model=model, isolation=isolation
        )


async def run_for_each(
    items: Iterable[Any], run: Callable[[Any], Awaitable[Any]], at_once: int, default: Any
) -> list[Any]:
    results: dict[int, Any] = {}
    failures: dict[int, ScriptRunFailed] = {}
    remaining = enumerate(items)

    async def run_remaining() -> None:
        for index, item in remaining:
            try:
                results[index] = await run(item)
            except ScriptRunFailed as error:
                results[index], failures[index] = default, error

    async with asyncio.TaskGroup() as workers:
        for _ in range(min(max(1, at_once), MAX_WORKERS)):
            workers.create_task(run_remaining())
    if failures and default is NO_DEFAULT:
        raise failures[min(failures)]
    return [results[index] for index in sorted(results)]


def build_path(kind: str) -> str:
    """Return the functions of the script that lead to a step, and its kind."""
    names, frame = [kind], inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_filename == SCRIPT_NAME and frame.f_code.co_name != "main":
            names.append(frame.f_code.co_qualname.rpartition("<locals>.")[2])
        frame = frame.f_back
    return "/".join(reversed(names))


async def run_script(connection: Connection, started: dict[str, Any]) -> Any:
    source = started["script"]
    # For the lines in error messages, which cannot be read from a file.
    linecache.cache[SCRIPT_NAME] = (len(source), None, source.splitlines(keepends=True), SCRIPT_NAME)
    names: dict[str, Any] = {
        "__name__": "workflow",
        "RunFailed": ScriptRunFailed,
        "WorkflowError": ScriptWorkflowError,
    }
    exec(compile(source, SCRIPT_NAME, "exec"), names)  # noqa: S102 - the purpose of this process
    main_function = names.get("main")
    if not inspect.iscoroutinefunction(main_function):
        raise ScriptWorkflowError("the script must define `async def main(flow)`")
    return await main_function(Flow(connection), **started["arguments"])


def describe_error(error: BaseException) -> str:
    """Return the error and the line of the script that raised it."""
    if isinstance(error, BaseExceptionGroup):
        return describe_error(error.exceptions[0])
    lines = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == SCRIPT_NAME]
    location = f" (line {lines[-1].lineno}: {lines[-1].line})" if lines else ""
    return f"{type(error).__name__}: {error}{location}"[:MAX_MESSAGE]


def main() -> None:
    memory, cpu_seconds = map(int, sys.argv[1:])
    os.closerange(3, 1024)
    for name in SCRIPT_MODULES:
        importlib.import_module(name)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    connection = Connection(loop)
    limit_resources(memory, cpu_seconds)
    try:
        give_up_system_calls()
    except OSError as error:
        os.write(2, f"Cannot restrict system calls: {error}".encode())
        os._exit(EXIT_NO_FILTER)
    # What the script prints must not mix with frames.
    sys.stdout = sys.stderr
    started = connection.read_start()
    loop.add_reader(0, connection.read_answers)
    try:
        value = loop.run_until_complete(run_script(connection, started))
        connection.send({"type": "returned", "value": value})
    except BaseException as error:  # noqa: BLE001 - the script may raise anything
        connection.send({"type": "raised", "message": describe_error(error)})
    os._exit(0)


if __name__ == "__main__":
    main()
