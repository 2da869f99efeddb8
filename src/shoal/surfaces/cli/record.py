"""What the commands on teams, tasks and mail share: the record, the choice of a team, tables and JSON."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from shoal.core.wording import one_line
from shoal.surfaces.terminal.paint import BOLD, cut, has_colours, painted, width

if TYPE_CHECKING:
    from shoal.app.record import AgentsRecord
    from shoal.core.names import AgentName

Result = TypeVar("Result")
PERSON = "user"
"""The name under which a person at the command line acts."""
_NARROWEST = 20

team_option = click.option("--team", metavar="NAME", help="The team; needed only where there are several.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
debug_option = click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")


class Cell(NamedTuple):
    text: str
    style: str = ""


def with_record(work: Callable[[AgentsRecord], Awaitable[Result]]) -> Result:
    """Do it with the record of the person's home."""
    from shoal.app.record import AgentsRecord
    from shoal.app.settings import home_directory
    from shoal.core.clock import SystemClock
    from shoal.core.ids import Ids
    from shoal.surfaces.terminal.sentences import say

    async def run() -> Result:
        record = AgentsRecord(home_directory(), clock=SystemClock(), ids=Ids(), report=say)
        try:
            return await work(record)
        finally:
            await record.aclose()

    return asyncio.run(run())


def person() -> AgentName:
    from shoal.core.names import AgentName

    return AgentName(PERSON)


async def chosen_team(
    record: AgentsRecord, given: str | None, how: str = "Name one with --team NAME."
) -> str:
    """The team that was named, or the only one there is."""
    from shoal.core.names import team_name

    teams = await record.rosters.list()
    if given is not None:
        name = team_name(given)
        if name not in teams:
            raise click.UsageError(f"There is no team {name}. {_known(teams)}")
        return name
    if len(teams) != 1:
        raise click.UsageError(f"Which team? {_known(teams)} {how if teams else ''}".rstrip())
    return teams[0]


async def chosen_board(record: AgentsRecord, team: str | None, session: str | None) -> str:
    """The team's board, or the session's; where neither is named, the only team's or the latest session's."""
    if team is not None and session is not None:
        raise click.UsageError("--team and --session name two different boards: give one of them.")
    if session is not None:
        return _session(session)
    if team is not None or await record.rosters.list():
        return await chosen_team(record, team)
    return _session(None)


def _session(given: str | None) -> str:
    from shoal.app.settings import home_directory
    from shoal.stores.files.sessions import find_session, latest_session

    if given is not None:
        return find_session(home_directory(), given).stem
    latest = latest_session(home_directory(), str(Path.cwd()))
    if latest is None:
        raise click.UsageError(
            f"There is no team, and no session has worked in {Path.cwd()}. "
            "Name a board with --team NAME or --session ID."
        )
    return latest


def _known(teams: Sequence[str]) -> str:
    if teams:
        return f"There are: {', '.join(teams)}."
    return 'There are no teams yet. Start one: shoal team start review "the last commit"'


def print_json(value: Any) -> None:
    from shoal.wire.content import dump

    sys.stdout.write(dump(value).decode() + "\n")


def print_table(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """The last column takes what is left of the terminal; where there is none, nothing is cut."""
    colours = has_colours(sys.stdout)
    shown = [[Cell(one_line(cell.text), cell.style) for cell in row] for row in rows]
    widths = [
        max(width(head), *(width(row[column].text) for row in shown))
        for column, head in enumerate(heads[:-1])
    ]
    room = 10_000
    if sys.stdout.isatty():
        room = max(_NARROWEST, shutil.get_terminal_size().columns - sum(widths) - 2 * len(widths))
    for row in ([Cell(head, BOLD) for head in heads], *shown):
        parts = [
            painted(cell.text, cell.style, colours=colours) + " " * (size - width(cell.text))
            for cell, size in zip(row, widths, strict=False)
        ]
        last = row[-1]
        parts.append(painted(cut(last.text, room), last.style, colours=colours))
        sys.stdout.write("  ".join(parts).rstrip() + "\n")


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """A name and a value on each line; what has no value is left out. Long text keeps its lines."""
    from shoal.core.wording import clean

    colours = has_colours(sys.stdout)
    size = max((len(name) for name, value in facts if value), default=0)
    for name, value in facts:
        lines = clean(value).splitlines() if value else []
        for number, text in enumerate(lines):
            head = (
                painted(name, BOLD, colours=colours) + " " * (size - len(name)) if not number else " " * size
            )
            sys.stdout.write(f"{head}  {text}".rstrip() + "\n")
