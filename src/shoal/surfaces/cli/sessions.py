"""`shoal sessions`: what can be gone on with."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.surfaces.cli import exits

if TYPE_CHECKING:
    from shoal.stores.files.sessions import Glance

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_WIDEST_PROMPT = 70
_BEFORE_PROMPT = 52
"""Columns of a number, an id and an age."""


@click.command("sessions")
@click.option("--all", "everywhere", is_flag=True, help="Of every directory, not only this one.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="At most so many."
)
@click.option("--json", "as_json", is_flag=True, help="As a JSON array.")
def command(*, everywhere: bool, limit: int, as_json: bool) -> int:
    """List the sessions of this directory, the newest first."""
    sessions = recent(everywhere=everywhere, limit=limit)
    if as_json:
        from shoal.wire.content import dump

        click.echo(dump([_facts(session) for session in sessions]))
    elif sessions:
        for line in listed(sessions):
            click.echo(line)
        click.echo("\nGo on with one: shoal --resume ID (its first characters are enough)")
    else:
        where = "any directory" if everywhere else f"{Path.cwd()} (see also --all)"
        click.echo(f"There are no sessions in {where}.")
    return exits.OK


def recent(*, everywhere: bool = False, limit: int = 20) -> tuple[Glance, ...]:
    from shoal.app.settings import home_directory
    from shoal.stores.files.sessions import list_sessions

    return list_sessions(home_directory(), None if everywhere else str(Path.cwd()), limit=limit)


def picked() -> str:
    """The id of the session that the person chooses from the list."""
    sessions = recent(limit=10)
    if not sessions:
        raise click.UsageError(f"There are no sessions in {Path.cwd()}; see `shoal sessions --all`.")
    for number, line in enumerate(listed(sessions), 1):
        click.echo(f"{number:>3}  {line}", err=True)
    chosen: int = click.prompt("Go on with", type=click.IntRange(1, len(sessions)), default=1, err=True)
    return sessions[chosen - 1].session


def listed(sessions: Sequence[Glance]) -> Iterator[str]:
    """A line each: id, age, how it began."""
    from shutil import get_terminal_size

    from shoal.surfaces.cli.paint import cut, one_line

    room = get_terminal_size((_BEFORE_PROMPT + _WIDEST_PROMPT, 24)).columns - _BEFORE_PROMPT
    widest = max(20, min(room, _WIDEST_PROMPT))
    for session in sessions:
        yield f"{session.session}  {_age(session.at):>6}  {cut(one_line(session.prompt), widest)}"


def _facts(session: Glance) -> dict[str, object]:
    return {
        "session": session.session,
        "prompt": session.prompt,
        "updated_at": session.at,
        "bytes": session.size,
        "transcript": str(session.path),
    }


def _age(at: int) -> str:
    seconds = max(0, int(time.time() - at / 1000))
    size, unit = next((step for step in _STEPS if seconds >= step[0]), _STEPS[-1])
    return f"{seconds // size} {unit}"
