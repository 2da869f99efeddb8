"""One of several processes that claim tasks until none is left: `claimant.py ours|plain HOME NAME MOST`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path


async def claim_with_board(home: Path, name: str, most: int) -> None:
    from shoal.core.clock import SystemClock
    from shoal.core.ids import IdGenerator
    from shoal.core.names import AgentName
    from shoal.stores.files.board.file_task_board import FileTaskBoard

    board = FileTaskBoard(home, "bench", clock=SystemClock(), ids=IdGenerator())
    await board.list_tasks()
    _report_and_wait("ready")
    cpu_start, claims = time.process_time(), 0
    while claims < most and await board.claim_next(by=AgentName(name)) is not None:
        claims += 1
    _report_and_wait(f"{claims} {time.process_time() - cpu_start}")
    await board.aclose()


def claim_plainly(home: Path, name: str, most: int) -> None:
    _report_and_wait("ready")
    cpu_start, claims = time.process_time(), 0
    while claims < most and _claim_next(home / "tasks" / "bench", name):
        claims += 1
    _report_and_wait(f"{claims} {time.process_time() - cpu_start}")


def _claim_next(directory: Path, name: str) -> bool:
    lock = directory / ".lock.lock"
    while True:
        try:
            lock.mkdir()
        except FileExistsError:
            time.sleep(0.005)
        else:
            break
    try:
        tasks = [json.loads(path.read_bytes()) for path in directory.glob("[0-9]*.json")]
        free_tasks = sorted((int(task["id"]), task) for task in tasks if task["status"] == "pending")
        if not free_tasks:
            return False
        number, task = free_tasks[0]
        task |= {"status": "in_progress", "owner": name}
        (directory / f"{number}.json").write_text(json.dumps(task))
        return True
    finally:
        lock.rmdir()


def _report_and_wait(text: str) -> None:
    print(text, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    how, home, name, most = sys.argv[1:]
    if how == "ours":
        asyncio.run(claim_with_board(Path(home), name, int(most)))
    else:
        claim_plainly(Path(home), name, int(most))
