"""A pytest plugin that tries mutants, each in a process that is forked after the tests are collected.

A new interpreter would import and collect everything again for each mutant. The fork changes the code of the
functions that are already imported; programs that tests start and modules that are imported later read the
changed file. A function that is called while modules are imported cannot be changed this way: its mutants are
reported as `fresh`, and need a new interpreter.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from tests.mutation.mutants import Mutant

PLAN_VARIABLE = "MUTATION_PLAN"
"""Path of the plan; the verdicts are written beside it, one per line."""


class Attempt(Struct, frozen=True):
    """One mutant and the tests to run, with the seconds that each takes in the unchanged program."""

    mutant: Mutant
    tests: dict[str, float]


class AttemptResult(Struct, frozen=True):
    """What the tests said about one mutant."""

    outcome: str
    """killed, survived, timeout, untested or fresh"""
    test: str = ""
    seconds: float = 0.0
    tests: int = 0


_entered_at_import: set[CodeType] = set()


def _note_call(frame: FrameType, event: str, argument: object) -> None:
    _entered_at_import.add(frame.f_code)


def pytest_configure() -> None:
    sys.settrace(_note_call)


def pytest_collection_finish() -> None:
    sys.settrace(None)


def pytest_runtestloop(session: pytest.Session) -> bool:
    plan = Path(os.environ.pop(PLAN_VARIABLE))
    attempts = msgspec.json.decode(plan.read_bytes(), type=list[Attempt])
    runner = _ForkRunner(session)
    with plan.with_suffix(".results").open("ab") as results:
        for attempt in attempts:
            results.write(msgspec.json.encode(runner.try_mutant(attempt)) + b"\n")
            results.flush()
    return True


class _ForkRunner:
    """Forks a process for each mutant."""

    def __init__(self, session: pytest.Session) -> None:
        self._items = {item.nodeid: item for item in session.items}
        self._setup_state = session._setupstate
        self._last_time = int(time.time())
        self._broken: set[str] = set()
        """Tests that fail in the unchanged program too: they do not run in a copy of the tree."""
        gc.unfreeze()
        self._functions: dict[str, list[FunctionType]] = {}
        self._caches = []
        for found in gc.get_objects():
            if isinstance(found, FunctionType):
                self._functions.setdefault(found.__code__.co_filename, []).append(found)
            elif isinstance(found, functools._lru_cache_wrapper) and found.__module__.startswith("shoal"):
                self._caches.append(found)
        gc.freeze()

    def try_mutant(self, attempt: Attempt) -> AttemptResult:
        path = Path(attempt.mutant.module).absolute()
        started = time.monotonic()
        original = path.read_bytes()
        changed = attempt.mutant.apply(original)
        try:
            changes = self._match_functions(path, attempt.mutant, original, changed)
        except _NeedsNewInterpreterError:
            return AttemptResult("fresh")
        tests = {test: seconds for test, seconds in attempt.tests.items() if test in self._items}
        outcome, test = "untested", ""
        while tests := {test: seconds for test, seconds in tests.items() if test not in self._broken}:
            outcome, test = self._run_changed(path, changed, changes, tests)
            if outcome not in {"killed", "timeout"}:
                break
            alone = {test: tests[test]}
            if self._run_forked([], alone)[0] != "survived":
                self._broken.add(test)
            elif self._run_changed(path, changed, changes, alone)[0] != "survived":
                break
            # Failed, and then did not: it is not known why, so this test does not count.
            names = list(tests)
            tests = {name: tests[name] for name in names[names.index(test) + 1 :]}
            outcome, test = "survived", ""
        return AttemptResult(outcome, test, time.monotonic() - started, len(attempt.tests))

    def _match_functions(
        self, path: Path, mutant: Mutant, original: bytes, changed: bytes
    ) -> list[tuple[FunctionType, CodeType]]:
        """Find the imported functions whose code a change alters, with their new code."""
        outermost = mutant.function.partition(".<locals>")[0]
        before, after = (
            [
                code
                for code in _iter_codes(compile(text, path, "exec"))
                if f"{code.co_qualname}.".startswith(f"{outermost}.")
            ]
            for text in (original, changed)
        )
        new_codes = dict(_number_codes(after))
        different = {}
        for key, code in _number_codes(before):
            new = new_codes.get(key)
            if new is not None and new != code:
                different[code.co_qualname, code.co_firstlineno] = new
        places = {(str(path), *key) for key in different}
        if any((c.co_filename, c.co_qualname, c.co_firstlineno) in places for c in _entered_at_import):
            raise _NeedsNewInterpreterError
        changes = []
        for function in self._functions.get(str(path), []):
            code = function.__code__
            new = different.get((code.co_qualname, code.co_firstlineno))
            if new is not None:
                if code.co_freevars != new.co_freevars:
                    raise _NeedsNewInterpreterError
                changes.append((function, new))
        return changes

    def _run_changed(
        self,
        path: Path,
        changed: bytes,
        changes: list[tuple[FunctionType, CodeType]],
        tests: dict[str, float],
    ) -> tuple[str, str]:
        original = path.read_bytes()
        try:
            self._write_source(path, changed)
            return self._run_forked(changes, tests)
        finally:
            self._write_source(path, original)

    def _write_source(self, path: Path, content: bytes) -> None:
        """Write with a time of its own: bytecode files are found by time in seconds and size."""
        path.write_bytes(content)
        self._last_time += 1
        os.utime(path, (self._last_time, self._last_time))

    def _run_forked(
        self, changes: list[tuple[FunctionType, CodeType]], tests: dict[str, float]
    ) -> tuple[str, str]:
        """Run tests in a forked process until one fails; return the outcome and that test."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            code = 1
            try:
                self._run_in_child(changes, list(tests), writer)
                code = 0
            finally:
                os._exit(code)
        os.close(writer)
        test = ""
        try:
            with os.fdopen(reader, "rb", buffering=0) as lines:
                pending = b""
                while True:
                    limit = 30 + 10 * tests.get(test, 1)
                    if not select.select([lines], [], [], limit)[0]:
                        return "timeout", test
                    read = lines.read(65536)
                    if not read:
                        # The process ended without a verdict: the last test ended it.
                        return "killed", test
                    *complete, pending = (pending + read).split(b"\n")
                    for line in complete:
                        word, _, name = line.decode().partition(" ")
                        if word == "ended":
                            return ("killed", name) if name else ("survived", "")
                        test = name
        finally:
            # What a broken program started and did not end is in its session's group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def _run_in_child(
        self, changes: list[tuple[FunctionType, CodeType]], tests: list[str], writer: int
    ) -> None:
        os.setsid()
        for function, code in changes:
            function.__code__ = code
        for cache in self._caches:
            cache.cache_clear()
        items = [self._items[test] for test in tests]
        reports = _FailureCollector()
        items[0].config.pluginmanager.register(reports)
        failed = ""
        for number, item in enumerate(items):
            os.write(writer, f"started {item.nodeid}\n".encode())
            following = items[number + 1] if number + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if reports.failed:
                failed = item.nodeid
                break
        with contextlib.suppress(Exception):
            self._setup_state.teardown_exact(None)
        os.write(writer, f"ended {failed}\n".encode())


class _NeedsNewInterpreterError(Exception):
    """The change cannot be made in a process that has imported the module."""


class _FailureCollector:
    """Notes failed phases of tests."""

    def __init__(self) -> None:
        self.failed = False

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed |= report.failed


def _iter_codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _iter_codes(constant)


def _number_codes(codes: list[CodeType]) -> Iterator[tuple[tuple[str, int], CodeType]]:
    counts: dict[str, int] = {}
    for code in codes:
        number = counts[code.co_qualname] = counts.get(code.co_qualname, 0) + 1
        yield (code.co_qualname, number), code
