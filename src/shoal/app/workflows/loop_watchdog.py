"""Watchdog for workflow programs in an endless loop.

One that never awaits blocks the event loop of its session. No deadline and no `shoal workflow stop` can end
such a program, because they need the loop. A thread therefore checks whether the loop still runs, and
interrupts a program that blocks it for too long.

One that awaits, but runs no step, lets others run and takes a whole core. Its suspensions are counted.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context
from types import FrameType
from typing import Any

from msgspec import Struct

from shoal.app.model_notices import format_session_notice
from shoal.core.errors import WorkflowError
from shoal.core.text.filenames import escape_filename

BLOCKED_SECONDS = 60.0
"""Seconds for which a program may block the event loop."""
CHECK_SECONDS = 1.0
"""Seconds between two checks."""
_RETRY_SECONDS = 0.02
"""Seconds between two interruptions: a program may catch some of them."""
_MAX_RETRIES = 500
"""Interruptions that a program can catch until it is reported as impossible to interrupt."""
_PROTECTED_PACKAGES = frozenset({__name__.partition(".")[0], "asyncio"})
"""Packages in which an interruption could leave an invalid state."""
_STANDARD_PACKAGES = sys.stdlib_module_names - {"asyncio"}
_DEBUGGERS = frozenset({"bdb", "pdb"})
MAX_SUSPENSIONS = 5_000_000
"""Number of times that a program may await something without a step: minutes of an endless loop."""


class LoopBlocked(BaseException):
    """Raised in the program. It is no `Exception`, so that a program that catches all of those ends too."""


class BlockingProgram(Struct, frozen=True, kw_only=True):
    """Place at which a program blocks the loop."""

    workflow: str
    seconds: float
    """Seconds for which a program may block the loop."""
    place: str
    """File, line and function."""
    can_interrupt: bool
    """False while the program executes code of Shoal or asyncio, and in a debugger."""


class LoopWatchdog:
    """Watches the running event loop from a thread.

    `find_workflow` returns the id of the workflow whose program runs in a context, or in a task if the
    context is unknown. `interrupted` is called in the thread just before a program is interrupted for the
    first time.
    """

    def __init__(
        self,
        find_workflow: Callable[[Context | None, asyncio.Task[Any] | None], str | None],
        interrupted: Callable[[BlockingProgram], None],
    ) -> None:
        self._find_workflow = find_workflow
        self._interrupted = interrupted
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._ended = threading.Event()
        self._is_responding = False

    def start(self) -> None:
        threading.Thread(target=self._watch, name="shoal workflow watchdog", daemon=True).start()

    def stop(self) -> None:
        """End the thread soon; it does nothing more."""
        self._ended.set()

    def _watch(self) -> None:
        # Checks are counted instead of time: a stopped or suspended process is not a blocked loop.
        blocked_checks = 0
        while self._ping() and not self._ended.wait(CHECK_SECONDS):
            blocked_checks = 0 if self._is_responding else blocked_checks + 1
            if blocked_checks * CHECK_SECONDS >= BLOCKED_SECONDS:
                self._interrupt_until_responding()
                blocked_checks = 0

    def _ping(self) -> bool:
        """Ask the loop for a sign of life; return False if it is closed."""
        self._is_responding = False
        try:
            self._loop.call_soon_threadsafe(self._respond)
        except RuntimeError:
            return False
        return True

    def _respond(self) -> None:
        self._is_responding = True

    def _interrupt_until_responding(self) -> None:
        reported: str | None = None
        retries = 0
        while not self._is_responding:
            program = self._find_blocking_program()
            if program is None:
                return  # other code blocks the loop
            if program.can_interrupt:
                if reported != program.workflow:
                    reported = program.workflow
                    self._interrupted(program)
                self._raise_in_loop_thread(program.workflow)
                retries += 1
                if retries == _MAX_RETRIES:
                    _report_uninterruptible(program)
            if self._ended.wait(_RETRY_SECONDS if retries < _MAX_RETRIES else CHECK_SECONDS):
                return

    def _raise_in_loop_thread(self, workflow: str) -> None:
        import ctypes

        thread = ctypes.c_ulong(self._loop_thread)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(LoopBlocked))
        # If the program continued in the meantime, the error must not be raised in other code.
        program = self._find_blocking_program()
        if program is None or program.workflow != workflow or not program.can_interrupt:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, None)

    def _find_blocking_program(self) -> BlockingProgram | None:
        frames = list(_iter_frames(sys._current_frames().get(self._loop_thread)))
        task = asyncio.current_task(self._loop)
        workflow = self._find_workflow(_find_context(frames, task), task)
        if workflow is None:
            return None
        callers = [frame for frame in frames if _get_package(frame) not in _STANDARD_PACKAGES]
        program = [frame for frame in callers if _get_package(frame) not in _PROTECTED_PACKAGES]
        if not program:
            return None
        code = program[0].f_code
        is_debugged = any(
            frame.f_trace is not None or frame.f_globals.get("__name__") in _DEBUGGERS for frame in frames
        )
        return BlockingProgram(
            workflow=workflow,
            seconds=BLOCKED_SECONDS,
            place=f"{escape_filename(code.co_filename)}:{program[0].f_lineno} in {code.co_name}",
            can_interrupt=program[0] is callers[0] and not is_debugged,
        )


class CountedProgram(Generator[Any, Any, Any]):
    """Program of a workflow that counts its suspensions. It can be awaited once.

    `count_steps` returns how many steps it has run, or None while it runs one. `interrupted` is called when
    there were too many suspensions since the last step, and must cancel the task.
    """

    def __init__(
        self,
        program: Coroutine[Any, Any, Any],
        count_steps: Callable[[], int | None],
        interrupted: Callable[[int], None],
    ) -> None:
        self.program = program
        self._count_steps = count_steps
        self._interrupted = interrupted
        self._suspensions = 0
        self._steps: int | None = None

    def __await__(self) -> CountedProgram:
        return self

    def send(self, value: Any) -> Any:
        self._suspensions += 1
        if self._suspensions >= MAX_SUSPENSIONS:
            self._check_steps()
        return self.program.send(value)

    def throw(self, *error: Any) -> Any:
        return self.program.throw(*error)

    def close(self) -> None:
        self.program.close()

    def _check_steps(self) -> None:
        self._suspensions = 0
        steps = self._count_steps()
        if steps is not None and steps == self._steps:
            self._interrupted(MAX_SUSPENSIONS)
        self._steps = steps


@contextmanager
def interrupt_blocking_module(name: str) -> Iterator[None]:
    """Raise `WorkflowError` if a module that is executed here blocks the event loop for too long.

    Without an event loop nothing is watched: Ctrl-C ends such a module.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        yield
        return
    blocking: list[BlockingProgram] = []
    watchdog = LoopWatchdog(lambda context, task: name, blocking.append)
    watchdog.start()
    try:
        yield
    except LoopBlocked as error:
        raise WorkflowError(describe_blocking_program(blocking[0])) from error
    finally:
        watchdog.stop()


