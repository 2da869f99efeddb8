"""`shoal watch`: what a run does, from another terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.surfaces.cli.paint import BOLD, DIM, YELLOW, count, dollars, one_line
from shoal.surfaces.cli.screen import Screen, screen_for

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
        lines.extend(f"  shoal watch {each.session}  {one_line(each.prompt)[:40]}" for each in past)
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
    try:
        await _follow(screen, watch(run))
    finally:
        screen.close()


async def _follow(screen: Screen, events: AsyncIterator[Seen]) -> None:
    from shoal.core.events import Event, RequestSettled, SessionEnded, SessionStarted
    from shoal.core.usage import Usage
    from shoal.surfaces.cli.telling import Telling

    telling = Telling(screen, onlooker=True)
    usage, usd, ended = Usage(), 0.0, False
    async for event in events:
        match event:
            case SessionStarted(session=session, model=model, cwd=cwd):
                screen.fresh_line()
                screen.write(f"session {session}", BOLD)
                screen.write(f"  {model} · {cwd}\n", DIM)
            case RequestSettled(usage=used, cost_usd=cost):
                usage, usd = usage + used, usd + (cost or 0.0)
            case SessionEnded():
                ended = True
            case Event():
                telling.hear(event)
            case _:
                pass
    screen.fresh_line()
    if not ended:
        screen.write("  the run ended without saying so: its process is gone\n", YELLOW)
    screen.write(f"\n  {count(usage.total_tokens)} tokens · {dollars(usd)}\n", DIM)
