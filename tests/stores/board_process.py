"""Another process on the same board or roster. It writes `ready`, waits for a line and acts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.teams.roster import NewMember
from shoal.core.teams.tasks import TaskUpdate
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.board.file_task_board import FileTaskBoard
from shoal.stores.files.teams.file_roster_store import FileRosterStore


def write_reply(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def read_command() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


async def claim_all(home: Path, name: str, agents: int) -> None:
    """Run agents that claim and complete until nothing is left."""
    board = FileTaskBoard(home, "roof", clock=SystemClock(), ids=IdGenerator())
    done: list[str] = []

    async def run_agent(number: int) -> None:
        me = f"{name}-{number}"
        while (claim := await board.claim_next(by=me)) is not None:
            await asyncio.sleep(0)
            await board.update(claim.task.id, TaskUpdate(status="completed", attempt=claim.attempt), by=me)
            done.append(claim.task.id)

    await board.list_tasks()
    write_reply("ready")
    await read_command()
    async with asyncio.TaskGroup() as group:
        for number in range(agents):
            group.create_task(run_agent(number))
    write_reply(done)
    await board.aclose()


async def hold_task(home: Path, name: str) -> None:
    """Claim one task and keep it until killed."""
    board = FileTaskBoard(home, "roof", clock=SystemClock(), ids=IdGenerator())
    claim = await board.claim_next(by=name)
    write_reply([claim.task.id, claim.attempt])
    await read_command()


async def hold_task_with_child(home: Path, name: str) -> None:
    """Like `hold_task`, with a forked child that lives until the test ends it."""
    board = FileTaskBoard(home, "roof", clock=SystemClock(), ids=IdGenerator())
    claim = await board.claim_next(by=name)
    child = os.fork()
    if child == 0:
        for fd in range(3):
            os.close(fd)
        signal.pause()
    write_reply([claim.task.id, child])
    signal.pause()


async def block_task(home: Path, task: str, blocker: str) -> None:
    board = FileTaskBoard(home, "roof", clock=SystemClock(), ids=IdGenerator())
    await board.list_tasks()
    write_reply("ready")
    await read_command()
    await board.update(task, TaskUpdate(add_blocked_by=(blocker,)), by="a")
    write_reply("done")


async def block_and_die(home: Path, task: str, blocker: str, step: str) -> None:
    """Die after so many files of the board were moved into place."""
    board = FileTaskBoard(home, "roof", clock=SystemClock(), ids=IdGenerator())
    await board.list_tasks()
    swap, left = DirectoryHandle.swap_or_move_file, int(step)

    def swap_and_count(staging: DirectoryHandle, name: str, to: DirectoryHandle, other: str) -> None:
        nonlocal left
        swap(staging, name, to, other)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    DirectoryHandle.swap_or_move_file = swap_and_count
    await board.update(task, TaskUpdate(add_blocked_by=(blocker,)), by="a")
    write_reply("survived")


async def join_roster(home: Path, name: str, count: int) -> None:
    rosters = FileRosterStore(home, clock=SystemClock())
    write_reply("ready")
    await read_command()
    names = []
    for _ in range(count):
        new_member = NewMember(name=name, agent_type="general", model="m", cwd="/", prompt="work")
        names.append((await rosters.add_member("roof", new_member)).name)
    write_reply(names)


def main() -> None:
    act, home, *more = sys.argv[1:]
    acts = {
        "work": lambda: claim_all(Path(home), more[0], int(more[1])),
        "hold": lambda: hold_task(Path(home), more[0]),
        "hold_with_child": lambda: hold_task_with_child(Path(home), more[0]),
        "block": lambda: block_task(Path(home), *more),
        "block_and_die": lambda: block_and_die(Path(home), *more),
        "join": lambda: join_roster(Path(home), more[0], int(more[1])),
    }
    asyncio.run(acts[act]())


if __name__ == "__main__":
    main()
