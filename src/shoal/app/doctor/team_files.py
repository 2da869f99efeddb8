"""Damaged files of all teams, as the commands on these teams report them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from shoal.app.teams.team_store import TeamStore
from shoal.core.clock import SystemClock
from shoal.core.errors import InboxNotFound, InvalidName, ShoalError
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TeamName
from shoal.core.store import Store
from shoal.core.text.text_format import format_count_with_noun
from shoal.stores.store_choice import get_shared_address

_MAX_SECONDS = 3.0
"""Seconds after which no further file is checked."""


async def find_damaged_team_files(store: Store, home: Path, max_seconds: float = _MAX_SECONDS) -> list[str]:
    """Return a sentence for each damaged roster, inbox and task, those of the latest teams first.

    `store` must be read-only; the teams of a database have no files. If there is no time to check all teams,
    the last sentence says so.
    """
    if get_shared_address(store) is not None:
        return []
    deadline = time.monotonic() + max_seconds
    reports: dict[str, None] = {}
    teams = sorted(await _list_teams(store), key=lambda team: _get_change_time(home, team), reverse=True)
    for number, team in enumerate(teams):
        if not await _check_team(store, home, team, reports, deadline):
            unchecked = format_count_with_noun(len(teams) - number, "team")
            return [
                *reports,
                f"There was no time to check all files of {unchecked}. Check one team: shoal team show NAME",
            ]
    return list(reports)


async def _list_teams(store: Store) -> list[TeamName]:
    team_store = TeamStore(store, clock=SystemClock(), ids=IdGenerator())
    try:
        return list(await team_store.rosters.list_teams())
    finally:
        await team_store.aclose()


def _get_change_time(home: Path, team: TeamName) -> float:
    try:
        return (home / "teams" / team).lstat().st_mtime
    except OSError:
        return 0.0


async def _check_team(
    store: Store, home: Path, team: TeamName, reports: dict[str, None], deadline: float
) -> bool:
    """Read the roster, the board and each inbox; return False if there was no time to read them all."""
    # One for each team, so that the number of open directories does not grow with the number of teams.
    team_store = TeamStore(store, clock=SystemClock(), ids=IdGenerator(), report=reports.setdefault)
    try:
        mailboxes = team_store.open_mailboxes(team)
        inboxes = sorted((home / "teams" / team / "inboxes").glob("*.json"))
        reads: list[Callable[[], Awaitable[object]]] = [
            partial(team_store.rosters.read_team_roster, team),
            lambda: team_store.open_board(team).list_tasks(),
            *(partial(mailboxes.take_unread, AgentName(path.stem), limit=1) for path in inboxes),
        ]
        for read in reads:
            if time.monotonic() >= deadline:
                return False
            try:
                await read()
            except (InboxNotFound, InvalidName):
                continue  # an inbox that no member can have
            except ShoalError as error:
                reports[str(error)] = None
        return True
    finally:
        await team_store.aclose()
