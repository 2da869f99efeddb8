"""A tool bench: a real workspace in a temporary directory and real processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tool_bench import ToolBench


@pytest.fixture
def bench(tmp_path: Path) -> ToolBench:
    return ToolBench(tmp_path)


@pytest.fixture
def aged() -> Callable[[Path, int], None]:
    """Set a file's modification time, in seconds."""
    return lambda path, seconds: os.utime(path, (seconds, seconds))
