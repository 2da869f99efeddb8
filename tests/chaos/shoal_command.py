"""Runs Shoal commands as a person does at another terminal, in the home of a round."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def run_shoal(directory: Path, *arguments: str, timeout: float) -> str:
    """Run a command; return how it failed or that it timed out, else an empty string."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "shoal", *arguments],
            cwd=directory / "project",
            env={
                **os.environ,
                "PYTHONPATH": f"{_ROOT}/src",
                "HOME": str(directory),
                "TMPDIR": str(directory / "tmp"),
                "SHOAL_HOME": str(directory / "home"),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"shoal {' '.join(arguments)} took longer than {timeout:g} s"
    if done.returncode:
        return f"shoal {' '.join(arguments)} ended with {done.returncode}: {done.stderr or done.stdout}"
    return ""
