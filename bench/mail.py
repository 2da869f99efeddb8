"""Measures mail on files: the cost of a post, a take and a wake, and that none grows with the history."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from msgspec import Struct

from bench.figures import Figure, Section
from bench.plain_mail import PlainInbox
from bench.subject import empty_home
from bench.timing import Spent, Stopwatch, middle
from shoal.core.clock import SystemClock
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.core.names import AgentName, TeamName
from shoal.stores.files.mailboxes import FileMailboxes

_AT = "2026-02-13T10:11:35.247Z"
_TEXT = "x" * 150
_IDS = Ids(1)


class Size(Struct, frozen=True, kw_only=True):
    posts: int = 2_000
    senders: int = 32
    samples: int = 100
    histories: tuple[int, ...] = (10, 10_000, 100_000)
    plain_samples: int = 3
    wakes: int = 200


def measure(size: Size) -> list[Section]:
    with empty_home() as root:
        return asyncio.run(_measure(root, size))


async def _measure(root: Path, size: Size) -> list[Section]:
    boxes = FileMailboxes(root / "home", TeamName("t"), clock=SystemClock(), ids=_IDS)
    try:
        return [await _costs(boxes, root, size), await _wakes(boxes, root, size)]
    finally:
        await boxes.aclose()


def _mail() -> Mail:
    return Mail(id=_IDS.uuid(), sender=AgentName("bob"), text=_TEXT, timestamp=_AT, summary="s", color="blue")


def _entry() -> dict[str, Any]:
    mail = _mail()
    return {"from": mail.sender, "text": mail.text, "timestamp": _AT, "read": False, "msg_id": mail.id}


class _Box:
    """One inbox of ours and a plain one."""

    def __init__(self, boxes: FileMailboxes, root: Path, name: str) -> None:
        self.owner = AgentName(name)
        self.boxes = boxes
        self.plain = PlainInbox(root / f"{name}.json")

    async def post(self) -> None:
        await self.boxes.post(self.owner, _mail())

    async def take_and_mark(self) -> int:
        batch = await self.boxes.take(self.owner)
        await self.boxes.mark(self.owner, [mail.id for mail in batch])
        return len(batch)

    async def fill(self, count: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(self.post())

    async def drain(self) -> None:
        while await self.take_and_mark():
            pass

    async def plain_post(self) -> None:
        self.plain.post(_entry())

    async def plain_take_and_mark(self) -> None:
        self.plain.mark({entry["msg_id"] for entry in self.plain.take()[:64]})


async def _opened(boxes: FileMailboxes, root: Path, name: str) -> _Box:
    box = _Box(boxes, root, name)
    await box.boxes.open(box.owner)
    box.plain.fill([])
    return box


async def _once(call: Callable[[], Awaitable[Any]]) -> Spent:
    """Time one call, in µs."""
    cpu, wall = time.process_time(), time.perf_counter()
    await call()
    return _micro(Spent(time.process_time() - cpu, time.perf_counter() - wall))


async def _some(samples: int, call: Callable[[], Awaitable[Any]]) -> Spent:
    """Return the median of some calls."""
    return middle([await _once(call) for _ in range(samples)])


async def _all(count: int, run: Callable[[], Awaitable[Any]]) -> Spent:
    """Return the time per call of many, in µs."""
    watch = Stopwatch()
    await run()
    return _micro(watch.read().per(count))


def _micro(spent: Spent) -> Spent:
    return Spent(spent.cpu * 1e6, spent.wall * 1e6)


async def _costs(boxes: FileMailboxes, root: Path, size: Size) -> Section:
    figures = [
        await _from_one(boxes, root, size),
        await _from_many(boxes, root, size),
        *(await _while_taken(boxes, root, size)),
        *(await _with_backlog(boxes, root, size)),
    ]
    return Section(
        name="Mail on files",
        unit="µs",
        other="under the directory lock read the array, change it, write it again",
        column="plain",
        figures=figures,
    )


async def _from_one(boxes: FileMailboxes, root: Path, size: Size) -> Figure:
    box = await _opened(boxes, root, "one")

    async def run(post: Callable[[], Awaitable[None]], count: int) -> None:
        for _ in range(count):
            await post()

    ours = await _all(size.posts, lambda: run(box.post, size.posts))
    plain = await _all(size.posts // 4, lambda: run(box.plain_post, size.posts // 4))
    name = f"post, one sender ({size.posts:,})"
    return Figure(name=name, ours=ours, bare=plain, target=1e6 / 1_200, judged="wall")


async def _from_many(boxes: FileMailboxes, root: Path, size: Size) -> Figure:
    box = await _opened(boxes, root, "many")
    count = size.posts * 4

    async def sender() -> None:
        for _ in range(count // size.senders):
            await box.post()

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(size.senders):
                group.create_task(sender())

    ours = await _all(count, run)
    name = f"post, {size.senders} senders in one process"
    return Figure(name=name, ours=ours, target=1e6 / 10_000, judged="wall")


async def _while_taken(boxes: FileMailboxes, root: Path, size: Size) -> list[Figure]:
    """Measure while the reader keeps up: every message is written into the inbox, taken and marked."""
    inboxes = {history: await _opened(boxes, root, f"taken-{history}") for history in size.histories}
    for history, box in inboxes.items():
        await box.fill(history)
        await box.drain()
        box.plain.fill([{**_entry(), "read": True} for _ in range(history)])
    posts, takes, batches = ({history: list[Spent]() for history in inboxes} for _ in range(3))
    for _ in range(size.samples):
        for history, box in inboxes.items():  # in turn, so that other load affects all of them
            posts[history].append(await _once(box.post))
            takes[history].append(await _once(box.take_and_mark))
            await box.fill(64)
            batches[history].append(await _once(box.take_and_mark))
    figures: list[Figure] = []
    plain = {history: await _some(size.plain_samples, box.plain_post) for history, box in inboxes.items()}
    for history, box in inboxes.items():
        post = middle(posts[history])
        name = f"post, {history:,} consumed before"
        figures.append(Figure(name=name, ours=post, bare=plain[history], judged="wall"))
        if len(figures) > 1:
            small = size.histories[0]
            figures.append(_growth((middle(posts[small]), plain[small]), (post, plain[history]), history))
        plain_take = await _some(size.plain_samples, box.plain_take_and_mark)
        figures.append(_batch(f"take + mark one, {history:,} before", middle(takes[history]), plain_take))
        figures.append(_batch(f"take + mark 64, {history:,} before", middle(batches[history]), None))
    return figures


async def _with_backlog(boxes: FileMailboxes, root: Path, size: Size) -> list[Figure]:
    """Measure while nobody reads: messages that do not fit go to the overflow."""
    inboxes = {waiting: await _opened(boxes, root, f"backlog-{waiting}") for waiting in size.histories}
    for waiting, box in inboxes.items():
        await box.fill(waiting)
        box.plain.fill([_entry() for _ in range(waiting)])
    posts = {waiting: list[Spent]() for waiting in inboxes}
    for _ in range(min(size.samples, 50)):  # all of them go into the first file, none to the overflow
        for waiting, box in inboxes.items():
            posts[waiting].append(await _once(box.post))
    figures: list[Figure] = []
    first = None
    for waiting, box in inboxes.items():
        now = (middle(posts[waiting]), await _some(size.plain_samples, box.plain_post))
        first = first or now
        figures.append(
            Figure(name=f"post, {waiting:,} unread before", ours=now[0], bare=now[1], judged="wall")
        )
        if len(figures) > 1:
            figures.append(_growth(first, now, waiting))
            taken = await _some(10, box.take_and_mark)
            figures.append(_batch(f"take + mark 64, 64 of {waiting:,} move up", taken, None))
    return figures


def _growth(first: tuple[Spent, Spent], now: tuple[Spent, Spent], count: int) -> Figure:
    target = 1.3 if count <= 10_000 else 1.5
    ours, plain = (Spent(n.cpu / f.cpu, n.wall / f.wall) for f, n in zip(first, now, strict=True))
    return Figure(name="  growth, times", ours=ours, bare=plain, target=target, judged="wall")


def _batch(name: str, ours: Spent, plain: Spent | None) -> Figure:
    return Figure(name=name, ours=ours, bare=plain, target=700, judged="wall")


async def _wakes(boxes: FileMailboxes, root: Path, size: Size) -> Section:
    box = await _opened(boxes, root, "woken")
    inside = await _wakes_inside(box, size.wakes)
    across = await _wakes_across(box, root / "home", size.wakes)
    return Section(
        name="Waking who waits for mail",
        unit="µs from the return of the post",
        other="–",
        timed=False,
        figures=[
            _wake("in the same process, p50", median(inside), 100),
            _wake("in the same process, p99", quantiles(inside, n=100)[98], None),
            _wake("in another process, p50", median(across), 1_000),
            _wake("in another process, p99", quantiles(across, n=100)[98], 10_000),
        ],
    )


def _wake(name: str, seconds: float, target: float | None) -> Figure:
    return Figure(name=name, ours=Spent(seconds * 1e6, seconds * 1e6), target=target, judged="wall")


async def _woken_at(box: _Box) -> float:
    await box.boxes.wait(box.owner)
    return time.monotonic()


async def _wakes_inside(box: _Box, count: int) -> list[float]:
    waits = []
    for _ in range(count):
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_woken_at(box))
            await asyncio.sleep(0.001)
            await box.post()
            returned = time.monotonic()
        waits.append(max(0.0, waiting.result() - returned))
        await box.drain()
    return waits


async def _wakes_across(box: _Box, home: Path, count: int) -> list[float]:
    poster = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.mail_poster",
        str(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert poster.stdin is not None
    assert poster.stdout is not None
    waits = []
    for number in range(count + 10):
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_woken_at(box))
            await asyncio.sleep(0.001)
            poster.stdin.write(b"post\n")
        returned = float(await poster.stdout.readline())
        if number >= 10:  # the first ones warm up
            waits.append(max(0.0, waiting.result() - returned))
        await box.drain()
    poster.stdin.close()
    await poster.wait()
    return waits
