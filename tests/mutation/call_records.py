"""The recording of which tests call which functions: made in parts, kept in one file."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from tests.mutation.instrumented_tree import FUNCTIONS, copy_tree, instrument_tree
from tests.mutation.rooms import ROOT

VARIABLE = "MUTATION_CALL_MAP"
"""Directory for the marks and the recordings: one file per pytest process."""
RECORDING = ROOT / ".mutation" / "calls.json"
MAX_TESTS = 600
QUICK_TESTS = ("-m", "not slow and not exhaustive")
DEFAULT_SECONDS = 1.0
_ENDED_CODES = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
KEPT = 100
"""Tests kept per function: this many of the quickest and this many of the most specific."""
KEPT_VARIATIONS = 10
"""Variations of one test among these: they differ in their data, and often not in what they notice."""


class RecordedTest(Struct, frozen=True):
    """One test that was run."""

    name: str
    seconds: float
    count: int
    """Number of functions that it called."""


class CallRecords:
    """Which tests call which functions, how long each test takes and how many functions it calls."""

    def __init__(self, recorded: dict[str, Any] | None = None) -> None:
        recorded = recorded or {}
        self.calls: dict[str, list[str]] = recorded.get("calls", {})
        self.seconds: dict[str, float] = recorded.get("seconds", {})
        self.counts: dict[str, int] = recorded.get("counts", {})
        self.digests: dict[str, str] = recorded.get("digests", {})
        """Of the recorded test files."""

    @classmethod
    def load(cls) -> CallRecords:
        records = cls(json.loads(RECORDING.read_bytes()) if RECORDING.exists() else None)
        files = {test.partition("::")[0] for test in records.seconds}
        records._forget_files({file for file in files if not (ROOT / file).exists()})
        return records

    def _forget_files(self, files: set[str]) -> None:
        """Forget the tests of files that were removed or renamed since."""
        if not files:
            return
        gone = {test for test in self.seconds if test.partition("::")[0] in files}
        self.calls = {key: [test for test in tests if test not in gone] for key, tests in self.calls.items()}
        for test in gone:
            del self.seconds[test]
            self.counts.pop(test, None)
        for file in files:
            self.digests.pop(file, None)

    def list_unrecorded_files(self) -> list[str]:
        """List the test files that were never recorded, or have changed since."""
        files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
        return [file for file in files if self.digests.get(file) != compute_digest(ROOT / file)]

    def save(self) -> None:
        RECORDING.parent.mkdir(exist_ok=True)
        content = {
            "calls": self.calls,
            "seconds": self.seconds,
            "counts": self.counts,
            "digests": self.digests,
        }
        partial = RECORDING.with_suffix(".new")
        partial.write_text(json.dumps(content))
        partial.replace(RECORDING)

    def get_seconds(self, test: str) -> float:
        return self.seconds.get(test, DEFAULT_SECONDS)

    def add(self, later: CallRecords) -> None:
        """Add a later recording; it replaces what is known of its tests."""
        repeated = later.seconds.keys() & self.seconds.keys()
        if repeated:
            for key, tests in self.calls.items():
                self.calls[key] = [test for test in tests if test not in repeated]
        for key, tests in later.calls.items():
            known = dict.fromkeys((*self.calls.get(key, ()), *tests))
            self.calls[key] = list(known)
        self.seconds |= later.seconds
        self.counts |= later.counts
        self.digests |= later.digests


def record_calls(arguments: list[str]) -> int:
    """Run tests in an instrumented copy of the tree, and add what they call to the recording.

    Without arguments: the files whose tests were never recorded, or have changed since.
    """
    records = CallRecords.load()
    arguments = arguments or [*QUICK_TESTS, *records.list_unrecorded_files()]
    if arguments == [*QUICK_TESTS]:
        sys.stdout.write("The tests are recorded as they are.\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="shoal-calls-") as name:
        directory = Path(name)
        copy = directory / "tree"
        copy_tree(copy)
        instrument_tree(copy, directory)
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
        process = subprocess.Popen(
            [*command, "-n", "auto", "-p", "tests.mutation.call_map", *arguments],
            cwd=copy,
            env={**os.environ, VARIABLE: name},
        )
        try:
            process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
        later = _read_calls(directory)
    if not later.seconds:
        sys.stdout.write("No test was recorded.\n")
        return 1
    if process.returncode in _ENDED_CODES:
        files = {test.partition("::")[0] for test in later.seconds}
        later.digests = {file: compute_digest(ROOT / file) for file in files}
    records.add(later)
    records.save()
    sys.stdout.write(f"{len(records.calls)} functions are called by {len(records.seconds)} tests.\n")
    return 0


def compute_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _read_calls(directory: Path) -> CallRecords:
    """Read what the workers recorded: one test per line."""
    functions: list[str] = json.loads((directory / FUNCTIONS).read_bytes())
    tests: list[RecordedTest] = []
    callers: dict[str, list[int]] = {}
    for path in sorted(directory.glob("*.calls")):
        for line in path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                continue
            name, seconds, entered = json.loads(line)
            keys = {functions[index] for index in entered}
            for key in keys:
                callers.setdefault(key, []).append(len(tests))
            tests.append(RecordedTest(name, seconds, len(keys)))
    return CallRecords(
        {
            "calls": {key: _choose(tests, indexes) for key, indexes in callers.items()},
            "seconds": {test.name: test.seconds for test in tests},
            "counts": {test.name: test.count for test in tests},
        }
    )


def _choose(tests: list[RecordedTest], indexes: list[int]) -> list[str]:
    called = [tests[index] for index in indexes]
    quick = sorted(called, key=lambda test: test.seconds)
    specific = sorted(called, key=lambda test: (test.count, test.seconds))
    return list(dict.fromkeys((*_keep_different(specific), *_keep_different(quick))))


def _keep_different(tests: list[RecordedTest]) -> list[str]:
    kept: list[str] = []
    counts: dict[str, int] = {}
    for test in tests:
        name = test.name.partition("[")[0]
        counts[name] = counts.get(name, 0) + 1
        if counts[name] <= KEPT_VARIATIONS:
            kept.append(test.name)
    return kept[:KEPT]
