"""`shoal` at a terminal, on the full screen: sessions one after another under one app."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.clock import SystemClock
from shoal.core.wording import one_line
from shoal.surfaces.terminal.paint import DIM, YELLOW
from shoal.surfaces.terminal.screen import screen_for
from shoal.surfaces.terminal.sentences import cut_off_agents
from shoal.surfaces.terminal.sittings import say_farewell, sittings
from shoal.surfaces.tui.app import ShoalApp
from shoal.surfaces.tui.breaking import tell_of_far_fault, tell_of_fault
from shoal.surfaces.tui.far import FarSeat
from shoal.surfaces.tui.own import OwnSeat

if TYPE_CHECKING:
    from shoal.app.options import Options
    from shoal.app.outside.watching import Run
    from shoal.app.session.session import Session
    from shoal.core.agents import Glimpse
    from shoal.surfaces.terminal.sittings import Prepare

_LIGHT = ("7", "15")
"""Numbers of colours that terminals have behind the text where they are light."""
GONE_WITHIN = 20.0
"""Seconds until the process ends whatever is left, once the terminal is gone."""

LEFT_WITHIN = 20.0
"""Seconds for a run to end in order, once the screen has broken."""


async def full_screen(
    options: Options, prompt: str | None, home: Path, prepare: Prepare | None = None
) -> int:
    """Until the person ends it; the exit status."""
    app = ShoalApp(home / "shoal" / "history")
    left: list[tuple[Session, Sequence[Glimpse]]] = []

    async def sit(session: Session) -> OwnSeat:
        return await seated(app, session)

    async def live() -> int:
        try:
            return await sittings(options, prompt, prepare, sit=sit, leave=lambda *ended: left.append(ended))
        finally:
            app.exit()

    try:
        status = await run_with(app, live)
    finally:
        if app.broke is not None and not options.debug:
            session = app.seat.session if isinstance(app.seat, OwnSeat) else None
            tell_of_fault(app.broke, session, app.unsent, kept=options.persist)
    if app.broke is not None and options.debug:
        raise app.broke
    screen = screen_for(sys.stdout)
    for session, stopped in left:
        say_farewell(screen, session, stopped)
    screen.close()
    return status


async def attached(run: Run, home: Path) -> int:
    """At a run of another process, until the person leaves; the exit status."""
    app = ShoalApp(home / "shoal" / "history")
    app.theme = theme_for(None, os.environ)

    async def live() -> int:
        try:
            seat = FarSeat(run, SystemClock(), app)
            await app.sit(seat)
            return await seat.go()
        finally:
            app.exit()

    status = await run_with(app, live)
    if app.broke is not None:
        tell_of_far_fault(app.broke, run, app.unsent)
        return status
    screen = screen_for(sys.stdout)
    if run.is_live:
        screen.write(f"  The run goes on. Come back: shoal attach {run.session[:8]}\n", DIM)
    screen.close()
    return status


async def seated(app: ShoalApp, session: Session) -> OwnSeat:
    """The app shows this session from now on."""
    seat = OwnSeat(session, app)
    app.theme = theme_for(session.parts.settings.own.theme, os.environ)
    if not session.agent.conversation.messages:
        seat.telling.note("/help lists the commands, F2 shows the agents, Ctrl-D ends.")
    for note in session.notes:
        seat.telling.note(one_line(note), YELLOW)
    left_over = session.parts.left_over
    if left_over is not None and left_over.cut_off:
        seat.telling.note(cut_off_agents(left_over.cut_off), YELLOW)
    await app.sit(seat)
    return seat


def theme_for(wanted: str | None, environ: Mapping[str, str]) -> str:
    """The name that Textual has for it; terminals that say whether they are light do so by COLORFGBG."""
    told = "light" if environ.get("COLORFGBG", "").rpartition(";")[2] in _LIGHT else "dark"
    return f"ansi-{told}" if wanted == "ansi" else f"textual-{wanted or told}"


async def run_with(app: ShoalApp, life: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """The app and what it shows; either's end is the end of both. What ended it badly is raised."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, app.leave, 128 + signal.SIGTERM)
    # Not by the loop: what writes to a terminal that is gone may hold the loop itself up.
    before = signal.signal(signal.SIGHUP, lambda *_: _hung_up(loop, app))
    living: list[asyncio.Task[int]] = []
    # Begun by the app: what belongs to it can only be touched from tasks that descend from it.
    app.when_ready = lambda: living.append(asyncio.create_task(life()))
    try:
        await app.run_async()
        if app.broke is not None and app.seat is not None and app.seat.open:
            # Whatever the screen is, the run ends as when a person leaves it.
            app.leave(1)
            await asyncio.wait(living, timeout=LEFT_WITHIN)
        for task in living:
            task.cancel()
        if living:
            await asyncio.wait(living)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGHUP, before)
    if living and not living[0].cancelled():
        return living[0].result()
    return app.hung_up or (app.return_code or 0)


def _hung_up(loop: asyncio.AbstractEventLoop, app: ShoalApp) -> None:
    """The terminal is gone: what is still drawn goes nowhere, and nobody waits for it."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
    status = 128 + signal.SIGHUP
    last = threading.Timer(GONE_WITHIN, os._exit, (status,))
    last.daemon = True
    last.start()
    loop.call_soon_threadsafe(app.leave, status)
