"""Library API: open a session, or run one prompt from synchronous code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.app.options import Options
from shoal.app.session.session import Session
from shoal.app.session.turn import Turn
from shoal.core.events import Event, RunFinished


def open(*, cwd: str | Path | None = None, **options: Any) -> Session:  # noqa: A001 - used as shoal.open
    """Return a session to enter with `async with`; the keywords are the fields of `Options`."""
    return Session(Options(cwd=None if cwd is None else Path(cwd), **options))


def run_sync(
    prompt: str,
    *,
    cwd: str | Path | None = None,
    on_event: Callable[[Event], object] | None = None,
    **options: Any,
) -> RunFinished:
    """Run one prompt and return its end; `on_event` is called with each event.

    It is the end of the last turn: reports of background agents are handled before.
    """

    async def run_prompt() -> RunFinished:
        async with open(cwd=cwd, **options) as session:
            turn: Turn | None = session.run(prompt)
            while turn is not None:
                async for event in turn:
                    if on_event is not None:
                        on_event(event)
                    if isinstance(event, RunFinished):
                        finished = event
                turn = await session.next_turn()
            return finished

    return asyncio.run(run_prompt())
