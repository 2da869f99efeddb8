"""Ends the work of a session at its deadline, and removes old sessions in the background, once a day."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from threading import Event
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.stores.files.home.home_cleanup import HomeCleanupResult

TIME_LIMIT = 10.0
"""Seconds after which the rest is left to the next session."""


def start_old_session_cleanup(session: Session, tasks: asyncio.TaskGroup, exit_stack: AsyncExitStack) -> None:
    """Start the cleanup after the first request, until the session ends; the debug log gets its result."""
    session_ended = Event()
    exit_stack.callback(session_ended.set)

    def start_cleanup() -> None:
        if session_ended.is_set():
            return
        cleanup = _remove_old_sessions(session, session_ended)
        try:
            tasks.create_task(cleanup)
        except RuntimeError:
            # The session is ending because of an error.
            cleanup.close()

    session.runtime.events.call_after_first_request(start_cleanup)


async def _remove_old_sessions(session: Session, session_ended: Event) -> None:
    settings, clock = session.config.settings, session.clock
    deadline = clock.monotonic() + TIME_LIMIT

    def run_home_cleanup_if_due() -> HomeCleanupResult | None:
        from shoal.stores.files.home.home_cleanup import (
            is_home_cleanup_due,
            mark_home_cleanup_done,
            remove_old_home_files,
        )

        now = clock.now()
        if settings.cleanup_period_days and not is_home_cleanup_due(settings.home, now=now):
            return None
        sweep_result = remove_old_home_files(
            settings.home,
            days=settings.cleanup_period_days,
            now=now,
            should_continue=lambda: not session_ended.is_set() and clock.monotonic() < deadline,
        )
        if sweep_result.finished:
            mark_home_cleanup_done(settings.home, now=now)
        return sweep_result

    try:
        result = await asyncio.to_thread(run_home_cleanup_if_due)
        if result is None:
            return
        text = _format_cleanup_result(result, settings.cleanup_period_days)
    except Exception as error:  # noqa: BLE001 - boundary around the cleanup: its failure must not end a session
        text = f"Could not remove old sessions: {type(error).__name__}: {error}"
    session.runtime.events.note_in_debug_log(text)


def _format_cleanup_result(result: HomeCleanupResult, days: int) -> str:
    from shoal.core.text.text_format import format_count_with_noun

    lines = [
        f"Removed data older than {format_count_with_noun(days, 'day')} (cleanupPeriodDays): "
        f"{format_count_with_noun(len(result.sessions), 'session')}, "
        f"{format_count_with_noun(result.logs, 'debug log')} and "
        f"{format_count_with_noun(result.snapshots, 'shell snapshot')}.",
        *result.sessions,
        *result.problems,
    ]
    if not result.finished:
        lines.append("The cleanup stopped early; the next session will continue it.")
    return "\n".join(lines)


async def stop_all_work(session: Session, lock: asyncio.Lock, reason: str) -> None:
    """Stop all workflows, teammates and agents. Add those that worked to `interrupted_agents`.

    With the same lock, a second call waits until the first has ended.
    """
    async with lock:
        async with asyncio.TaskGroup() as group:
            # First: a program that sees its agents stop would report their end instead of the deadline.
            group.create_task(session.workflows.stop_all(reason))
            members = group.create_task(session.teams.close())
            agents = group.create_task(session.supervisor.stop_all_agents(reason))
        session.interrupted_agents = (*session.interrupted_agents, *members.result(), *agents.result())
