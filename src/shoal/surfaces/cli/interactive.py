"""`shoal` at a terminal: a plain streaming prompt."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from shoal.surfaces.cli.paint import BOLD, DIM, YELLOW, count, cut, dollars, one_line
from shoal.surfaces.cli.prompt import LivePrompt, PlainPrompt, Prompt
from shoal.surfaces.cli.screen import LiveScreen, Screen, screen_for
from shoal.surfaces.cli.sentences import cut_off_agents, stopped_agents
from shoal.surfaces.cli.slash import completions
from shoal.surfaces.cli.talk import Talk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import TypeAlias

    from shoal.app.options import Options
    from shoal.app.session import Session
    from shoal.core.agents import Glimpse
    from shoal.core.messages import Message

    Prepare: TypeAlias = Callable[[Session], Awaitable[str]]

_NOT_THE_PERSONS = ("<teammate-message", "<agent-message", "<task-notification", "<system-reminder")
RECALLED = 400
"""Columns of the last prompt and answer that a resumed session begins with."""


def interactive(options: Options, prompt: str | None, prepare: Prepare | None = None) -> int:
    """Talk until the person ends it; the exit code. Without a terminal it is a headless run, and says so."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _without_terminal(options, prompt)
    from shoal.app.settings import find_home
    from shoal.surfaces.cli.setup import offer
    from shoal.surfaces.cli.trust import ask_once

    ask_once(options)
    offer(options)
    return asyncio.run(converse(options, prompt, find_home(os.environ, Path.cwd()), prepare))


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


async def converse(options: Options, prompt: str | None, home: Path, prepare: Prepare | None = None) -> int:
    """Until the person ends it; the exit status. `home` is where the history of prompts is kept.

    `prepare` gives the first prompt once the session is open.
    """
    from shoal.app.session import Session
    from shoal.app.watching import Run
    from shoal.surfaces.cli.ps import standings_of

    options = structs.replace(options, attended=True)
    screen = screen_for(sys.stdout)
    place: Prompt
    now: list[Session] = []
    """The session that runs."""
    if isinstance(screen, LiveScreen):
        place = LivePrompt(screen, home / "shoal" / "history", lambda: completions(now))
    else:
        place = PlainPrompt(screen)
    place.open()
    try:
        while True:
            async with Session(options) as session:
                now[:] = [session]
                _greet(screen, session)
                so_far = standings_of(Run(session=session.id, home=home))
                talk = Talk(session, screen, place, so_far)
                outcome = await talk.go(prompt if prepare is None else await prepare(session))
                session.parts.occasions.ending = "clear" if outcome == "cleared" else "prompt_input_exit"
                _farewell(screen, session, await session.stop_agents())
            if outcome == "ended":
                return talk.status
            prompt = prepare = None
            fresh = {"resume": None, "continue_last": False, "fork": False, "session_id": None}
            options = structs.replace(options, begun="clear", **fresh)
    finally:
        place.close()


def _greet(screen: Screen, session: Session) -> None:
    screen.write("shoal", BOLD)
    screen.write(f"  {session.agent.model.card.id} · {session.parts.workspace.root}\n", DIM)
    for note in session.notes:
        screen.write(f"  {one_line(note)}\n", YELLOW)
    left_over = session.parts.left_over
    if left_over is not None and left_over.cut_off:
        screen.write(f"  {cut_off_agents(left_over.cut_off)}\n", YELLOW)
    screen.write("  /help lists the commands, Ctrl-D ends\n\n", DIM)
    _recall(screen, session.agent.conversation.messages)


def _recall(screen: Screen, messages: Sequence[Message]) -> None:
    """Where a resumed conversation stands: the last thing asked, and the last thing said."""
    prompts = (m.text for m in reversed(messages) if m.role == "user" and m.text)
    asked = next((text for text in prompts if not text.startswith(_NOT_THE_PERSONS)), "")
    said = next((m.text for m in reversed(messages) if m.role == "assistant" and m.text), "")
    if asked:
        screen.write(f"› {cut(one_line(asked), RECALLED)}\n", DIM)
        screen.write(f"{cut(one_line(said), RECALLED)}\n\n", DIM)


def _farewell(screen: Screen, session: Session, stopped: Sequence[Glimpse]) -> None:
    screen.fresh_line()
    if stopped:
        screen.write(f"{stopped_agents(stopped)}\n", YELLOW)
        screen.write("  In the session, /agents send ID TEXT lets one go on.\n", DIM)
    if session.turn == 0:
        return
    purse = session.agent.purse.tree
    screen.write(
        f"  {dollars(purse.usd if purse.priced else None)} · {count(purse.usage.total_tokens)} tokens\n", DIM
    )
    screen.write("  Go on with: ", DIM)
    screen.write(f"shoal --resume {session.id}\n")
