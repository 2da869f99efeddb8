"""Starts the full-screen terminal: sessions one after another in one app."""

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
"""Background colour numbers of light terminals, as in COLORFGBG."""
GONE_WITHIN = 20.0
"""Seconds until the process exits after the terminal is gone."""

LEFT_WITHIN = 20.0
"""Seconds for a run to end cleanly after the screen crashed."""


async def full_screen(
    options: Options, prompt: str | None, home: Path, prepare: Prepare | None = None
) -> int:
    """Run sessions until the person leaves; return the exit status."""
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
    """Show a run of another process until the person leaves; return the exit status."""
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
    """Show this session in the app from now on."""
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
    """Return Textual's theme name; terminals announce a light background in COLORFGBG."""
    told = "light" if environ.get("COLORFGBG", "").rpartition(";")[2] in _LIGHT else "dark"
    return f"ansi-{told}" if wanted == "ansi" else f"textual-{wanted or told}"


async def run_with(app: ShoalApp, life: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run the app and a coroutine; the end of one ends both. Raises the exception that ended it."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, app.leave, 128 + signal.SIGTERM)
    # Not by the loop: a write to a terminal that is gone may block the loop itself.
    before = signal.signal(signal.SIGHUP, lambda *_: _hung_up(loop, app))
    living: list[asyncio.Task[int]] = []
    # Started by the app: its widgets can only be used from tasks that descend from it.
    app.when_ready = lambda: living.append(asyncio.create_task(life()))
    try:
        await app.run_async()
        if app.broke is not None and app.seat is not None and app.seat.open:
            # Even if the screen crashed, the run ends as if the person had left.
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
    """Leave the run after the terminal is gone: output goes to /dev/null, and the exit is bounded."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
    status = 128 + signal.SIGHUP
    last = threading.Timer(GONE_WITHIN, os._exit, (status,))
    last.daemon = True
    last.start()
    loop.call_soon_threadsafe(app.leave, status)
