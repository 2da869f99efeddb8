"""Summary rows that both demos print: test results, cost, and the commands to type next."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.core.text.text_format import format_dollars, format_duration, format_token_count
from shoal.surfaces.terminal.screen import TerminalScreen
from shoal.surfaces.terminal.text_styles import BOLD_GREEN, BOLD_RED, DIM

if TYPE_CHECKING:
    from shoal.core.budgets.usage import UsageAndCostTotals

PRICES = "  at example prices: $3 per million input tokens, $15 per million output tokens\n"


class DemoProjectTestResult(Struct, frozen=True, kw_only=True):
    passed: bool
    number: str


def run_project_tests(project: Path) -> DemoProjectTestResult:
    from shoal.app.demo.demo_project import TEST_COMMAND

    tests = subprocess.run(TEST_COMMAND, cwd=project, capture_output=True, check=False, text=True)
    return DemoProjectTestResult(
        passed=tests.returncode == 0, number=tests.stderr.partition("Ran ")[2].split(" ")[0]
    )


def print_test_result_row(screen: TerminalScreen, tests: DemoProjectTestResult, *, good: bool) -> None:
    if tests.passed and good:
        print_demo_summary_row(screen, "tests", f"all {tests.number} pass", BOLD_GREEN)
    else:
        print_demo_summary_row(
            screen, "tests", "pass, but something else went wrong" if tests.passed else "still fail", BOLD_RED
        )


def format_usage_columns(spent: UsageAndCostTotals, duration: float | None = None) -> str:
    time = "" if duration is None else format_duration(duration)
    tokens = format_token_count(spent.usage.total_tokens)
    return f"{spent.requests:>8} {tokens:>8} {format_dollars(spent.usd):>8} {time:>8}".rstrip()


def find_shoal_command_in_clone(*, absolute: bool = False) -> str | None:
    """Return the program as typed in a clone, where `make demo` runs one that is not on PATH; else None."""
    program_path = Path(sys.argv[0])
    if program_path.is_absolute() or program_path.name != "shoal" or len(program_path.parts) < 2:
        return None
    return str(program_path.absolute() if absolute else program_path)


def print_demo_summary_row(
    screen: TerminalScreen, name: str, text: str, style: str = "", remark: str = ""
) -> None:
    screen.write(f"{name:<9}", DIM)
    screen.write(text, style)
    screen.write(f"{remark}\n", DIM)
