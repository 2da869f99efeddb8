"""Summary rows that both demos print: test results, cost, and the commands to type next."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.core.wording import count, dollars, seconds
from shoal.surfaces.terminal.paint import BOLD_GREEN, BOLD_RED, DIM
from shoal.surfaces.terminal.screen import Screen

if TYPE_CHECKING:
    from shoal.core.usage import Spent

PRICES = "  at invented prices: $3 and $15 per million tokens in and out\n"


class Tested(Struct, frozen=True, kw_only=True):
    passed: bool
    number: str


def tested(project: Path) -> Tested:
    from shoal.app.demo.harbour import TESTS

    tests = subprocess.run(TESTS, cwd=project, capture_output=True, check=False, text=True)
    return Tested(passed=tests.returncode == 0, number=tests.stderr.partition("Ran ")[2].split(" ")[0])


def tests_row(screen: Screen, tests: Tested, *, good: bool) -> None:
    if tests.passed and good:
        row(screen, "tests", f"all {tests.number} pass", BOLD_GREEN)
    else:
        row(
            screen, "tests", "pass, but not all went as it should" if tests.passed else "still fail", BOLD_RED
        )


def spent_words(spent: Spent, took: float | None = None) -> str:
    time = "" if took is None else seconds(took)
    return (
        f"{spent.requests:>8} {count(spent.usage.total_tokens):>8} {dollars(spent.usd):>8} {time:>8}".rstrip()
    )


def in_a_clone(*, absolute: bool = False) -> str | None:
    """Return the program as typed in a clone, where `make demo` runs one that is not on PATH; else None."""
    started = Path(sys.argv[0])
    if started.is_absolute() or started.name != "shoal" or len(started.parts) < 2:
        return None
    return str(started.absolute() if absolute else started)


def row(screen: Screen, name: str, text: str, style: str = "", remark: str = "") -> None:
    screen.write(f"{name:<9}", DIM)
    screen.write(text, style)
    screen.write(f"{remark}\n", DIM)
