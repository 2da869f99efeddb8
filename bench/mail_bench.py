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

from bench.bench_session import use_empty_home
from bench.figures import Figure, Section
from bench.plain_mail import PlainInbox
from bench.stopwatch import Stopwatch, TimeSpent, compute_median
from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.mail import MailMessage
from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore

_AT = "2026-02-13T10:11:35.247Z"
_TEXT = "x" * 150
_IDS = IdGenerator(1)


class MailBenchSize(Struct, frozen=True, kw_only=True):
    posts: int = 2_000
    senders: int = 32
    samples: int = 100
    histories: tuple[int, ...] = (10, 10_000, 100_000)
    plain_samples: int = 3
    wakes: int = 200


def measure_mail(size: MailBenchSize) -> list[Section]:
    with use_empty_home() as root:
        return asyncio.run(_measure_sections(root, size))


async def _measure_sections(root: Path, size: MailBenchSize) -> list[Section]:
    mailboxes = FileMailboxStore(root / "home", TeamName("t"), clock=SystemClock(), ids=_IDS)
    try:
        return [await _measure_costs(mailboxes, root, size), await _measure_wakes(mailboxes, root, size)]
    finally:
        await mailboxes.aclose()


def _make_mail() -> MailMessage:
    return MailMessage(
        id=_IDS.new_uuid(), sender=AgentName("bob"), text=_TEXT, timestamp=_AT, summary="s", color="blue"
    )


def _make_entry() -> dict[str, Any]:
    mail = _make_mail()
    return {"from": mail.sender, "text": mail.text, "timestamp": _AT, "read": False, "msg_id": mail.id}


