"""Faults put into the program one at a time: the tests must notice at least 85 % of them in each room.

The first use records which tests call which functions (`--map`), which takes longer than `make test`.
Exit 1 if a room is below the goal. To try the mutants of one line again: --line FILE:LINE
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from itertools import zip_longest
from pathlib import Path

from msgspec import Struct
from tests.mutation.call_map import VARIABLE
from tests.mutation.mutants import Mutant, draw_mutants
from tests.mutation.rooms import ROOMS, ROOT, Room

GOAL = 0.85
RECORDINGS = ROOT / ".mutation"
MAX_TESTS = 150
COPIED = ("src", "tests", "scripts", "bench", "docs", "examples", "web/dev", "pyproject.toml", "README.md")


class Verdict(Struct, frozen=True):
    """What the tests said about one mutant."""

    mutant: Mutant
    outcome: str
    """killed, survived, timeout or untested"""
    test: str = ""
    seconds: float = 0.0


def print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument(
        "--map",
        nargs=argparse.REMAINDER,
        metavar="ARG",
        help="record again which tests call which functions, and exit; arguments are for pytest",
    )
    parser.add_argument(
        "--room", choices=[room.name for room in ROOMS], action="append", help="only this room"
    )
    parser.add_argument("--count", type=int, default=300, help="mutants in all, the same number per room")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the draw; printed")
    parser.add_argument("--line", metavar="FILE:LINE", help="try every mutant of this line")
    parser.add_argument("--json", metavar="FILE", help="write the verdicts there")
    return parser.parse_args()


def record_calls(arguments: list[str]) -> int:
    """Run the tests with the plugin that records calls."""
    with tempfile.TemporaryDirectory() as directory:
        environment = {
            **os.environ,
            VARIABLE: directory,
            "MUTATION_ROOT": str(ROOT),
            "TESTS_PYTHONPATH": str(Path(__file__).parent / "preload"),
        }
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "auto",
            "-q",
            "-p",
            "tests.mutation.call_map",
            *arguments,
        ]
        subprocess.run(command, cwd=ROOT, env=environment, check=False)
        calls: dict[str, list[str]] = {}
        seconds: dict[str, float] = {}
        for path in sorted(Path(directory).glob("*.json")):
            recorded = json.loads(path.read_bytes())
            seconds.update(recorded["seconds"])
            for key, tests in recorded["calls"].items():
                known = calls.setdefault(key, [])
                known.extend(test for test in tests if test not in known)
        for key, tests in read_child_calls(Path(directory) / "children.txt").items():
            known = calls.setdefault(key, [])
            known.extend(test for test in tests[:MAX_TESTS] if test not in known)
    if not calls:
        print_line("No test was recorded.")
        return 1
    RECORDINGS.mkdir(exist_ok=True)
    (RECORDINGS / "calls.json").write_text(json.dumps({"calls": calls, "seconds": seconds}))
    print_line(f"{len(calls)} functions are called by {len(seconds)} tests.")
    return 0


def read_child_calls(path: Path) -> dict[str, list[str]]:
    """Read the calls of the programs that tests started."""
    calls: dict[str, dict[str, None]] = {}
    if path.exists():
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, tab, test = line.rstrip("\n").partition("\t")
                if tab:
                    calls.setdefault(key, {})[test] = None
    return {key: list(tests) for key, tests in calls.items()}


class MutationRun:
    """Tries mutants in a copy of the tree."""

    def __init__(self, copy: Path, recorded: dict[str, dict[str, object]]) -> None:
        self.copy = copy
        self.calls: dict[str, list[str]] = recorded["calls"]  # type: ignore[assignment]
        self.seconds: dict[str, float] = recorded["seconds"]  # type: ignore[assignment]

    def choose_tests(self, mutant: Mutant) -> list[str]:
        """Choose the tests to run for a mutant: one variation of each test, then a second one, and so on.

        The quickest run first.
        """
        tests = self.calls.get(f"{mutant.module}:{mutant.function}", [])
        variations: dict[str, list[str]] = {}
        for test in sorted(tests, key=self._get_seconds):
            variations.setdefault(test.partition("[")[0], []).append(test)
        chosen = [test for each in zip_longest(*variations.values()) for test in each if test is not None]
        return sorted(chosen[:MAX_TESTS], key=self._get_seconds)

    def _get_seconds(self, test: str) -> float:
        return self.seconds.get(test, 1.0)

    def try_mutant(self, mutant: Mutant) -> Verdict:
        tests = self.choose_tests(mutant)
        if not tests:
            return Verdict(mutant, "untested")
        path = self.copy / mutant.module
        original = path.read_bytes()
        started = time.monotonic()
        path.write_bytes(mutant.apply(original))
        try:
            code, output = self._run_tests(tests)
        finally:
            path.write_bytes(original)
        seconds = time.monotonic() - started
        if code is None:
            return Verdict(mutant, "timeout", seconds=seconds)
        if code == 0:
            return Verdict(mutant, "survived", seconds=seconds)
        return Verdict(mutant, "killed", _get_failed_test(output), seconds)

    def _run_tests(self, tests: list[str]) -> tuple[int | None, str]:
        """Run tests until one fails; without an exit code they took too long."""
        limit = 30 + 4 * sum(map(self._get_seconds, tests))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "--no-header",
            "-p",
            "no:cacheprovider",
            "--tb=no",
        ]
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [*command, *tests], cwd=self.copy, stdout=output, stderr=output, start_new_session=True
            )
            try:
                code: int | None = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                # What a broken program started and did not end is in its session's group.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            return code, output.read().decode(errors="replace")


def _get_failed_test(output: str) -> str:
    for line in output.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split()[1]
    return output.strip().splitlines()[-1][:100] if output.strip() else ""


def copy_tree(target: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, target / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules")
            )
        elif source.exists():
            shutil.copy2(source, target / name)


def draw_by_room(arguments: argparse.Namespace) -> list[tuple[Room, list[Mutant]]]:
    if arguments.line:
        module, _, line = arguments.line.rpartition(":")
        room = next((room for room in ROOMS if Path(module) in room.list_modules()), ROOMS[0])
        found = draw_mutants(ROOT, [Path(module)], 10_000, 0)
        return [(room, [mutant for mutant in found if mutant.line == int(line)])]
    rooms = [room for room in ROOMS if not arguments.room or room.name in arguments.room]
    each = -(-arguments.count // len(rooms))
    return [(room, draw_mutants(ROOT, room.list_modules(), each, arguments.seed)) for room in rooms]


def main() -> int:
    arguments = parse_arguments()
    if arguments.map is not None:
        return record_calls(arguments.map)
    if not (RECORDINGS / "calls.json").exists() and (code := record_calls([])):
        return code
    recorded = json.loads((RECORDINGS / "calls.json").read_bytes())
    print_line(f"seed {arguments.seed}")
    verdicts: list[tuple[str, Verdict]] = []
    with tempfile.TemporaryDirectory(prefix="shoal-mutants-") as directory:
        copy_tree(Path(directory))
        run = MutationRun(Path(directory), recorded)
        for room, mutants in draw_by_room(arguments):
            for mutant in mutants:
                verdict = run.try_mutant(mutant)
                verdicts.append((room.name, verdict))
                print_line(
                    f"{room.name:12} {verdict.outcome:9} {verdict.seconds:5.1f} s  {mutant.describe()}"
                )
    if arguments.json:
        rows = [
            {
                "room": room,
                "outcome": verdict.outcome,
                "mutant": verdict.mutant.describe(),
                "test": verdict.test,
            }
            for room, verdict in verdicts
        ]
        Path(arguments.json).write_text(json.dumps(rows, indent=1))
    return print_summary(verdicts)


def print_summary(verdicts: list[tuple[str, Verdict]]) -> int:
    below = 0
    for name in dict.fromkeys(room for room, _ in verdicts):
        outcomes = [verdict.outcome for room, verdict in verdicts if room == name]
        killed = sum(outcome in {"killed", "timeout"} for outcome in outcomes)
        share = killed / len(outcomes)
        below += share < GOAL
        print_line(f"{name:12} {killed} of {len(outcomes)} noticed ({share:.0%})")
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
