"""Background hooks: how many run at once, what is awaited, and what is stopped."""

from __future__ import annotations

import asyncio

import pytest

from shoal.core.errors import SettingsError
from shoal.core.extensions.hooks import Hook, ShellCommandHookAction
from shoal.policy.hooks.background_hooks import MAX_QUEUED, MAX_RUNNING, BackgroundHookRunner


class Jobs:
    """Jobs that run until they are released."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.release = asyncio.Event()

    async def work(self, number: int) -> None:
        self.started.append(number)
        await self.release.wait()


async def let_tasks_run() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_only_some_jobs_run_at_once_and_the_others_wait() -> None:
    jobs = Jobs()
    runner = BackgroundHookRunner[int]()
    assert not runner.is_open
    assert not runner.has_free_slot
    async with runner:
        assert runner.is_open
        assert runner.has_free_slot
        for number in range(MAX_RUNNING + MAX_QUEUED):
            assert not runner.is_full
            assert runner.has_free_slot is (number < MAX_RUNNING)
            runner.start_hook_job(number, lambda number=number: jobs.work(number), awaited=False)
        await let_tasks_run()
        assert jobs.started == list(range(MAX_RUNNING))
        assert runner.is_full
        assert not runner.has_free_slot
        jobs.release.set()
        async with asyncio.timeout(10):
            while runner.is_full or len(jobs.started) < MAX_RUNNING + MAX_QUEUED:
                await asyncio.sleep(0)
        assert jobs.started == list(range(MAX_RUNNING + MAX_QUEUED))
        await let_tasks_run()
        assert await runner.stop_all() == ()
        assert not runner.is_open
        assert not runner.has_free_slot


async def test_stopped_jobs_are_returned() -> None:
    jobs = Jobs()
    async with BackgroundHookRunner[str]() as runner:
        runner.start_hook_job("running", lambda: jobs.work(1), awaited=False)
        await let_tasks_run()
        runner.start_hook_job("new", lambda: jobs.work(2), awaited=False)
        assert await runner.stop_all() == ("running", "new")
        assert jobs.started == [1, 2]
        assert await runner.stop_all() == ()


async def test_jobs_are_stopped_at_the_end() -> None:
    jobs = Jobs()
    async with asyncio.timeout(10):
        async with BackgroundHookRunner[int]() as runner:
            runner.start_hook_job(1, lambda: jobs.work(1), awaited=True)
            await let_tasks_run()
    assert not runner.has_waking_hooks


async def test_only_awaited_jobs_are_waited_for_and_reported() -> None:
    jobs, changes = Jobs(), list[bool]()
    async with asyncio.timeout(10), BackgroundHookRunner[int]() as runner:
        runner.add_change_listener(lambda: changes.append(runner.has_waking_hooks))
        await runner.wait_until_no_waking_hooks()
        runner.start_hook_job(1, lambda: jobs.work(1), awaited=False)
        assert not runner.has_waking_hooks
        await runner.wait_until_no_waking_hooks()
        assert changes == []
        runner.start_hook_job(2, lambda: jobs.work(2), awaited=True)
        assert runner.has_waking_hooks
        assert changes == [True]
        waiting = [asyncio.create_task(runner.wait_until_no_waking_hooks()) for _ in range(2)]
        await let_tasks_run()
        assert not any(task.done() for task in waiting)
        jobs.release.set()
        await asyncio.gather(*waiting)
        assert changes == [True, False]
        assert not runner.has_waking_hooks


def make_hook(matcher: str) -> Hook:
    return Hook(
        event="PreToolUse", matcher=matcher, action=ShellCommandHookAction(command="x"), origin="here"
    )


@pytest.mark.parametrize(
    ("event", "entry", "problem"),
    [
        ("PreToolUse", {"matcher": "Bash"}, ""),
        ("PreToolUse", {"matcher": "Bash|own"}, ""),
        ("PreToolUse", {"matcher": "Task"}, ""),
        ("PreToolUse", {"matcher": "Bsh"}, "there is no tool named 'Bsh'. Did you mean"),
        ("PreToolUse", ("Bsh", print), "there is no tool named 'Bsh'."),
        ("PreToolUse", make_hook("Bash|Bsh"), "there is no tool named 'Bsh'."),
        ("PreToolUse", {"matcher": "mcp__x__y"}, ""),
        ("PreToolUse", {"matcher": "B.h"}, ""),
        ("PreToolUse", {"matcher": 3}, ""),
        ("PreToolUse", print, ""),
        ("SessionStart", {"matcher": "startup"}, ""),
        ("SessionStart", {"matcher": "start"}, "the source is never 'start'."),
        ("SubagentStart", {"matcher": "plumber"}, ""),
        ("SubagentStart", {"matcher": "plumer"}, "there is no agent named 'plumer'. Did you mean plumber?"),
        ("SubagentStart", {"matcher": "zzz"}, "there is no agent named 'zzz'. Known agents: plumber, cook."),
        ("Stop", {"matcher": "anything"}, ""),
    ],
)
def test_a_matcher_of_the_program_names_something(event: str, entry: object, problem: str) -> None:
    from shoal.app.hooks.hook_sources import refuse_unknown_matcher_names

    if not problem:
        refuse_unknown_matcher_names("here", {event: [entry]}, ["own"], ["plumber", "cook"])
        refuse_unknown_matcher_names("here", {event: [entry]}, ["own"])
        return
    with pytest.raises(SettingsError) as caught:
        refuse_unknown_matcher_names("here", {event: [entry]}, ["own"], ["plumber", "cook"])
    assert str(caught.value).startswith(f"here: hooks.{event}: {problem}")
    if event == "SubagentStart":
        refuse_unknown_matcher_names("here", {event: [entry]}, ["own"])