class _InboxPair:
    """One inbox of ours and a plain one."""

    def __init__(self, mailboxes: FileMailboxStore, root: Path, name: str) -> None:
        self.owner = AgentName(name)
        self.boxes = mailboxes
        self.plain = PlainInbox(root / f"{name}.json")

    async def post_mail(self) -> None:
        await self.boxes.post(self.owner, _make_mail())

    async def take_and_mark(self) -> int:
        batch = await self.boxes.take_unread(self.owner)
        await self.boxes.mark_read(self.owner, [mail.id for mail in batch])
        return len(batch)

    async def fill_inbox(self, count: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(self.post_mail())

    async def drain_inbox(self) -> None:
        while await self.take_and_mark():
            pass

    async def post_plainly(self) -> None:
        self.plain.post_entry(_make_entry())

    async def take_and_mark_plainly(self) -> None:
        self.plain.mark_read({entry["msg_id"] for entry in self.plain.take_unread()[:64]})


async def _open_inboxes(mailboxes: FileMailboxStore, root: Path, name: str) -> _InboxPair:
    inboxes = _InboxPair(mailboxes, root, name)
    await inboxes.boxes.open_inbox(inboxes.owner)
    inboxes.plain.write_entries([])
    return inboxes


async def _time_call(call: Callable[[], Awaitable[Any]]) -> TimeSpent:
    """Time one call, in µs."""
    cpu, wall = time.process_time(), time.perf_counter()
    await call()
    return _to_microseconds(TimeSpent(time.process_time() - cpu, time.perf_counter() - wall))


async def _time_samples(samples: int, call: Callable[[], Awaitable[Any]]) -> TimeSpent:
    """Return the median of some calls."""
    return compute_median([await _time_call(call) for _ in range(samples)])


async def _time_batch(count: int, run: Callable[[], Awaitable[Any]]) -> TimeSpent:
    """Return the time per call of many, in µs."""
    watch = Stopwatch()
    await run()
    return _to_microseconds(watch.read_time().divide_by(count))


def _to_microseconds(spent: TimeSpent) -> TimeSpent:
    return TimeSpent(spent.cpu * 1e6, spent.wall * 1e6)


async def _measure_costs(mailboxes: FileMailboxStore, root: Path, size: MailBenchSize) -> Section:
    figures = [
        await _measure_one_sender(mailboxes, root, size),
        await _measure_many_senders(mailboxes, root, size),
        *(await _measure_while_taken(mailboxes, root, size)),
        *(await _measure_backlog(mailboxes, root, size)),
    ]
    return Section(
        name="Mail on files",
        unit="µs",
        other="under the directory lock read the array, change it, write it again",
        column="plain",
        figures=figures,
    )


async def _measure_one_sender(mailboxes: FileMailboxStore, root: Path, size: MailBenchSize) -> Figure:
    inboxes = await _open_inboxes(mailboxes, root, "one")

    async def post_many(post: Callable[[], Awaitable[None]], count: int) -> None:
        for _ in range(count):
            await post()

    ours = await _time_batch(size.posts, lambda: post_many(inboxes.post_mail, size.posts))
    plain = await _time_batch(size.posts // 4, lambda: post_many(inboxes.post_plainly, size.posts // 4))
    name = f"post, one sender ({size.posts:,})"
    return Figure(name=name, ours=ours, bare=plain, target=1e6 / 1_200, judged="wall")


async def _measure_many_senders(mailboxes: FileMailboxStore, root: Path, size: MailBenchSize) -> Figure:
    inboxes = await _open_inboxes(mailboxes, root, "many")
    count = size.posts * 4

    async def run_sender() -> None:
        for _ in range(count // size.senders):
            await inboxes.post_mail()

    async def run_senders() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(size.senders):
                group.create_task(run_sender())

    ours = await _time_batch(count, run_senders)
    name = f"post, {size.senders} senders in one process"
    return Figure(name=name, ours=ours, target=1e6 / 10_000, judged="wall")


async def _measure_while_taken(mailboxes: FileMailboxStore, root: Path, size: MailBenchSize) -> list[Figure]:
    """Measure while the reader keeps up: every message is written into the inbox, taken and marked."""
    inboxes = {
        history: await _open_inboxes(mailboxes, root, f"taken-{history}") for history in size.histories
    }
    for history, pair in inboxes.items():
        await pair.fill_inbox(history)
        await pair.drain_inbox()
        pair.plain.write_entries([{**_make_entry(), "read": True} for _ in range(history)])
    posts, takes, batches = ({history: list[TimeSpent]() for history in inboxes} for _ in range(3))
    for _ in range(size.samples):
        for history, pair in inboxes.items():  # in turn, so that other load affects all of them
            posts[history].append(await _time_call(pair.post_mail))
            takes[history].append(await _time_call(pair.take_and_mark))
            await pair.fill_inbox(64)
            batches[history].append(await _time_call(pair.take_and_mark))
    figures: list[Figure] = []
    plain = {
        history: await _time_samples(size.plain_samples, box.post_plainly) for history, box in inboxes.items()
    }
    for history, pair in inboxes.items():
        post = compute_median(posts[history])
        name = f"post, {history:,} consumed before"
        figures.append(Figure(name=name, ours=post, bare=plain[history], judged="wall"))
        if len(figures) > 1:
            smallest = size.histories[0]
            figures.append(
                _make_growth_figure(
                    (compute_median(posts[smallest]), plain[smallest]), (post, plain[history]), history
                )
            )
        plain_take = await _time_samples(size.plain_samples, pair.take_and_mark_plainly)
        figures.append(
            _make_batch_figure(
                f"take + mark one, {history:,} before", compute_median(takes[history]), plain_take
            )
        )
        figures.append(
            _make_batch_figure(f"take + mark 64, {history:,} before", compute_median(batches[history]), None)
        )
    return figures


async def _measure_backlog(mailboxes: FileMailboxStore, root: Path, size: MailBenchSize) -> list[Figure]:
    """Measure while nobody reads: messages that do not fit go to the overflow."""
    inboxes = {
        waiting: await _open_inboxes(mailboxes, root, f"backlog-{waiting}") for waiting in size.histories
    }
    for waiting, pair in inboxes.items():
        await pair.fill_inbox(waiting)
        pair.plain.write_entries([_make_entry() for _ in range(waiting)])
    posts = {waiting: list[TimeSpent]() for waiting in inboxes}
    for _ in range(min(size.samples, 50)):  # all of them go into the first file, none to the overflow
        for waiting, pair in inboxes.items():
            posts[waiting].append(await _time_call(pair.post_mail))
    figures: list[Figure] = []
    first_times = None
    for waiting, pair in inboxes.items():
        times = (compute_median(posts[waiting]), await _time_samples(size.plain_samples, pair.post_plainly))
        first_times = first_times or times
        figures.append(
            Figure(name=f"post, {waiting:,} unread before", ours=times[0], bare=times[1], judged="wall")
        )
        if len(figures) > 1:
            figures.append(_make_growth_figure(first_times, times, waiting))
            take_time = await _time_samples(10, pair.take_and_mark)
            figures.append(_make_batch_figure(f"take + mark 64 of {waiting:,} unread", take_time, None))
    return figures


def _make_growth_figure(
    first_times: tuple[TimeSpent, TimeSpent], last_times: tuple[TimeSpent, TimeSpent], count: int
) -> Figure:
    target = 1.3 if count <= 10_000 else 1.5
    ours, plain = (
        TimeSpent(n.cpu / f.cpu, n.wall / f.wall) for f, n in zip(first_times, last_times, strict=True)
    )
    return Figure(name="  growth, times", ours=ours, bare=plain, target=target, judged="wall")


def _make_batch_figure(name: str, ours: TimeSpent, plain: TimeSpent | None) -> Figure:
    return Figure(name=name, ours=ours, bare=plain, target=700, judged="wall")


async def _measure_wakes(mailboxes: FileMailboxStore, root: Path, size: MailBenchSize) -> Section:
    inboxes = await _open_inboxes(mailboxes, root, "woken")
    waits_inside = await _time_wakes_inside(inboxes, size.wakes)
    waits_across = await _time_wakes_across(inboxes, root / "home", size.wakes)
    return Section(
        name="Waking who waits for mail",
        unit="µs from the return of the post",
        other="–",
        timed=False,
        figures=[
            _make_wake_figure("in the same process, p50", median(waits_inside), 100),
            _make_wake_figure("in the same process, p99", quantiles(waits_inside, n=100)[98], None),
            _make_wake_figure("in another process, p50", median(waits_across), 1_000),
            _make_wake_figure("in another process, p99", quantiles(waits_across, n=100)[98], 10_000),
        ],
    )


def _make_wake_figure(name: str, seconds: float, target: float | None) -> Figure:
    return Figure(name=name, ours=TimeSpent(seconds * 1e6, seconds * 1e6), target=target, judged="wall")


async def _wait_for_mail(inboxes: _InboxPair) -> float:
    await inboxes.boxes.wait_for_mail(inboxes.owner)
    return time.monotonic()


async def _time_wakes_inside(inboxes: _InboxPair, count: int) -> list[float]:
    waits = []
    for _ in range(count):
        async with asyncio.TaskGroup() as group:
            waiter = group.create_task(_wait_for_mail(inboxes))
            await asyncio.sleep(0.001)
            await inboxes.post_mail()
            returned = time.monotonic()
        waits.append(max(0.0, waiter.result() - returned))
        await inboxes.drain_inbox()
    return waits


async def _time_wakes_across(inboxes: _InboxPair, home: Path, count: int) -> list[float]:
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
            waiter = group.create_task(_wait_for_mail(inboxes))
            await asyncio.sleep(0.001)
            poster.stdin.write(b"post\n")
        returned = float(await poster.stdout.readline())
        if number >= 10:  # the first ones warm up
            waits.append(max(0.0, waiter.result() - returned))
        await inboxes.drain_inbox()
    poster.stdin.close()
    await poster.wait()
    return waits
