"""`shoal --agent-id …` command: this process as a member of a team that another program leads.

Users do not type these arguments: the lead's program starts its teammates with them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from shoal.core.clock import SystemClock
from shoal.surfaces.cli import exits
from shoal.surfaces.terminal.paint import BOLD, DIM

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.core.backends import Papers
    from shoal.core.events import Event
    from shoal.surfaces.terminal.screen import Screen


@click.command(
    name="member", context_settings={"ignore_unknown_options": True, "allow_extra_args": True}, hidden=True
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def command(*, words: tuple[str, ...]) -> int:
    from shoal.core.errors import BadName
    from shoal.wire.papers import papers_of

    try:
        papers = papers_of(words)
    except (ValueError, BadName) as error:
        raise click.UsageError(f"This process cannot be a teammate: {error}.") from error
    return asyncio.run(_serve(papers))


async def _serve(papers: Papers) -> int:
    from shoal.app.session.enlisted import options_of, serve
    from shoal.app.session.session import Session
    from shoal.surfaces.terminal.screen import screen_for

    screen = screen_for(sys.stdout)
    try:
        async with Session(options_of(papers)) as session:
            _head(screen, papers)
            session.watch(_told(screen))
            async with asyncio.TaskGroup() as tasks:
                typing = tasks.create_task(_typed(session, papers.name)) if sys.stdin.isatty() else None
                end = await serve(session)
                if typing is not None:
                    typing.cancel()
    finally:
        screen.close()
    return exits.OK if end.status != "failed" else exits.ERROR


def _told(screen: Screen) -> Callable[[Event], None]:
    from shoal.app.picture.standing import Standings
    from shoal.surfaces.cli.plain.telling import Telling

    standings, clock = Standings(), SystemClock()
    telling = Telling(screen, onlooker=True, standings=standings)

    def hear(event: Event) -> None:
        standings.hear(event, clock.now() / 1000)
        telling.hear(event)

    return hear


def _head(screen: Screen, papers: Papers) -> None:
    screen.write(f"{papers.name}", BOLD)
    screen.write(f"  {papers.kind} of the team {papers.team} · {papers.model}\n", DIM)


async def _typed(session: Session, name: str) -> None:
    """Send each typed line to the member, as a message from the user."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if text := line.decode(errors="replace").strip():
            await session.send(name, text)
