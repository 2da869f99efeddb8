"""Interactive session at a terminal, on the full screen or line by line."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from shoal.core.wording import one_line
from shoal.surfaces.cli.plain.prompt import LivePrompt, PlainPrompt, Prompt
from shoal.surfaces.cli.plain.talk import Talk
from shoal.surfaces.terminal.paint import BOLD, DIM, YELLOW, cut
from shoal.surfaces.terminal.screen import LiveScreen, Screen, screen_for
from shoal.surfaces.terminal.sentences import cut_off_agents
from shoal.surfaces.terminal.slash import completions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.app.options import Options
    from shoal.app.session.session import Session
    from shoal.core.messages import Message
    from shoal.surfaces.terminal.sittings import Prepare

_NOT_THE_PERSONS = ("<teammate-message", "<agent-message", "<task-notification", "<system-reminder")
RECALLED = 400
"""Maximum columns of the last prompt and answer shown when a session is resumed."""


def interactive(
    options: Options, prompt: str | None, prepare: Prepare | None = None, *, plain: bool = False
) -> int:
    """Run until the user ends it and return the exit code; without a terminal, announce and run headless."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _without_terminal(options, prompt)
    from shoal.app.settings.settings import find_home
    from shoal.surfaces.cli.setup import offer
    from shoal.surfaces.cli.trust import ask_once

    ask_once(options)
    offer(options)
    from shoal.surfaces.cli.plainness import is_plain

    home = find_home(os.environ, Path.cwd())
    if plain or is_plain(options.cwd or Path.cwd(), options.settings, options.setting_sources):
        return asyncio.run(converse(options, prompt, home, prepare))
    from shoal.surfaces.tui.launch import full_screen

    return asyncio.run(full_screen(options, prompt, home, prepare))


def _without_terminal(options: Options, prompt: str | None) -> int:
    import click

    from shoal.surfaces.cli.headless.output import Wanted
    from shoal.surfaces.cli.headless.run import Job, headless
    from shoal.surfaces.cli.headless.stdin import with_piped
    from shoal.surfaces.terminal.sentences import say

    whole = with_piped(prompt)
    if not whole:
        asked = click.get_current_context().command_path
        raise click.UsageError(f'There is no terminal to talk at. Give a prompt: {asked} -p "…"')
    say("There is no terminal to talk at, so this runs as with -p.")
    options = structs.replace(options, attended=False)
    return headless(Job(options=options, prompt=whole, output=Wanted()))


async def converse(options: Options, prompt: str | None, home: Path, prepare: Prepare | None = None) -> int:
    """Run the plain terminal until the user ends it, and return the exit code.

    `home` holds the prompt history. `prepare` returns the first prompt once the session is open.
    """
    from shoal.app.outside.watching import Run, standings_of
    from shoal.surfaces.terminal.sittings import say_farewell, sittings

    screen = screen_for(sys.stdout)
    place: Prompt
    now: list[Session] = []
    """The running session."""
    if isinstance(screen, LiveScreen):
        place = LivePrompt(screen, home / "shoal" / "history", lambda: completions(now))
    else:
        place = PlainPrompt(screen)

    async def sit(session: Session) -> Talk:
        now[:] = [session]
        _greet(screen, session)
        return Talk(session, screen, place, standings_of(Run(session=session.id, home=home)))

    place.open()
    try:
        return await sittings(
            options,
            prompt,
            prepare,
            sit=sit,
            leave=lambda session, stopped: say_farewell(screen, session, stopped),
        )
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
    """Print the last prompt and the last answer of a resumed conversation."""
    prompts = (m.text for m in reversed(messages) if m.role == "user" and m.text)
    asked = next((text for text in prompts if not text.startswith(_NOT_THE_PERSONS)), "")
    said = next((m.text for m in reversed(messages) if m.role == "assistant" and m.text), "")
    if asked:
        screen.write(f"› {cut(one_line(asked), RECALLED)}\n", DIM)
        screen.write(f"{cut(one_line(said), RECALLED)}\n\n", DIM)
