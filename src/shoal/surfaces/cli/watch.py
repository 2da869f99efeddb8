"""`shoal watch` command: follow a run from another terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.app.picture.picture import describe_unknown_event
from shoal.app.picture.standing import Standings
from shoal.core.clock import Clock, SystemClock
from shoal.core.events import (
    Asked,
    Event,
    MailPosted,
    RequestSettled,
    SessionEnded,
    SessionStarted,
    TaskChanged,
    TurnEnded,
    TurnStarted,
)
from shoal.core.ids import LEAD
from shoal.core.usage import Usage
from shoal.core.wording import count, dollars, one_line
from shoal.surfaces.cli.headless.progress import LiveRows
from shoal.surfaces.cli.plain.agent_rows import detailed_rows
from shoal.surfaces.cli.plain.telling import Telling
from shoal.surfaces.terminal.activity import Activity
from shoal.surfaces.terminal.event_words import previewed
from shoal.surfaces.terminal.paint import BOLD, DIM, YELLOW, cut_at_word, painted
from shoal.surfaces.terminal.screen import Screen, screen_for

if TYPE_CHECKING:
    from shoal.app.outside.watching import Run, Sighting
    from shoal.wire.journal import Unknown


_BOXES = {"pending": "☐", "in_progress": "◐", "completed": "☑", "deleted": "☒"}


@click.command(
    name="watch",
    help="Follow a run: the one with this id (or its beginning), else the newest live one of this directory.",
)
@click.argument("session", required=False)
@click.option("--json", "as_json", is_flag=True, help="The events themselves, one JSON object per line.")
@click.option(
    "--frames",
    is_flag=True,
    help="The live view as JSON: a line has the rows of agents, tasks, mail, questions, costs that changed.",
)
def command(*, session: str | None, as_json: bool, frames: bool) -> int:
    run = _chosen(session)
    if run is None:
        return 1
    try:
        asyncio.run(print_frames(run) if frames else print_events(run) if as_json else _tell(run))
    except KeyboardInterrupt:
        return 130
    return 0


def _chosen(session: str | None) -> Run | None:
    from shoal.app.outside.watching import find_run, live_runs
    from shoal.app.settings.settings import find_home

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
        lines.extend(
            f"  shoal watch {each.session[:8]}  {cut_at_word(one_line(each.prompt), 52)}" for each in past
        )
    return "\n".join(lines)


async def print_events(run: Run) -> None:
    from shoal.app.outside.watching import watch
    from shoal.wire.content import dump

    async for seen in watch(run, SystemClock()):
        sys.stdout.buffer.write(dump(getattr(seen.event, "raw", seen.event)) + b"\n")
        sys.stdout.buffer.flush()


async def print_frames(run: Run) -> None:
    from shoal.app.outside.following import Followed
    from shoal.wire.content import dump

    async with Followed(run, SystemClock()) as followed:
        async for frame in followed.frames():
            sys.stdout.buffer.write(dump(frame) + b"\n")
            sys.stdout.buffer.flush()
            if followed.over and frame.offset == followed.picture.offset:
                return


async def _tell(run: Run) -> None:
    from shoal.app.outside.watching import watch

    screen, clock = screen_for(sys.stdout), SystemClock()
    onlooker = _Onlooker(screen, clock, live=run.is_live, session=run.session)
    try:
        async for seen in watch(run, clock):
            onlooker.hear(seen)
    except asyncio.CancelledError:
        onlooker.close()
        raise
    onlooker.close(over=True)


class _Onlooker:
    """Prints a run's events; while a live run is active, rows below show what each agent does."""

    def __init__(self, screen: Screen, clock: Clock, *, live: bool, session: str) -> None:
        self._screen = screen
        self._session = session
        self._clock = clock
        self._standings = Standings()
        self._telling = Telling(screen, onlooker=True, standings=self._standings)
        self._live = live
        self._activity = Activity(clock)
        self._in_turn = False
        self._rows: LiveRows | None = None
        self._usage = Usage()
        self._usd = 0.0
        self._ended = False
        self._unknown: set[str] = set()

    def hear(self, seen: Sighting) -> None:
        event = seen.event
        if not isinstance(event, Event):
            self._note_unknown(event)
            return
        self._standings.hear(event, seen.at / 1000)
        match event:
            case SessionStarted(session=session, model=model, cwd=cwd):
                self._screen.fresh_line()
                self._screen.write(f"session {session}", BOLD)
                self._screen.write(f"  {model} · {cwd}\n", DIM)
            case TurnStarted():
                self._activity, self._in_turn = Activity(self._clock), True
            case TurnEnded() | SessionEnded():
                self._in_turn = False
                self._ended = isinstance(event, SessionEnded)
            case RequestSettled(usage=usage, cost_usd=cost):
                self._usage, self._usd = self._usage + usage, self._usd + (cost or 0.0)
            case _:
                pass
        self._activity.hear(event)
        self._telling.hear(event)
        self._tell_of_team(event)
        self._draw(going_on=self._in_turn or bool(self._standings.at_work()))

    def _note_unknown(self, event: Unknown) -> None:
        if event.type not in self._unknown:
            self._unknown.add(event.type)
            self._telling.note(describe_unknown_event(event))

    def _tell_of_team(self, event: Event) -> None:
        match event:
            case MailPosted(kind="message", sender=sender, to=to, preview=preview):
                letter = f"✉ {sender} → {to}: {one_line(previewed(preview))}"
                self._telling.note(cut_at_word(letter, self._screen.columns - 3))
            case TaskChanged(task=task, subject=subject, status=status, owner=owner):
                whose = f" ({owner})" if owner else ""
                self._telling.note(f"{_BOXES.get(status, '☐')} #{task} {one_line(subject)}{whose}")
            case Asked(question=question):
                self._telling.note(f"answer it with: shoal ask answer {question.id}")
            case _:
                pass

    def close(self, *, over: bool = False) -> None:
        """Close the screen; `run_ended` means that no events will follow, else the user stopped watching."""
        self._draw(going_on=False)
        self._screen.fresh_line()
        if over and not self._ended:
            self._screen.write("  the run ended without saying so: its process is gone\n", YELLOW)
            self._screen.write(f"  go on with it: shoal --resume {self._session}\n", YELLOW)
        self._screen.write(f"\n  {count(self._usage.total_tokens)} tokens · {dollars(self._usd)}\n", DIM)
        self._screen.close()

    def _draw(self, *, going_on: bool) -> None:
        if going_on and self._live and self._rows is None:
            self._rows = LiveRows(self._screen, self._drawn)
        elif not going_on and self._rows is not None:
            self._rows.close()
            self._rows = None

    def _drawn(self, columns: int) -> list[str]:
        colours = self._screen.colours
        lead = [painted(self._activity.line(columns), DIM, colours=colours)] if self._in_turn else []
        agents = [each for each in self._standings.tree() if each.agent != LEAD and each.live]
        return [*lead, *detailed_rows(agents, self._clock.now() / 1000, columns, colours=colours)]
