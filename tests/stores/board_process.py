"""Another process on the same board or roster. It writes `ready`, waits for a line and acts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from shoal.core.clock import SystemClock
from shoal.core.ids import Ids
from shoal.core.roster import Newcomer
from shoal.core.tasks import Change
from shoal.stores.files.board import FileTaskBoard
from shoal.stores.files.handles import Directory
from shoal.stores.files.rosters import FileRosters


def say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def heard() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


async def work(home: Path, name: str, agents: int) -> None:
    """Run agents that claim and complete until nothing is left."""
    board = FileTaskBoard(home, "roof", clock=SystemClock(), ids=Ids())
    done: list[str] = []

    async def agent(number: int) -> None:
        me = f"{name}-{number}"
        while (claim := await board.claim_next(by=me)) is not None:
            await asyncio.sleep(0)
            await board.update(claim.task.id, Change(status="completed", attempt=claim.attempt), by=me)
            done.append(claim.task.id)

    await board.list()
    say("ready")
    await heard()
    async with asyncio.TaskGroup() as group:
        for number in range(agents):
            group.create_task(agent(number))
    say(done)
    await board.aclose()


async def hold(home: Path, name: str) -> None:
    """Claim one task and keep it until killed."""
    board = FileTaskBoard(home, "roof", clock=SystemClock(), ids=Ids())
    claim = await board.claim_next(by=name)
    say([claim.task.id, claim.attempt])
    await heard()


async def hold_with_child(home: Path, name: str) -> None:
    """Like `hold_task`, with a forked child that lives until the test ends it."""
    board = FileTaskBoard(home, "roof", clock=SystemClock(), ids=Ids())
    claim = await board.claim_next(by=name)
    child = os.fork()
    if child == 0:
        for fd in range(3):
            os.close(fd)
        signal.pause()
    say([claim.task.id, child])
    signal.pause()


async def block(home: Path, task: str, blocker: str) -> None:
    board = FileTaskBoard(home, "roof", clock=SystemClock(), ids=Ids())
    await board.list()
    say("ready")
    await heard()
    await board.update(task, Change(add_blocked_by=(blocker,)), by="a")
    say("done")


async def block_and_die(home: Path, task: str, blocker: str, step: str) -> None:
    """Die after so many files of the board were moved into place."""
    board = FileTaskBoard(home, "roof", clock=SystemClock(), ids=Ids())
    await board.list()
    swap, left = Directory.swap, int(step)

    def counted(staging: Directory, name: str, to: Directory, other: str) -> None:
        nonlocal left
        swap(staging, name, to, other)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    Directory.swap = counted
    await board.update(task, Change(add_blocked_by=(blocker,)), by="a")
    say("survived")


async def join(home: Path, name: str, count: int) -> None:
    rosters = FileRosters(home, clock=SystemClock())
    say("ready")
    await heard()
    names = []
    for _ in range(count):
        newcomer = Newcomer(name=name, agent_type="general", model="m", cwd="/", prompt="work")
        names.append((await rosters.join("roof", newcomer)).name)
    say(names)


def main() -> None:
    act, home, *more = sys.argv[1:]
    acts = {
        "work": lambda: work(Path(home), more[0], int(more[1])),
        "hold": lambda: hold(Path(home), more[0]),
        "hold_with_child": lambda: hold_with_child(Path(home), more[0]),
        "block": lambda: block(Path(home), *more),
        "block_and_die": lambda: block_and_die(Path(home), *more),
        "join": lambda: join(Path(home), more[0], int(more[1])),
    }
    asyncio.run(acts[act]())


if __name__ == "__main__":
    main()
