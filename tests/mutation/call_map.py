"""A pytest plugin that records which tests enter which functions of an instrumented tree.

`make mutants` runs the tests that enter a changed function.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mutation.call_records import VARIABLE
from tests.mutation.entry_marks import open_marks
from tests.mutation.instrumented_tree import FUNCTIONS

_directory = Path(os.environ[VARIABLE])
_worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
_functions: list[str] = json.loads((_directory / FUNCTIONS).read_bytes())
_cleared = bytes(len(_functions))
# Before anything imports Shoal, which opens the file.
_path = _directory / f"{_worker}.marks"
_path.write_bytes(_cleared)
_path.with_name(f"{os.getpid()}.marks").symlink_to(_path)
_marks = open_marks(str(_path), len(_functions))
_recorded = (_directory / f"{_worker}.calls").open("w", encoding="utf-8")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _marks[:] = _cleared
    started = time.perf_counter()
    yield
    seconds = time.perf_counter() - started
    entered = [index for index, mark in enumerate(_marks[:]) if mark]
    # A recording that is interrupted keeps what it has.
    _recorded.write(f"{json.dumps([item.nodeid, seconds, entered])}\n")
    _recorded.flush()
