"""`shoal watch`: what a run does, from another terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.core.clock import SystemClock
from shoal.core.events import (
    Event,
    RequestSettled,
    SessionEnded,
    SessionStarted,
    TurnEnded,
    TurnStarted,
)
from shoal.core.usage import Usage
from shoal.surfaces.cli.activity import Activity
from shoal.surfaces.cli.paint import BOLD, DIM, YELLOW, count, cut, dollars, one_line
from shoal.surfaces.cli.progress import LiveLine
from shoal.surfaces.cli.screen import Screen, screen_for
from shoal.surfaces.cli.telling import Telling

if TYPE_CHECKING:
    from shoal.app.watching import Run, Seen


@click.command(
    name="watch",
    help="Follow a run: the one with this id (or its beginning), else the newest live one of this directory.",
)
@click.argument("session", required=False)
@click.option("--json", "as_json", is_flag=True, help="The events themselves, one JSON object per line.")
def command(*, session: str | None, as_json: bool) -> int:
    run = _chosen(session)
    if run is None:
        return 1
    try:
        asyncio.run(_print(run) if as_json else _tell(run))
    except KeyboardInterrupt:
        return 130
    return 0


def _chosen(session: str | None) -> Run | None:
    from shoal.app.settings import find_home
    from shoal.app.watching import find_run, live_runs

    cwd = Path.cwd()
    home = find_home(os.environ, cwd)
    if session is not None:
        return find_run(home, session)
    runs = live_runs(home, cwd)
    if not runs:
        print(_nothing_live(home, cwd), file=sys.stderr)
        return None
    for other in runs[1:]:
        print(f"shoal: another one is live: shoal watch {other.session}", file=sys.stderr)
    return runs[0]


def _nothing_live(home: Path, cwd: Path) -> str:
    from shoal.stores.files.sessions import list_sessions

    lines = [f"shoal: No run is live in {cwd}."]
    past = list_sessions(home, str(cwd), limit=5)
    if past:
        lines.append("Past ones can be printed:")
        lines.extend(f"  shoal watch {each.session[:8]}  {cut(one_line(each.prompt), 52)}" for each in past)
    return "\n".join(lines)


async def _print(run: Run) -> None:
    from shoal.app.watching import watch
    from shoal.wire.content import dump

    async for seen in watch(run):
        sys.stdout.buffer.write(dump(getattr(seen, "raw", seen)) + b"\n")
        sys.stdout.buffer.flush()


async def _tell(run: Run) -> None:
    from shoal.app.watching import watch

    screen = screen_for(sys.stdout)
    onlooker = _Onlooker(screen, live=run.is_live)
    try:
        async for seen in watch(run):
            onlooker.hear(seen)
    except asyncio.CancelledError:
        onlooker.close()
        raise
    onlooker.close(over=True)


class _Onlooker:
    """Tells what is seen; while a turn of a live run goes on, what is being done stands below."""

    def __init__(self, screen: Screen, *, live: bool) -> None:
        self._screen = screen
        self._telling = Telling(screen, onlooker=True)
        self._live = live
        self._activity = Activity(SystemClock())
        self._line: LiveLine | None = None
        self._usage = Usage()
        self._usd = 0.0
        self._ended = False

    def hear(self, seen: Seen) -> None:
        match seen:
            case SessionStarted(session=session, model=model, cwd=cwd):
                self._screen.fresh_line()
                self._screen.write(f"session {session}", BOLD)
                self._screen.write(f"  {model} · {cwd}\n", DIM)
            case TurnStarted():
                self._turn(going_on=True)
            case TurnEnded() | SessionEnded():
                self._turn(going_on=False)
                self._ended = isinstance(seen, SessionEnded)
            case RequestSettled(usage=usage, cost_usd=cost):
                self._usage, self._usd = self._usage + usage, self._usd + (cost or 0.0)
            case _:
                pass
        if isinstance(seen, Event):
            self._activity.hear(seen)
            self._telling.hear(seen)

    def close(self, *, over: bool = False) -> None:
        """`over`: nothing more will come. Otherwise the person stopped looking."""
        self._turn(going_on=False)
        self._screen.fresh_line()
        if over and not self._ended:
            self._screen.write("  the run ended without saying so: its process is gone\n", YELLOW)
        self._screen.write(f"\n  {count(self._usage.total_tokens)} tokens · {dollars(self._usd)}\n", DIM)
        self._screen.close()

    def _turn(self, *, going_on: bool) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
        if going_on and self._live:
            self._activity = Activity(SystemClock())
            self._line = LiveLine(self._screen, self._activity)
