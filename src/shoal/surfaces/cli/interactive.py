"""`shoal` at a terminal: a plain streaming prompt."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from shoal.surfaces.cli.paint import BOLD, DIM, YELLOW, count, dollars, one_line
from shoal.surfaces.cli.prompt import LivePrompt, PlainPrompt, Prompt
from shoal.surfaces.cli.screen import LiveScreen, Screen, screen_for
from shoal.surfaces.cli.talk import Talk

if TYPE_CHECKING:
    from shoal.app.options import Options
    from shoal.app.session import Session


def interactive(options: Options, prompt: str | None) -> int:
    """Talk until the person ends it; the exit code. Without a terminal it is a headless run, and says so."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _without_terminal(options, prompt)
    from shoal.app.settings import find_home

    return asyncio.run(converse(options, prompt, find_home(os.environ, Path.cwd())))


def _without_terminal(options: Options, prompt: str | None) -> int:
    import click

    from shoal.surfaces.cli import stdin
    from shoal.surfaces.cli.headless import Job, headless
    from shoal.surfaces.cli.output import Wanted
    from shoal.surfaces.cli.sentences import say

    piped = stdin.read_prompt() if stdin.piped() else ""
    whole = "\n\n".join(part for part in (prompt or "", piped) if part.strip())
    if not whole:
        raise click.UsageError('There is no terminal to talk at. Give a prompt: shoal -p "…"')
    say("There is no terminal to talk at, so this runs as with -p.")
    options = structs.replace(options, attended=False)
    return headless(Job(options=options, prompt=whole, output=Wanted()))


async def converse(options: Options, prompt: str | None, home: Path) -> int:
    """Until the person ends it; the exit status. `home` is where the history of prompts is kept."""
    from shoal.app.session import Session

    options = structs.replace(options, attended=True)
    screen = screen_for(sys.stdout)
    place: Prompt
    if isinstance(screen, LiveScreen):
        place = LivePrompt(screen, home / "shoal" / "history")
    else:
        place = PlainPrompt(screen)
    place.open()
    try:
        while True:
            async with Session(options) as session:
                _greet(screen, session)
                outcome = await Talk(session, screen, place).go(prompt)
                _farewell(screen, session)
            if outcome == "ended":
                return 0
            prompt = None
            options = structs.replace(options, resume=None, continue_last=False, fork=False, session_id=None)
    finally:
        place.close()


def _greet(screen: Screen, session: Session) -> None:
    screen.write("shoal", BOLD)
    screen.write(f"  {session.agent.model.card.id} · {session.parts.workspace.root}\n", DIM)
    for note in session.notes:
        screen.write(f"  {one_line(note)}\n", YELLOW)
    screen.write("  /help lists the commands, Ctrl-D ends\n\n", DIM)


def _farewell(screen: Screen, session: Session) -> None:
    screen.fresh_line()
    if session.turn == 0:
        return
    purse = session.agent.purse
    screen.write(
        f"  {dollars(purse.usd if purse.priced else None)} · {count(purse.usage.total_tokens)} tokens\n", DIM
    )
    screen.write("  Go on with: ", DIM)
    screen.write(f"shoal --resume {session.id}\n")
