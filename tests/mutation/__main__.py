"""Faults put into the program one at a time: the tests must notice at least 85 % of them in each room.

The first use records which tests call which functions, which takes longer than `make test`; --map adds to it.
--guards removes the safeguards of guards.toml instead.
Exit 1 if a room is below the goal. To try the mutants of one line again: --line FILE:LINE
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import msgspec
from tests.mutation.call_records import MAX_TESTS, RECORDING, CallRecords, record_calls
from tests.mutation.fork_runner import PLAN_VARIABLE, Attempt, AttemptResult
from tests.mutation.guards import Guard, load_guards
from tests.mutation.instrumented_tree import copy_tree
from tests.mutation.mutants import Mutant, draw_mutants, find_callees
from tests.mutation.results import GOAL, RoomResult, load_results, save_result, write_report
from tests.mutation.rooms import ROOMS, ROOT, Room

MIN_TESTS = 10
MAX_DEEP_TESTS = 20
QUICK_SECONDS = 0.2
GUARD_SECONDS = 120.0


def print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument(
        "--map",
        nargs=argparse.REMAINDER,
        metavar="ARG",
        help="add to the record of which tests call which functions, and exit; arguments are for pytest;"
        " without them, record the files that are new or have changed",
    )
    parser.add_argument(
        "--room", choices=[room.name for room in ROOMS], action="append", help="only this room"
    )
    parser.add_argument("--count", type=int, default=300, help="mutants in all, the same number per room")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the draw; printed")
    parser.add_argument("--line", metavar="FILE:LINE", help="try every mutant of this line")
    parser.add_argument(
        "--seconds", type=float, default=40, help="of tests per mutant, as they take in the unchanged program"
    )
    parser.add_argument(
        "--retry",
        action="store_true",
        help="try the last survivors again, with more --seconds",
    )
    parser.add_argument(
        "--guards",
        nargs="?",
        const="",
        metavar="WORDS",
        help="remove each safeguard of guards.toml, or those whose names contain the words, and exit",
    )
    parser.add_argument("--report", metavar="FILE", help="write the last results there, and exit")
    return parser.parse_args()


class MutationRun:
    """Tries mutants in a copy of the tree."""

    def __init__(self, copy: Path, records: CallRecords, most_seconds: float) -> None:
        self.copy = copy
        self.records = records
        self.most_seconds = most_seconds
        self._variations: dict[str, list[str]] = {}
        for test in records.seconds:
            self._variations.setdefault(test.partition("[")[0], []).append(test)
        self._tests_by_name: dict[str, list[list[str]]] = {}
        """Tests of each function with that last part of its name, in any module."""
        for key, tests in records.calls.items():
            self._tests_by_name.setdefault(key.rpartition(":")[2].rpartition(".")[2], []).append(tests)

    def choose_tests(self, mutant: Mutant) -> dict[str, float]:
        """Choose the tests to run for a mutant, quickest first, with their seconds.

        One variation of each test, then a second one, and so on; tests that call few other functions first.
        """
        records = self.records
        tests = records.calls.get(f"{mutant.module}:{mutant.function}", [])
        # Only some variations are recorded, and another one may be the one that notices.
        names = dict.fromkeys(test.partition("[")[0] for test in sorted(tests, key=self._rank))
        variations = {name: sorted(self._variations.get(name, ()), key=self._rank) for name in names}
        turns = [test for each in zip_longest(*variations.values()) for test in each if test is not None]
        chosen = self._choose_deep_tests(mutant) | self._choose_module_tests(mutant)
        # The variations of a quick test must not give way to a few slow tests.
        for is_quick in (True, False):
            left, most = self.most_seconds, len(chosen) + MAX_TESTS // 2
            for test in turns:
                seconds = records.get_seconds(test)
                if (seconds < QUICK_SECONDS) is not is_quick or len(chosen) >= most:
                    continue
                if len(chosen) < MIN_TESTS or seconds <= left:
                    chosen[test] = seconds
                    left -= seconds
        return dict(sorted(chosen.items(), key=lambda pair: pair[1]))

    def _choose_deep_tests(self, mutant: Mutant) -> dict[str, float]:
        """Choose the tests that reach the functions that the changed one calls, the rarest ones first.

        Hundreds of tests may enter the function and leave it before the changed line.
        """
        callees = find_callees((self.copy / mutant.module).read_bytes(), mutant.line)
        weights: dict[str, float] = {}
        for name in callees:
            for tests in self._tests_by_name.get(name, ()):
                for test in tests:
                    weights[test] = weights.get(test, 0.0) + 1 / len(tests)
        chosen: dict[str, float] = {}
        left = self.most_seconds
        for test in sorted(weights, key=lambda test: (-weights[test], self._rank(test))):
            seconds = self.records.get_seconds(test)
            if seconds <= left:
                chosen[test] = seconds
                left -= seconds
            if len(chosen) == MAX_DEEP_TESTS:
                break
        return chosen

    def _choose_module_tests(self, mutant: Mutant) -> dict[str, float]:
        """Choose those of the function's tests that call the most functions of its module.

        Hundreds of other tests may call the function on their way to something else.
        """
        counts: dict[str, int] = {}
        for key, tests in self.records.calls.items():
            if key.startswith(f"{mutant.module}:"):
                for test in tests:
                    counts[test] = counts.get(test, 0) + 1
        chosen: dict[str, float] = {}
        left = self.most_seconds
        tests = self.records.calls.get(f"{mutant.module}:{mutant.function}", [])
        for test in sorted(tests, key=lambda test: (-counts[test], self._rank(test))):
            seconds = self.records.get_seconds(test)
            if seconds <= left:
                chosen[test] = seconds
                left -= seconds
            if len(chosen) == MAX_DEEP_TESTS:
                break
        return chosen

    def _rank(self, test: str) -> float:
        """Return a small number for a quick test of few functions."""
        return self.records.get_seconds(test) * (20 + self.records.counts.get(test, 500))

    def try_mutants(self, mutants: list[Mutant]) -> Iterator[tuple[Mutant, AttemptResult]]:
        """Try mutants in forks of one process that collects their tests, or else in new interpreters."""
        attempts = [Attempt(mutant, self.choose_tests(mutant)) for mutant in mutants]
        tested = [attempt for attempt in attempts if attempt.tests]
        yield from ((attempt.mutant, AttemptResult("untested")) for attempt in attempts if not attempt.tests)
        rest = []
        for attempt, result in zip(tested, self._iter_forked(tested), strict=True):
            if result.outcome == "fresh":
                rest.append(attempt)
            else:
                yield attempt.mutant, result
        yield from ((attempt.mutant, self._try_in_new_interpreter(attempt)) for attempt in rest)

    def try_without(self, guard: Guard) -> AttemptResult:
        """Run the tests of a safeguard without it. A test that fails with it, too, does not count."""
        mutant = guard.to_mutant(self.copy)
        found = self._try_in_new_interpreter(Attempt(mutant, dict.fromkeys(guard.tests, GUARD_SECONDS)))
        if found.outcome != "killed":
            return found
        unchanged = msgspec.structs.replace(mutant, after=mutant.before)
        again = self._try_in_new_interpreter(Attempt(unchanged, {found.test: GUARD_SECONDS}))
        return found if again.outcome == "survived" else msgspec.structs.replace(found, outcome="unclear")

    def _iter_forked(self, attempts: list[Attempt]) -> Iterator[AttemptResult]:
        plan = self.copy.parent / "plan.json"
        plan.write_bytes(msgspec.json.encode(attempts))
        results = plan.with_suffix(".results")
        results.write_bytes(b"")
        files = sorted({test.partition("::")[0] for attempt in attempts for test in attempt.tests})
        options = ["-s", "-p", "tests.mutation.fork_runner", "--basetemp", str(self.copy.parent / "t")]
        process = self._start_pytest([*options, *files], {PLAN_VARIABLE: str(plan)})
        try:
            with results.open("rb") as lines:
                pending = b""
                for _ in attempts:
                    while not pending.endswith(b"\n"):
                        read = lines.readline()
                        pending += read
                        if not read:
                            if process.poll() is not None:
                                log = (self.copy.parent / "pytest.log").read_text(errors="replace")
                                raise SystemExit(f"The tests ended too early:\n{log[-3000:]}")
                            time.sleep(0.1)
                    yield msgspec.json.decode(pending, type=AttemptResult)
                    pending = b""
        finally:
            _end_group(process)

    def _start_pytest(
        self, arguments: list[str], variables: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=no"]
        with (self.copy.parent / "pytest.log").open("wb") as log:
            return subprocess.Popen(
                [*command, *arguments],
                cwd=self.copy,
                env={**os.environ, **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _try_in_new_interpreter(self, attempt: Attempt) -> AttemptResult:
        path = self.copy / attempt.mutant.module
        original = path.read_bytes()
        started = time.monotonic()
        path.write_bytes(attempt.mutant.apply(original))
        # Bytecode files are found by time in seconds and size.
        os.utime(path, (attempt.mutant.start, attempt.mutant.start))
        process = self._start_pytest(["-x", *attempt.tests])
        try:
            code: int | None = process.wait(30 + 4 * sum(attempt.tests.values()))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end_group(process)
            path.write_bytes(original)
        seconds = time.monotonic() - started
        outcome = "timeout" if code is None else "killed" if code else "survived"
        test = _get_failed_test((self.copy.parent / "pytest.log").read_text(errors="replace")) if code else ""
        return AttemptResult(outcome, test, seconds, len(attempt.tests))


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started and did not end, which is in its session's group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _get_failed_test(output: str) -> str:
    for line in output.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.partition(" ")[2].partition(" - ")[0]
    return output.strip().splitlines()[-1][:100] if output.strip() else ""


def draw_by_room(arguments: argparse.Namespace) -> list[tuple[Room, list[Mutant]]]:
    if arguments.line:
        module, _, line = arguments.line.rpartition(":")
        room = next((room for room in ROOMS if Path(module) in room.list_modules()), ROOMS[0])
        found = draw_mutants(ROOT, [Path(module)], 10_000, 0)
        return [(room, [mutant for mutant in found if mutant.line == int(line)])]
    rooms = [room for room in ROOMS if not arguments.room or room.name in arguments.room]
    if arguments.retry:
        return [(room, list_last_survivors(room)) for room in rooms]
    each = -(-arguments.count // len(rooms))
    return [(room, draw_mutants(ROOT, room.list_modules(), each, arguments.seed)) for room in rooms]


def list_last_survivors(room: Room) -> list[Mutant]:
    result = load_results().get(room.name)
    survivors = set() if result is None else set(result.list_survivors())
    return [
        mutant for mutant in draw_mutants(ROOT, room.list_modules(), 1 << 30, 0) if mutant.key in survivors
    ]


def try_guards(words: str) -> int:
    """Remove safeguards one at a time. Return 1 if no test fails without one of them."""
    lost = 0
    with tempfile.TemporaryDirectory(prefix="shoal-guards-") as directory:
        copy = Path(directory) / "tree"
        copy_tree(copy)
        run = MutationRun(copy, CallRecords(), 0)
        for guard in load_guards():
            if words in guard.name:
                verdict = run.try_without(guard)
                lost += verdict.outcome not in {"killed", "timeout"}
                print_line(f"{verdict.outcome} {verdict.seconds:5.1f} s  {guard.name}  {verdict.test}")
    return 1 if lost else 0


def main() -> int:
    arguments = parse_arguments()
    if arguments.guards is not None:
        return try_guards(arguments.guards)
    if arguments.map is not None:
        return record_calls(arguments.map)
    if arguments.report:
        write_report(Path(arguments.report))
        return 0
    if not RECORDING.exists() and (code := record_calls([])):
        return code
    print_line(f"seed {arguments.seed}")
    below = 0
    with tempfile.TemporaryDirectory(prefix="shoal-mutants-") as directory:
        copy = Path(directory) / "tree"
        copy_tree(copy)
        run = MutationRun(copy, CallRecords.load(), arguments.seconds)
        for room, mutants in draw_by_room(arguments):
            if arguments.retry and not mutants:
                continue
            result = load_results()[room.name] if arguments.retry else RoomResult(room.name, arguments.seed)
            result.seconds, result.recorded = arguments.seconds, len(run.records.seconds)
            for mutant, verdict in run.try_mutants(mutants):
                result.mutants[mutant.key] = verdict.outcome
                took = f"{verdict.seconds:5.1f} s of {verdict.tests} tests"
                print_line(f"{room.name} {verdict.outcome} {took}  {mutant.describe()}  {verdict.test}")
                if not arguments.line:
                    save_result(result)
            below += result.share < GOAL
            print_line(result.describe())
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
