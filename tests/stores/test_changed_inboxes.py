"""Finding the changed inboxes of a large team does not read the unchanged ones."""

from __future__ import annotations

import asyncio
import sys

import pytest
from mail_helpers import create_mailboxes, make_mail

from shoal.core.names import AgentName

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="without inotify every inbox is polled")
NAMES = [AgentName(f"m{n}") for n in range(100)]


@pytest.mark.spec("BOX-06")
async def test_only_the_inbox_another_process_wrote_to_counts_as_changed(tmp_path):
    boxes, others = create_mailboxes(tmp_path), create_mailboxes(tmp_path)
    for name in NAMES:
        await boxes.open_inbox(name)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(boxes.wait_for_mail(name)) for name in NAMES]
        while boxes.find_changed_inboxes(NAMES):
            await asyncio.sleep(0)
        await others.post(NAMES[7], make_mail("hello", ident="m0"))
        assert boxes.find_changed_inboxes(NAMES) == [NAMES[7]]
        await waiting[7]
        for task in waiting:
            task.cancel()
    assert [each.id for each in await boxes.take_unread(NAMES[7])] == ["m0"]
    await boxes.aclose()
    await others.aclose()


async def test_every_inbox_is_polled_in_turn_without_file_events(tmp_path):
    """A file event may be lost: with more inboxes than one poll checks, the last one is still found."""
    boxes = create_mailboxes(tmp_path)
    for name in NAMES:
        await boxes.open_inbox(name)
    woken: list[str] = []
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(boxes.wait_for_mail(name)) for name in NAMES]
        while boxes.find_changed_inboxes(NAMES):
            await asyncio.sleep(0)
        for _ in range(2):
            boxes._wake_next_mailboxes_in_turn()
            changed = boxes.find_changed_inboxes(NAMES)
            assert 0 < len(changed) <= 64
            woken += changed
            while boxes.find_changed_inboxes(NAMES):
                await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
    assert set(woken) == set(NAMES)
    await boxes.aclose()
