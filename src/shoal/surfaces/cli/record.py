"""Access to the team store for commands on teams, tasks and mail, and the choice of a team or a board."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from shoal.app.teams.record import AgentsRecord
    from shoal.core.names import AgentName

Result = TypeVar("Result")
PERSON = "user"
"""Name under which a person at the command line acts."""

team_option = click.option("--team", metavar="NAME", help="The team; needed only where there are several.")


def with_record(work: Callable[[AgentsRecord], Awaitable[Result]]) -> Result:
    """Run the work with the team store of the user's home."""
    from shoal.app.settings.settings import home_directory
    from shoal.app.teams.record import AgentsRecord
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
    """Return the named team, or the only one."""
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
    """Return the board of the team or session; if neither is named, the only team's or latest session's."""
    if team is not None and session is not None:
        raise click.UsageError("--team and --session name two different boards: give one of them.")
    if session is not None:
        return _session(session)
    if team is not None or await record.rosters.list():
        return await chosen_team(record, team)
    return _session(None)


def _session(given: str | None) -> str:
    from shoal.app.settings.settings import home_directory
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
