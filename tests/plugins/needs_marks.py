"""The `needs` mark: skips a test whose program or module is missing and reports the reason at the end."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from functools import cache

import pytest

import tier_marks
from setup_env import PROGRAMS, find_program

LINUX_ONLY = ("bwrap",)
"""Programs that Shoal does not use on other systems, even if they are installed."""
# Installation is not enough for these: a container may forbid what they do.
PROBE_COMMANDS = {
    "bwrap": ("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--unshare-pid", "true"),
    "strace": ("strace", "-o", "/dev/null", "true"),
}


@cache
def explain_missing(name: str) -> str | None:
    """Return why a test that needs `name` cannot run here, or None if it can."""
    if name in LINUX_ONLY and sys.platform != "linux":
        return f"Shoal uses {name} only on Linux"
    program = find_program(name) if name in PROGRAMS else shutil.which(name)
    if program is None and name in PROGRAMS:
        return f"the program {name} is not installed (Debian package {PROGRAMS[name]})"
    if program is None and importlib.util.find_spec(name) is None:
        return f"there is no program and no Python module {name}"
    if name in PROBE_COMMANDS:
        tried = subprocess.run(PROBE_COMMANDS[name], capture_output=True, text=True, check=False, timeout=20)
        if tried.returncode != 0:
            return f"the program {name} is not allowed to work here: {tried.stderr.strip()}"
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            if reason := explain_missing(name):
                pytest.skip(reason)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report skipped tests by name, and the number of those that belong to the other tier."""
    by_reason: dict[str, list[str]] = {}
    for report in terminalreporter.getreports("skipped"):
        by_reason.setdefault(get_skip_reason(report), []).append(report.nodeid)
    if not by_reason:
        return
    terminalreporter.section("not run, and why")
    for reason, names in sorted(by_reason.items()):
        if reason == tier_marks.SKIP_REASON:
            terminalreporter.line(f"{reason}: {len(names)} tests")
            continue
        terminalreporter.line(f"{reason}:")
        for name in sorted(names):
            terminalreporter.line(f"    {name}")


def get_skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return "no reason given"