def describe_blocking_program(program: BlockingProgram) -> str:
    return format_session_notice(
        "workflow_blocked",
        workflow=program.workflow,
        seconds=f"{program.seconds:g}",
        place=program.place,
    )


def _iter_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of the callback that an event loop is running, innermost first."""
    while frame is not None:
        yield frame
        if _is_callback_runner(frame):
            return
        frame = frame.f_back


def _is_callback_runner(frame: FrameType) -> bool:
    return frame.f_code is asyncio.Handle._run.__code__


def _find_context(frames: list[FrameType], task: asyncio.Task[Any] | None) -> Context | None:
    """Return the context of the callback that an event loop is running; None if it is unknown."""
    if frames and _is_callback_runner(frames[-1]):
        context = getattr(frames[-1].f_locals.get("self"), "_context", None)
    else:
        # Another implementation of the event loop. Tasks return their context since Python 3.12.
        get_context = getattr(task, "get_context", None)
        context = None if get_context is None else get_context()
    return context if isinstance(context, Context) else None


def _get_package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _report_uninterruptible(program: BlockingProgram) -> None:
    sys.stderr.write(
        f"shoal: the workflow {program.workflow} blocks its event loop and catches every interruption "
        f"({program.place}). End the process: finished steps are stored, and the workflow can be resumed.\n"
    )
