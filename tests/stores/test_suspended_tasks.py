"""Tasks that wait in the middle of a function, while the event loop runs other members."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

pytestmark = pytest.mark.needs("greenlet", "asyncpg")
NAME: ContextVar[str] = ContextVar("name", default="")


class Writes:
    """Calls that suspend their task until the test lets them end."""

    def __init__(self):
        self.started: list[str] = []
        self.ended: list[str] = []
        self._futures: dict[str, asyncio.Future[str]] = {}

    def write(self, name):
        from shoal.stores.postgres.suspended_tasks import suspend_until_done

        self.started.append(name)
        future = self._futures[name] = asyncio.get_running_loop().create_future()
        result = suspend_until_done(future)
        self.ended.append(name)
        return result

    def let_end(self, name):
        self._futures[name].set_result(f"stored {name}")

    def let_fail(self, name):
        self._futures[name].set_exception(OSError(name))


@pytest.fixture
def writes():
    return Writes()


@pytest.fixture
async def start_member():
    """Return a function that starts work as the first task of a new member."""
    from shoal.stores.postgres.suspended_tasks import create_member_context, install_suspendable_tasks

    loop = asyncio.get_running_loop()
    install_suspendable_tasks(loop)
    yield lambda work: loop.create_task(work, context=create_member_context())
    loop.set_task_factory(None)


async def run_ready_tasks():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_another_member_runs_while_a_call_of_one_waits(start_member, writes):
    async def work(name):
        NAME.set(name)
        result = writes.write(name)
        assert NAME.get() == name
        return result

    first, second = start_member(work("one")), start_member(work("two"))
    await run_ready_tasks()
    assert writes.started == ["one", "two"]
    writes.let_end("two")
    assert await second == "stored two"
    assert not first.done()
    writes.let_end("one")
    assert await first == "stored one"


async def test_the_other_tasks_of_a_member_do_not_run_while_its_call_waits(start_member, writes):
    steps = []

    async def note_steps():
        for number in range(3):
            steps.append(number)
            await asyncio.sleep(0)

    async def work():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(note_steps())
            writes.write("one")
            before = list(steps)
            await asyncio.sleep(0)
        return before

    task = start_member(work())
    await run_ready_tasks()
    assert writes.started == ["one"]
    assert steps == []
    writes.let_end("one")
    assert await task == []
    assert steps == [0, 1, 2]


async def test_a_task_that_is_canceled_during_a_call_ends_after_it(start_member, writes):
    async def work():
        writes.write("one")
        await asyncio.Event().wait()

    task = start_member(work())
    await run_ready_tasks()
    task.cancel()
    await run_ready_tasks()
    assert not task.done()
    writes.let_end("one")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert writes.ended == ["one"]
    assert task.cancelling() == 1


async def test_a_deadline_that_passes_during_a_call_is_kept(start_member, writes):
    async def work():
        try:
            async with asyncio.timeout(0) as deadline:
                writes.write("one")
                await asyncio.Event().wait()
        except TimeoutError:
            return deadline.expired()

    task = start_member(work())
    await run_ready_tasks()
    writes.let_end("one")
    assert await task is True
    assert task.cancelling() == 0


async def test_an_error_of_a_call_is_raised_where_it_was_made(start_member, writes):
    async def work():
        with pytest.raises(OSError, match="one"):
            writes.write("one")
        raise ValueError("two")

    task = start_member(work())
    await run_ready_tasks()
    writes.let_fail("one")
    with pytest.raises(ValueError, match="two"):
        await task


async def test_a_task_that_is_not_of_a_member_cannot_be_suspended(start_member):
    from shoal.stores.postgres.suspended_tasks import is_suspendable

    async def read_state():
        await asyncio.sleep(0)
        return is_suspendable()

    assert await asyncio.create_task(read_state()) is False
    assert await start_member(read_state()) is True
