"""One of several processes that claim tasks until none is left: `claimant.py ours|plain HOME NAME MOST`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path


async def ours(home: Path, name: str, most: int) -> None:
    from shoal.core.clock import SystemClock
    from shoal.core.ids import Ids
    from shoal.core.names import AgentName
    from shoal.stores.files.board import FileTaskBoard

    board = FileTaskBoard(home, "bench", clock=SystemClock(), ids=Ids())
    await board.list()
    _wait("ready")
    since, claims = time.process_time(), 0
    while claims < most and await board.claim_next(by=AgentName(name)) is not None:
        claims += 1
    _wait(f"{claims} {time.process_time() - since}")
    await board.aclose()


def plain(home: Path, name: str, most: int) -> None:
    _wait("ready")
    since, claims = time.process_time(), 0
    while claims < most and _claimed(home / "tasks" / "bench", name):
        claims += 1
    _wait(f"{claims} {time.process_time() - since}")


def _claimed(directory: Path, name: str) -> bool:
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
        free = sorted((int(task["id"]), task) for task in tasks if task["status"] == "pending")
        if not free:
            return False
        number, task = free[0]
        task |= {"status": "in_progress", "owner": name}
        (directory / f"{number}.json").write_text(json.dumps(task))
        return True
    finally:
        lock.rmdir()


def _wait(word: str) -> None:
    print(word, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    how, home, name, most = sys.argv[1:]
    if how == "ours":
        asyncio.run(ours(Path(home), name, int(most)))
    else:
        plain(Path(home), name, int(most))
