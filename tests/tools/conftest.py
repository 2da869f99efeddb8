"""Fixtures of the tool tests: a workspace in a temporary directory, and real processes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from shell_workbench import ShellWorkbench, open_workbench
from tool_bench import ToolBench


@pytest.fixture
def tool_bench(tmp_path: Path) -> ToolBench:
    return ToolBench(tmp_path)


@pytest.fixture
async def workbench(tmp_path: Path) -> AsyncIterator[ShellWorkbench]:
    async with open_workbench(tmp_path) as opened:
        yield opened


@pytest.fixture
def set_file_age() -> Callable[[Path, int], None]:
    """Set a file's modification time, in seconds."""
    return lambda path, seconds: os.utime(path, (seconds, seconds))
