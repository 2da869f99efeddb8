"""Runs Shoal commands as a person does at another terminal, in the home of a round."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def shoal(place: Path, *words: str, seconds: float) -> str:
    """Run a command; return how it failed or that it timed out, else an empty string."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "shoal", *words],
            cwd=place / "project",
            env={
                **os.environ,
                "PYTHONPATH": f"{_ROOT}/src",
                "HOME": str(place),
                "TMPDIR": str(place / "tmp"),
                "SHOAL_HOME": str(place / "home"),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"shoal {' '.join(words)} took longer than {seconds:g} s"
    if done.returncode:
        return f"shoal {' '.join(words)} ended with {done.returncode}: {done.stderr or done.stdout}"
    return ""
