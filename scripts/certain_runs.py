"""Runs `make test-certain` many times, each in another order, and lists the result of each run.

Usage: python3 scripts/certain_runs.py [--runs 10] [--seed 4711] [--busy 2] [--keep] [ARGUMENTS OF PYTEST]
"""

from __future__ import annotations

import argparse
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "certain-runs.md"
PAGE_TITLE = """# Repeated runs of the tests

`make certain-runs ARGS=--keep` adds a row to this page for each run of `make test-certain`: the commit, the
seed of the order, the busy loops that ran at the same time, and the result. A `+` marks a commit with
changes. No failed test is retried, and a failed run does not end the others.
"""
COLUMNS = ("run", "date", "commit", "seed", "busy loops", "seconds", "passed", "failed")
# It ends with this process, even if this process is killed: then its standard input is closed.
BUSY_LOOP = """
import os, threading
threading.Thread(target=lambda: os._exit(len(os.read(0, 1))), daemon=True).start()
while True: pass
"""
_FAILED = re.compile(r"^(?:FAILED|ERROR) ([^\s:]+(?:::\S+)?)", re.MULTILINE)
_PASSED = re.compile(r"(\d+) passed")


@dataclass(frozen=True)
class RunResult:
    number: int
    commit: str
    seed: int
    busy: int
    seconds: float
    passed: int
    failed: tuple[str, ...]

    def format_row(self) -> str:
        date = datetime.now(UTC).date().isoformat()
        failed = ", ".join(f"`{name}`" for name in self.failed) or "none"
        cells = (self.number, date, self.commit, self.seed, self.busy, f"{self.seconds:.0f}", self.passed)
        return f"| {' | '.join(map(str, cells))} | {failed} |"


def format_head() -> str:
    return f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"


@contextmanager
def run_busy_loops(count: int) -> Iterator[None]:
    """Keep so many cores busy, and end the loops afterward."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP], stdin=subprocess.PIPE) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_once(number: int, commit: str, seed: int, busy: int, arguments: list[str]) -> RunResult:
    """Run the tests once. The output of a failed run is kept in a file, whose name is printed."""
    options = shlex.join(["--shuffle", str(seed), "--color=no", *arguments])
    since = time.monotonic()
    with run_busy_loops(busy):
        done = subprocess.run(
            ["make", "--no-print-directory", "test-certain", f"ARGS={options.replace('$', '$$')}"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    seconds = time.monotonic() - since
    failed = tuple(sorted(set(_FAILED.findall(done.stdout))))
    if done.returncode != 0:
        with tempfile.NamedTemporaryFile("w", prefix="certain-run-", suffix=".txt", delete=False) as output:
            output.write(done.stdout)
        sys.stderr.write(f"Run {number} failed. Its output is in {output.name}.\n")
        failed = failed or (f"the run ended with status {done.returncode}",)
    passed = _PASSED.findall(done.stdout)
    return RunResult(number, commit, seed, busy, seconds, int(passed[-1]) if passed else 0, failed)


def describe_commit() -> str:
    commit = run_git("rev-parse", "--short", "HEAD")
    changes = run_git("status", "--porcelain", "--", ".", f":!{PAGE.relative_to(ROOT)}")
    return f"{commit}{'+' if changes else ''}"


def run_git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def keep_row(row: str) -> None:
    if not PAGE.exists():
        PAGE.write_text(f"{PAGE_TITLE}\n{format_head()}\n", encoding="utf-8")
    with PAGE.open("a", encoding="utf-8") as page:
        page.write(f"{row}\n")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="number of runs (10)")
    parser.add_argument("--seed", type=int, help="order of the first run; each other run has the next number")
    parser.add_argument("--busy", type=int, default=0, help="busy loops during each run (0)")
    parser.add_argument("--keep", action="store_true", help="add the results to docs/certain-runs.md")
    options, arguments = parser.parse_known_args(argv)
    if options.keep and arguments:
        parser.error(f"--keep is only for runs of all tests, without {shlex.join(arguments)}")
    # Ended from outside, it still ends the busy loops.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    first = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    commit = describe_commit()
    print(format_head(), flush=True)
    failed_runs = 0
    for number in range(1, options.runs + 1):
        result = run_once(number, commit, first + number - 1, options.busy, arguments)
        print(result.format_row(), flush=True)
        failed_runs += bool(result.failed)
        if options.keep:
            keep_row(result.format_row())
    print(f"\n{options.runs - failed_runs} of {options.runs} runs passed.")
    return 1 if failed_runs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
