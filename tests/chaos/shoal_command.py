"""Runs Shoal commands as a person does at another terminal, in the home of a round."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.chaos.process_table import ProcessTimer

_ROOT = Path(__file__).parents[2]


def run_shoal(directory: Path, *arguments: str, timeout: float) -> str:
    """Run a command; return how it failed or where it was when the time was up, else an empty string."""
    timer = ProcessTimer(timeout)
    with subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-m", "shoal", *arguments],
        cwd=directory / "project",
        env={
            **os.environ,
            "PYTHONPATH": f"{_ROOT}/src",
            "HOME": str(directory),
            "TMPDIR": str(directory / "tmp"),
            "SHOAL_HOME": str(directory / "home"),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while timer.get_left() > 0:
            with suppress(subprocess.TimeoutExpired):
                output, errors = process.communicate(timeout=1)
                break
        else:
            process.send_signal(signal.SIGABRT)  # prints the stack
            _, errors = process.communicate()
            return f"shoal {' '.join(arguments)} still ran after {timer.describe()}: {errors[-2000:]}"
    if process.returncode:
        return f"shoal {' '.join(arguments)} ended with {process.returncode}: {errors or output}"
    return ""
