"""Access to the team store for commands on teams, tasks and mail, and the choice of a team or a board."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from shoal.app.teams.team_store import TeamStore
    from shoal.core.names import AgentName

ResultT = TypeVar("ResultT")
PERSON = "user"
"""Name used for a person at the command line."""

team_option = click.option("--team", metavar="NAME", help="The team; required only if there are several.")


def run_with_team_store(
    work: Callable[[TeamStore], Awaitable[ResultT]], *, read_only: bool = False
) -> ResultT:
    """Run the work with the team store that the user's home uses; views use it `read_only`."""
    from shoal.app.settings.configured_store import open_home_store
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.app.teams.team_store import TeamStore
    from shoal.core.clock import SystemClock
    from shoal.core.ids import IdGenerator
    from shoal.stores.store_choice import get_shared_address
    from shoal.surfaces.cli.cli_output import print_journal_damage
    from shoal.surfaces.terminal.user_messages import print_user_message

    home = find_process_shoal_home()

    store = open_home_store(home, read_only=read_only)
    if read_only:
        print_journal_damage()

    async def run_work_and_close_store() -> ResultT:
        team_store = TeamStore(
            store,
            clock=SystemClock(),
            ids=IdGenerator(),
            report=print_user_message,
        )
        start = time.time()
        try:
            return await work(team_store)
        finally:
            if not read_only and get_shared_address(store) is None:
                _record_own_writes(home, team_store, start)
            await team_store.aclose()

    return asyncio.run(run_work_and_close_store())


def _record_own_writes(home: Path, store: TeamStore, start: float) -> None:
    """Record the changes of this command, so that they do not count as those of another program."""
    from shoal.core.errors import StateFileError
    from shoal.stores.files.teams.team_ownership import record_own_writes

    for team in store.list_opened_teams():
        with suppress(StateFileError):
            record_own_writes(home, team, start=start)


def get_person_agent_name() -> AgentName:
    from shoal.core.names import AgentName

    return AgentName(PERSON)


async def choose_team(
    store: TeamStore, requested: str | None, hint: str = "Specify a team with --team NAME."
) -> str:
    """Return the named team, or the only one."""
    from shoal.app.teams.team_lookup import find_team_name

    teams = await store.rosters.list_teams()
    if requested is not None:
        name = await find_team_name(store, requested)
        if name is None:
            raise click.UsageError(f"There is no team {requested}. {_format_available_teams_hint(teams)}")
        return name
    if len(teams) != 1:
        raise click.UsageError(
            f"Which team? {_format_available_teams_hint(teams)} {hint if teams else ''}".rstrip()
        )
    return teams[0]


async def choose_task_board(store: TeamStore, team: str | None, session: str | None) -> str:
    """Return the board of the team or session; if neither is named, the only team's or latest session's."""
    if team is not None and session is not None:
        raise click.UsageError("--team and --session name two different boards. Use only one of them.")
    if session is not None:
        return _find_session_board_name(session)
    if team is not None or await store.rosters.list_teams():
        return await choose_team(store, team)
    return _find_session_board_name(None)


def _find_session_board_name(requested: str | None) -> str:
    from shoal.app.settings.configured_store import open_home_store
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.core.errors import SessionNotFound

    store = open_home_store(find_process_shoal_home(), read_only=True)
    if requested is not None:
        return store.find_session(requested).session
    try:
        return store.find_latest_session(str(Path.cwd())).session
    except SessionNotFound:
        raise click.UsageError(
            f"There is no team, and no session has worked in {Path.cwd()}. "
            "Specify a board with --team NAME or --session ID."
        ) from None


def _format_available_teams_hint(teams: Sequence[str]) -> str:
    if teams:
        return f"Existing teams: {', '.join(teams)}."
    return 'There are no teams yet. Start one: shoal team start review "the last commit"'
