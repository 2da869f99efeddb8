"""A pytest plugin that records which tests enter which functions of the program.

`make mutants` runs the tests that enter a changed function. `preload` records the programs that tests start.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import pytest
from tests.mutation.call_records import VARIABLE
from tests.mutation.rooms import ROOT

SOURCES = str(ROOT / "src" / "shoal") + os.sep
PRELOAD = str(Path(__file__).parent / "preload")
PASSED_VARIABLES = (VARIABLE, "MUTATION_ROOT", "PYTEST_CURRENT_TEST")
KEPT = 100
"""Tests kept per function: this many of the quickest and this many of the most specific."""
KEPT_VARIATIONS = 10
"""Variations of one test among these: they differ in their data, and often not in what they notice."""

_entered: set[CodeType] = set()
_tests: list[tuple[str, float, int]] = []
"""Name, seconds and number of functions entered."""
_callers: dict[str, array[int]] = {}


def _note_call(frame: FrameType, event: str, argument: object) -> None:
    _entered.add(frame.f_code)
    if frame.f_code.co_name == "build_interpreter_environment":
        # The server that forks teammates gets no other variables, and finds `preload` by our path.
        known = frame.f_globals["INTERPRETER_VARIABLES"]
        frame.f_globals["INTERPRETER_VARIABLES"] = tuple(dict.fromkeys((*known, *PASSED_VARIABLES)))
        if PRELOAD not in sys.path:
            sys.path.append(PRELOAD)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _entered.clear()
    threading.settrace(_note_call)
    sys.settrace(_note_call)
    started = time.perf_counter()
    yield
    seconds = time.perf_counter() - started
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]
    entered = [code for code in list(_entered) if code.co_filename.startswith(SOURCES)]
    for code in entered:
        key = f"{code.co_filename.removeprefix(f'{ROOT}{os.sep}')}:{code.co_qualname}"
        _callers.setdefault(key, array("l")).append(len(_tests))
    _tests.append((item.nodeid, seconds, len(entered)))


def _choose(indexes: array[int]) -> list[str]:
    quick = sorted(indexes, key=lambda index: _tests[index][1])
    specific = sorted(indexes, key=lambda index: (_tests[index][2], _tests[index][1]))
    return list(dict.fromkeys((*_keep_different(specific), *_keep_different(quick))))


def _keep_different(indexes: list[int]) -> list[str]:
    kept: list[str] = []
    counts: dict[str, int] = {}
    for index in indexes:
        name = _tests[index][0]
        test = name.partition("[")[0]
        counts[test] = counts.get(test, 0) + 1
        if counts[test] <= KEPT_VARIATIONS:
            kept.append(name)
    return kept[:KEPT]


def pytest_sessionfinish(session: pytest.Session) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    recorded = {
        "calls": {key: _choose(indexes) for key, indexes in _callers.items()},
        "seconds": {name: seconds for name, seconds, _ in _tests},
        "counts": {name: count for name, _, count in _tests},
    }
    (Path(os.environ[VARIABLE]) / f"{worker}.json").write_text(json.dumps(recorded))
