"""Follows the paths of docs/walks.toml in a run: which functions it enters, in order, and who calls them."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

import shoal
from draw_walks import Walk, WalkStep

_PACKAGE = str(Path(shoal.__file__).parent) + "/"
_CREATE_TASK = asyncio.BaseEventLoop.create_task.__code__


class TracedCall(Struct, frozen=True):
    function: str
    """`FILE:FUNCTION`."""
    callers: list[str]
    """Functions of the package that wait for it or have started its task, the outermost first."""


class CallTrace:
    """Records the calls of some functions, which are named as `FILE:FUNCTION`."""

    def __init__(self, functions: Iterable[str]) -> None:
        self.calls: list[TracedCall] = []
        self._functions = frozenset(functions)
        self._names: dict[CodeType, str] = {}
        self._task_callers: WeakKeyDictionary[asyncio.Task[Any], list[str]] = WeakKeyDictionary()

    @contextmanager
    def record(self) -> Iterator[CallTrace]:
        sys.setprofile(self._record_call)
        threading.setprofile(self._record_call)
        try:
            yield self
        finally:
            threading.setprofile(None)
            sys.setprofile(None)

    def _record_call(self, frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if event == "call" and self._get_name(code) in self._functions:
            self.calls.append(TracedCall(self._names[code], self._list_callers(frame)))
        elif event == "return" and code is _CREATE_TASK and value is not None:
            self._task_callers[value] = self._list_callers(frame)

    def _get_name(self, code: CodeType) -> str:
        """Return `FILE:FUNCTION`, or an empty text for code outside the package."""
        name = self._names.get(code)
        if name is None:
            file = code.co_filename.removeprefix(_PACKAGE)
            is_inside = file != code.co_filename
            name = f"{file}:{code.co_qualname.replace('<locals>.', '')}" if is_inside else ""
            self._names[code] = name
        return name

    def _list_callers(self, frame: FrameType) -> list[str]:
        callers, above = list[str](), frame.f_back
        while above is not None:
            if name := self._get_name(above.f_code):
                callers.append(name)
            above = above.f_back
        callers.reverse()
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return callers
        return callers if task is None else [*self._task_callers.get(task, ()), *callers]


def find_walk_problems(walk: Walk, calls: Iterable[TracedCall], process: str = "") -> list[str]:
    """Return what a run contradicts in a walk: its order, its causes, or the list of its files.

    `calls` are those of one process of the run.
    """
    problems, rest = list[str](), list(calls)
    for number, step in enumerate(walk.steps):
        if step.process != process:
            continue
        places = [place for place, call in enumerate(rest) if call.function == step.place]
        if not places:
            return [*problems, f"{step.place} was not entered after the steps before it"]
        cause = _get_calling_step(walk, number)
        found = next((place for place in places if _is_called_by(rest[place], cause)), None)
        if found is None:
            assert cause is not None
            problems.append(f"{step.place} is not called by {cause.place}")
            found = places[0]
        problems += _list_missing_files(walk, rest[found])
        rest = rest[found + 1 :]
    return problems


def _get_calling_step(walk: Walk, number: int) -> WalkStep | None:
    """Return the step that calls a step according to the walk; None if another cause starts it."""
    trigger = walk.steps[number].trigger
    if trigger.startswith("step "):
        return walk.steps[int(trigger.removeprefix("step ")) - 1]
    return walk.steps[number - 1] if number and not trigger else None


def _is_called_by(call: TracedCall, cause: WalkStep | None) -> bool:
    return cause is None or cause.place in call.callers


def _list_missing_files(walk: Walk, call: TracedCall) -> list[str]:
    """Return the callers below the walk's first step whose files the walk does not name."""
    callers, start = [*call.callers, call.function], walk.steps[0].place
    if start in callers:
        callers = callers[len(callers) - callers[::-1].index(start) :]
    return [
        f"{call.function} is called through {caller}, whose file is not listed"
        for caller in dict.fromkeys(callers)
        if caller.partition(":")[0] not in walk.files
    ]
