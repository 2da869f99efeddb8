"""Boards and the processes that share them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from shoal.core.clock import SystemClock
from shoal.core.ids import Ids
from shoal.core.tasks import Draft, Task
from shoal.stores.files.board import FileTaskBoard

PATIENCE = 60.0


class Other:
    """Another process on the same board; `read_reply` returns its next reply."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def heard(self) -> Any:
        async with asyncio.timeout(PATIENCE):
            line = await self.process.stdout.readline()
        return json.loads(line) if line else None

    def go(self) -> None:
        self.process.stdin.write(b"go\n")

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def other(act: str, home: Path, *more: object) -> AsyncIterator[Other]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("board_process.py")),
        act,
        str(home),
        *map(str, more),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 22,
    )
    try:
        yield Other(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def board_at(home: Path, name: str = "roof", **how: Any) -> AsyncIterator[FileTaskBoard]:
    board = FileTaskBoard(home, name, **{"clock": SystemClock(), "ids": Ids(), **how})
    try:
        yield board
    finally:
        await board.aclose()


async def filled(board: FileTaskBoard, count: int) -> list[Task]:
    return [await board.create(Draft(subject=f"task {n}", description="")) for n in range(1, count + 1)]


def file_of(home: Path, task: str | int, board: str = "roof") -> Any:
    return json.loads((home / "tasks" / board / f"{task}.json").read_bytes())
