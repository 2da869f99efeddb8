"""Tasks of many members in one event loop, of which only one waits while it writes to the store.

A transcript entry or an event must be stored when the call returns, so such a call blocks its event loop. In
a process with thousands of members, this would limit all of them to one line for each commit. Here, the call
suspends its task in the middle of a function (with `greenlet`), and the event loop runs other members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from typing import Any, Literal, NamedTuple, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")


class _StepOutcome(NamedTuple):
    kind: Literal["awaits", "suspended", "ended", "failed"]
    value: Any
    """What it awaits, what it is suspended for, its result or its error."""


class _StepRunner(greenlet):  # type: ignore[misc]
    """Runs steps of tasks. While a step is suspended, its runner cannot run another one."""

    def run(self, function: Callable[[Any], Any], argument: Any) -> None:
        parent = self.parent
        assert parent is not None
        while True:
            try:
                outcome = _StepOutcome("awaits", function(argument))
            except StopIteration as end:
                outcome = _StepOutcome("ended", end.value)
            except BaseException as error:  # noqa: BLE001 - raised in the task
                outcome = _StepOutcome("failed", error)
            function, argument = parent.switch(outcome)


class MemberTasks:
    """Tasks of one member. While one of them is suspended in a call, none of the others runs.

    Code of the member therefore sees what it would see if the call blocked.
    """

    def __init__(self) -> None:
        self.is_suspended = False
        self._waiters: list[asyncio.Future[None]] = []

    def add_waiter(self) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def resume(self) -> None:
        self.is_suspended = False
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


_MEMBER: ContextVar[MemberTasks | None] = ContextVar("member_tasks", default=None)


def create_member_context() -> Context:
    """Return a context for the tasks of one member."""
    context = copy_context()
    context.run(_MEMBER.set, MemberTasks())
    return context


def install_suspendable_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Let tasks with a context from `create_member_context` wait for the store without blocking the loop."""
    idle: list[_StepRunner] = []

    def create_task(
        loop: asyncio.AbstractEventLoop, work: Any, *, context: Context | None = None
    ) -> asyncio.Task[Any]:
        member = _MEMBER.get() if context is None else context.get(_MEMBER)
        if member is not None:
            work = _SteppedCoroutine(_drive_task(work, member, idle))
        return asyncio.Task(work, loop=loop, context=context)

    loop.set_task_factory(create_task)


def is_suspendable() -> bool:
    """Return True if the caller is in a task that can be suspended."""
    return isinstance(getcurrent(), _StepRunner)


def suspend_until_done(future: asyncio.Future[T]) -> T:
    """Suspend the current task until the future is done; return its result or raise its error."""
    parent = getcurrent().parent
    assert parent is not None
    parent.switch(_StepOutcome("suspended", future))
    return future.result()


class _SteppedCoroutine(Coroutine[Any, Any, T]):
    """A generator as a coroutine: since Python 3.12, asyncio makes no task of a generator."""

    def __init__(self, steps: Generator[Any, Any, T]) -> None:
        self._steps = steps

    def send(self, value: Any, /) -> Any:
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        return self._steps.throw(*error)

    def close(self) -> None:
        self._steps.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._steps


def _drive_task(
    work: Coroutine[Any, Any, T], member: MemberTasks, idle: list[_StepRunner]
) -> Generator[Any, Any, T]:
    """Run a coroutine step by step, each in a runner."""
    value: Any = None
    error: BaseException | None = None
    try:
        while True:
            while member.is_suspended:
                try:
                    yield from member.add_waiter()
                except asyncio.CancelledError as canceled:
                    error = canceled
            runner = idle.pop() if idle else _StepRunner()
            runner.gr_context = getcurrent().gr_context
            outcome = runner.switch(*((work.send, value) if error is None else (work.throw, error)))
            if outcome.kind == "suspended":
                outcome = yield from _wait_and_continue(runner, outcome, member)
            idle.append(runner)
            if outcome.kind == "ended":
                return outcome.value  # type: ignore[no-any-return]
            if outcome.kind == "failed":
                raise outcome.value
            value = error = None
            try:
                value = yield outcome.value
            except GeneratorExit:
                raise
            except BaseException as raised:  # noqa: BLE001 - passed on to the coroutine
                error = raised
    finally:
        work.close()


def _wait_and_continue(
    runner: _StepRunner, outcome: _StepOutcome, member: MemberTasks
) -> Generator[Any, Any, _StepOutcome]:
    """Wait for what the step is suspended for and continue it, until it awaits or ends."""
    while outcome.kind == "suspended":
        member.is_suspended = True
        try:
            was_canceled = yield from _wait_until_done(outcome.value)
        except GeneratorExit:
            runner.throw()  # the event loop is gone, so the call never returns
            raise
        finally:
            member.resume()
        if was_canceled:
            _cancel_current_task_again()
        runner.gr_context = getcurrent().gr_context
        outcome = runner.switch()
    return outcome


def _wait_until_done(future: asyncio.Future[Any]) -> Generator[Any, Any, bool]:
    """Wait for the future; return True if the task was canceled meanwhile.

    The call is completed first: what it writes may already be stored, and its caller must know.
    """
    was_canceled = False
    while not future.done():
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: object, waiter: asyncio.Future[None] = waiter) -> None:
            if not waiter.done():
                waiter.set_result(None)

        future.add_done_callback(wake)
        try:
            yield from waiter
        except asyncio.CancelledError:
            was_canceled = True
    return was_canceled


def _cancel_current_task_again() -> None:
    """Cancel the task at its next await, and count this as the same request."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    task.uncancel()
