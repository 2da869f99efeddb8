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
from shoal.core.ids import IdGenerator
from shoal.core.teams.tasks import Task, TaskDraft
from shoal.stores.files.board.file_task_board import FileTaskBoard

TIMEOUT = 60.0


class BoardProcess:
    """Another process on the same board; `read_reply` returns its next reply."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def read_reply(self) -> Any:
        async with asyncio.timeout(TIMEOUT):
            line = await self.process.stdout.readline()
        return json.loads(line) if line else None

    def send_go(self) -> None:
        self.process.stdin.write(b"go\n")

    async def kill_process(self) -> None:
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def start_board_process(action: str, home: Path, *more: object) -> AsyncIterator[BoardProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("board_process.py")),
        action,
        str(home),
        *map(str, more),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 22,
    )
    try:
        yield BoardProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def open_board(home: Path, name: str = "roof", **options: Any) -> AsyncIterator[FileTaskBoard]:
    board = FileTaskBoard(home, name, **{"clock": SystemClock(), "ids": IdGenerator(), **options})
    try:
        yield board
    finally:
        await board.aclose()


async def fill_board(board: FileTaskBoard, count: int) -> list[Task]:
    return [await board.create(TaskDraft(subject=f"task {n}", description="")) for n in range(1, count + 1)]


def read_task_file(home: Path, task: str | int, board: str = "roof") -> Any:
    return json.loads((home / "tasks" / board / f"{task}.json").read_bytes())
