"""The recording of which tests call which functions: made in parts, kept in one file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.mutation.rooms import ROOT

VARIABLE = "MUTATION_CALL_MAP"
"""Directory for the recordings: one file per pytest process."""
RECORDING = ROOT / ".mutation" / "calls.json"
MAX_TESTS = 600
DEFAULT_SECONDS = 1.0


class CallRecords:
    """Which tests call which functions, how long each test takes and how many functions it calls."""

    def __init__(self, recorded: dict[str, Any] | None = None) -> None:
        recorded = recorded or {}
        self.calls: dict[str, list[str]] = recorded.get("calls", {})
        self.seconds: dict[str, float] = recorded.get("seconds", {})
        self.counts: dict[str, int] = recorded.get("counts", {})

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

    def save(self) -> None:
        RECORDING.parent.mkdir(exist_ok=True)
        content = {"calls": self.calls, "seconds": self.seconds, "counts": self.counts}
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


def record_calls(arguments: list[str]) -> int:
    """Run tests with the plugin that records calls, and add the result to the recording."""
    later = CallRecords()
    with tempfile.TemporaryDirectory() as directory:
        environment = {
            **os.environ,
            VARIABLE: directory,
            "MUTATION_ROOT": str(ROOT),
            "TESTS_PYTHONPATH": str(Path(__file__).parent / "preload"),
        }
        command = [sys.executable, "-m", "pytest", "-n", "auto", "-q", "-p", "tests.mutation.call_map"]
        subprocess.run([*command, *arguments], cwd=ROOT, env=environment, check=False)
        for path in sorted(Path(directory).glob("*.json")):
            later.add(CallRecords(json.loads(path.read_bytes())))
        children = CallRecords({"calls": _read_child_calls(Path(directory) / "children.txt")})
        later.add(children)
    if not later.seconds:
        sys.stdout.write("No test was recorded.\n")
        return 1
    records = CallRecords.load()
    records.add(later)
    records.save()
    sys.stdout.write(f"{len(records.calls)} functions are called by {len(records.seconds)} tests.\n")
    return 0


def _read_child_calls(path: Path) -> dict[str, list[str]]:
    """Read the calls of the programs that tests started."""
    calls: dict[str, dict[str, None]] = {}
    if path.exists():
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, tab, test = line.rstrip("\n").partition("\t")
                if tab:
                    calls.setdefault(key, {})[test] = None
    return {key: list(tests)[:MAX_TESTS] for key, tests in calls.items()}
