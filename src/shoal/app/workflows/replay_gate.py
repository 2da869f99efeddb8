"""Order of a resumed workflow: a step runs after the program asked again for all steps finished before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import CoroutineType
from typing import Any
from weakref import WeakSet

from msgspec import Struct

from shoal.app.model_notices import format_session_notice
from shoal.app.workflows.loop_watchdog import CountedProgram
from shoal.app.workflows.step_input import describe_difference, split_input
from shoal.app.workflows.step_log import StepLog, StepRecord
from shoal.core.clock import Clock
from shoal.core.errors import WorkflowChanged
from shoal.core.events import PREVIEW_LENGTH
from shoal.core.text.text_format import format_count_with_noun, to_one_line

_IDLE_ROUNDS = 5
"""Rounds of the event loop without a replayed step after which tasks that can continue have done so."""
NOTE_SECONDS = 2.0
"""Seconds after which the user is told that a branch of the program keeps new steps waiting."""
PATIENCE_SECONDS = 120.0
"""Seconds that a branch may wait for something other than a step while others wait for its steps."""


class RequestedStep(Struct, frozen=True, kw_only=True):
    """A step as the program asks for it now."""

    path: str
    preview: str
    digest: str
    given: Any


class ReplayGate:
    """Holds back the steps of a resumed workflow until its finished steps are replayed.

    In the recorded run, the program asked for each step without the results of later ones. A program that has
    not changed therefore asks again for every finished step before it needs a step with a higher number. If
    nothing of the program can continue and a finished step is missing, the program changed.
    """

    def __init__(self, workflow: str, log: StepLog, clock: Clock, note: Callable[[str], None]) -> None:
        self._workflow = workflow
        self._log = log
        self._clock = clock
        self._note = note
        self._has_noted = False
        self._changed: str = ""
        self._changed_step = 0
        self._held: dict[asyncio.Task[Any] | None, RequestedStep | None] = {}
        self._executing = 0
        self._progress: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._other_tasks = WeakSet(asyncio.all_tasks())
        """Tasks that are not part of the program."""

    def refuse_changed(self) -> None:
        """Raise `WorkflowChanged` if the program was found to differ, even if it caught that error."""
        if self._changed:
            raise WorkflowChanged(self._changed, step=self._changed_step)

    def signal_progress(self) -> None:
        """Let waiting steps check again: the program got the result of a step."""
        self._progress.set_result(None)
        self._progress = asyncio.get_running_loop().create_future()

    @contextmanager
    def execute_step(self) -> Iterator[None]:
        """Count a step that runs: the program may depend on its end."""
        self._executing += 1
        try:
            yield
        finally:
            self._executing -= 1
            self.signal_progress()

    async def wait_for_turn(self, number: int | None, requested: RequestedStep | None) -> None:
        """Wait until all finished steps before this one are replayed; None is a new step or the end.

        Raises `WorkflowChanged`.
        """
        self.refuse_changed()
        if not self._log.has_result_before(number):
            return
        task = asyncio.current_task()
        self._held[task] = requested
        self.signal_progress()
        try:
            await self._wait_for_results(number)
        finally:
            del self._held[task]

    async def _wait_for_results(self, number: int | None) -> None:
        taken, idle_rounds = self._log.taken, 0
        while self._log.has_result_before(number):
            if idle_rounds < _IDLE_ROUNDS:
                await asyncio.sleep(0)
            elif self._executing:
                await asyncio.wait([self._progress])  # does not cancel what others wait for
            elif active := self._list_active_tasks():
                if not await self._wait_for_other_branches(active):
                    self._declare_changed()
            else:
                self._declare_changed()
            self.refuse_changed()
            idle_rounds = idle_rounds + 1 if self._log.taken == taken else 0
            taken = self._log.taken

    async def _wait_for_other_branches(self, active: list[asyncio.Task[Any]]) -> bool:
        """Return False if the other branches of the program did nothing for too long."""
        for seconds in (NOTE_SECONDS, PATIENCE_SECONDS):
            try:
                async with self._clock.deadline(seconds):
                    await asyncio.wait([self._progress, *active], return_when=asyncio.FIRST_COMPLETED)
                    return True
            except TimeoutError:
                self._note_waiting()
        return False

    def _note_waiting(self) -> None:
        missing = self._log.find_first_result()
        if self._has_noted or missing is None:
            return
        self._has_noted = True
        self._note(
            f"The workflow {self._workflow} starts no new steps yet: its program must first call "
            f"step {missing.number} ({missing.path}), which already finished. Shoal waits at most "
            f"{PATIENCE_SECONDS:g} s."
        )

    def _list_active_tasks(self) -> list[asyncio.Task[Any]]:
        """Return the tasks of the program that wait for something other than held steps."""
        held = {task for task in self._held if task is not None}
        tasks = asyncio.all_tasks() - set(self._other_tasks) - held
        return [task for task in tasks if not _is_waiting_for(task, held)]

    def _declare_changed(self) -> None:
        recorded = self._log.find_first_result()
        assert recorded is not None
        requested = self._find_replacement(recorded)
        later = self._log.count_results_from(recorded.number)
        self._changed_step = recorded.number
        comparison = (
            f"  recorded: {recorded.path}{_quote(recorded.preview)}",
            "  now:      the program ends"
            if requested is None
            else f"  now:      {requested.path}{_quote(requested.preview)}",
            *([] if requested is None else self._describe_input_difference(recorded, requested)),
        )
        self._changed = format_session_notice(
            "workflow_changed",
            workflow=self._workflow,
            number=recorded.number,
            comparison="\n".join(comparison),
            steps=format_count_with_noun(later, "finished step"),
        )
        self.signal_progress()

    def _find_replacement(self, missing: StepRecord) -> RequestedStep | None:
        """Return the held step that most likely replaces the missing one; None if the program ends."""
        held = [each for each in self._held.values() if each is not None]

        def count_matches(requested: RequestedStep) -> int:
            return (
                2 * (requested.path == missing.path)
                + 2 * (requested.digest == missing.digest)
                + (to_one_line(requested.preview)[:PREVIEW_LENGTH] == missing.preview)
            )

        return max(held, key=count_matches, default=None)

    def _describe_input_difference(self, recorded: StepRecord, requested: RequestedStep) -> list[str]:
        if recorded.digest == requested.digest:
            return [
                "  The input is the same; the phase, the functions, the agent's name or the kind differs."
            ]
        before = self._log.resolve_input(recorded)
        # The preview of a step without stored parts is all that is known.
        return describe_difference(before, split_input(requested.given)) if before else []


def _quote(preview: str) -> str:
    return f": {to_one_line(preview)[:PREVIEW_LENGTH]!r}" if preview else ""


def _is_waiting_for(task: asyncio.Future[Any], held: set[asyncio.Task[Any]]) -> bool:
    """Return True if the task can continue only after one of the held tasks. When in doubt, return False."""
    if task in held:
        return True
    awaited = _list_awaited(task)
    pending = [each for each in awaited if not each.done()]
    return bool(pending) and all(_is_waiting_for(each, held) for each in pending)


def _list_awaited(task: asyncio.Future[Any]) -> Iterable[asyncio.Future[Any]]:
    """Return the tasks that a task waits for, as far as they are known."""
    children = getattr(task, "_children", None)  # asyncio.gather
    if children is not None:
        return tuple(children)
    waiter = getattr(task, "_fut_waiter", None)
    if waiter is None:
        return ()
    if isinstance(waiter, asyncio.Task) or hasattr(waiter, "_children"):
        return (waiter,)
    return _list_tasks_of_innermost_call(task) if isinstance(task, asyncio.Task) else ()


def _list_tasks_of_innermost_call(task: asyncio.Task[Any]) -> Iterable[asyncio.Future[Any]]:
    """Return the tasks of the task group or the `asyncio.wait` in which a task is waiting."""
    coroutine: Any = task.get_coro()
    while isinstance(coroutine, CoroutineType):
        awaited = coroutine.cr_await
        awaited = awaited.program if isinstance(awaited, CountedProgram) else awaited
        if not isinstance(awaited, CoroutineType):
            break
        coroutine = awaited
    frame = getattr(coroutine, "cr_frame", None)
    if frame is None:
        return ()
    group = frame.f_locals.get("self")
    if isinstance(group, asyncio.TaskGroup):
        return tuple(getattr(group, "_tasks", ()))
    if frame.f_globals.get("__name__") == "asyncio.tasks" and frame.f_code.co_name == "_wait":
        return tuple(frame.f_locals.get("fs", ()))
    return ()
