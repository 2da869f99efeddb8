"""`shoal` at a terminal: a plain streaming prompt."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from shoal.surfaces.cli.paint import BOLD, DIM, YELLOW, count, dollars, one_line
from shoal.surfaces.cli.prompt import Prompt
from shoal.surfaces.cli.screen import LiveScreen
from shoal.surfaces.cli.talk import Talk

if TYPE_CHECKING:
    from shoal.app.options import Options
    from shoal.app.session import Session


async def converse(options: Options, prompt: str | None, home: Path) -> int:
    """Until the person ends it; the exit status. `home` is where the history of prompts is kept."""
    from shoal.app.session import Session

    options = structs.replace(options, attended=True)
    screen = LiveScreen(sys.stdout)
    place = Prompt(screen, home / "shoal" / "history")
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


def _greet(screen: LiveScreen, session: Session) -> None:
    screen.write("shoal", BOLD)
    screen.write(f"  {session.agent.model.card.id} · {session.parts.workspace.root}\n", DIM)
    for note in session.notes:
        screen.write(f"  {one_line(note)}\n", YELLOW)
    screen.write("  /help lists the commands, Ctrl-D ends\n\n", DIM)


def _farewell(screen: LiveScreen, session: Session) -> None:
    screen.fresh_line()
    if session.turn == 0:
        return
    purse = session.agent.purse
    screen.write(
        f"  {dollars(purse.usd if purse.priced else None)} · {count(purse.usage.total_tokens)} tokens\n", DIM
    )
    screen.write("  Go on with: ", DIM)
    screen.write(f"shoal --resume {session.id}\n")
