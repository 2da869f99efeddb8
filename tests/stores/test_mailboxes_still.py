"""A team of a thousand is asked whether it has mail: inboxes that are still are not read for it."""

from __future__ import annotations

import asyncio
import sys

import pytest

from shoal.core.clock import SystemClock
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.core.names import AgentName, TeamName
from shoal.stores.files.mailboxes import FileMailboxes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="where nothing is told all are looked at")
NAMES = [AgentName(f"m{n}") for n in range(100)]


def boxes_at(home) -> FileMailboxes:
    return FileMailboxes(home, TeamName("crew"), clock=SystemClock(), ids=Ids(1))


def mail(ident: str) -> Mail:
    return Mail(id=ident, sender=AgentName("bob"), text="hello", timestamp="2026-02-13T10:11:35.247Z")


@pytest.mark.spec("BOX-06")
async def test_only_the_inbox_that_another_process_wrote_to_is_named(tmp_path):
    boxes, others = boxes_at(tmp_path), boxes_at(tmp_path)
    for name in NAMES:
        await boxes.open(name)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(boxes.wait(name)) for name in NAMES]
        while boxes.stirred(NAMES):
            await asyncio.sleep(0)
        await others.post(NAMES[7], mail("m0"))
        assert boxes.stirred(NAMES) == [NAMES[7]]
        await waiting[7]
        for task in waiting:
            task.cancel()
    assert [each.id for each in await boxes.take(NAMES[7])] == ["m0"]
    await boxes.aclose()
    await others.aclose()


async def test_every_inbox_is_looked_at_in_turn_though_nothing_was_told(tmp_path):
    """A notice may be lost: more inboxes than are looked at in one go, and the last one is still found."""
    boxes = boxes_at(tmp_path)
    for name in NAMES:
        await boxes.open(name)
    woken: list[str] = []
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(boxes.wait(name)) for name in NAMES]
        while boxes.stirred(NAMES):
            await asyncio.sleep(0)
        for _ in range(2):
            boxes._look_anyway()
            stirred = boxes.stirred(NAMES)
            assert 0 < len(stirred) <= 64
            woken += stirred
            while boxes.stirred(NAMES):
                await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
    assert set(woken) == set(NAMES)
    await boxes.aclose()
