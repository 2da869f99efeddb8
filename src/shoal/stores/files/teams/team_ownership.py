"""Distinguishes teams that Shoal leads from teams of other programs, and finds the inboxes of both."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from shoal.core.errors import StateFileError
from shoal.core.names import map_to_inbox_name
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.home.home_paths import is_safe_file_name, read_state_file
from shoal.wire.foreign_json import parse_foreign_json

CREATOR_FILE = "creator"
"""File in `shoal/teams/{team}` with the id of the session for which Shoal created the team."""

OWN_WRITES_FILE = "own-writes"
"""File in the same directory: start and end of each recent command of Shoal that changed the team."""
RECENT_SECONDS = 600.0
"""A team whose files another program changed within this time counts as led."""
_MAX_PERIODS = 1000


class TeamFileFacts(Struct, frozen=True, kw_only=True):
    """Facts in a roster that show who leads the team."""

    has_roster: bool = False
    given_name: str = ""
    lead_session: str = ""


def read_team_facts(home: DirectoryHandle, team: str) -> TeamFileFacts:
    """Read the facts of a team; a missing or damaged roster has none."""
    with suppress(StateFileError):
        directory = home.open_existing("teams", team)
        if directory is None:
            return TeamFileFacts()
        with directory:
            content = directory.read_file("config.json")
        if content is None:
            return TeamFileFacts()
        fields = parse_foreign_json(content)
        if isinstance(fields, dict):
            name, session = fields.get("name"), fields.get("leadSessionId")
            return TeamFileFacts(
                has_roster=True,
                given_name=name if isinstance(name, str) else "",
                lead_session=session if isinstance(session, str) else "",
            )
    return TeamFileFacts()


def is_created_by_shoal(home: Path, team: str, lead_session: str) -> bool:
    """Return True if Shoal created the team for this lead session."""
    with suppress(OSError, UnicodeDecodeError):
        creator = read_state_file(home / "shoal" / "teams" / team / CREATOR_FILE).decode()
        return bool(lead_session) and creator == lead_session
    return False


def record_own_writes(home: Path, team: str, *, start: float) -> None:
    """Record that a command of Shoal changed files of a team that another program leads, since `start`."""
    with DirectoryHandle.open_root(home) as root:
        facts = read_team_facts(root, team)
        if not facts.has_roster or is_led_by_shoal(root, team, facts):
            return
        end = time.time()
        periods = [period for period in read_own_writes(home, team) if period[1] > end - RECENT_SECONDS]
        lines = [f"{period[0]} {period[1]}\n" for period in (*periods[-_MAX_PERIODS:], (start, end))]
        with root.open_or_create("shoal", "teams", team) as directory:
            directory.replace_file(OWN_WRITES_FILE, "".join(lines).encode())


def read_own_writes(home: Path, team: str) -> tuple[tuple[float, float], ...]:
    """Return the start and the end of each recent command that changed the team."""
    with suppress(OSError, ValueError):
        lines = read_state_file(home / "shoal" / "teams" / team / OWN_WRITES_FILE).decode().splitlines()
        periods = [tuple(map(float, line.split())) for line in lines]
        return tuple((period[0], period[1]) for period in periods if len(period) == 2)
    return ()


def is_led_by_shoal(home: DirectoryHandle, team: str, facts: TeamFileFacts) -> bool:
    """Return True if Shoal leads or led the team; also True if the team has no readable roster."""
    if not facts.has_roster:
        return True
    session = facts.lead_session
    if not is_safe_file_name(session):
        return False  # another program wrote it
    run = home.open_existing("shoal", "runs", session)
    if run is not None:
        run.close()
        return True
    return is_created_by_shoal(home.path, team, session)


def find_inbox_directory(home: DirectoryHandle, team: str, facts: TeamFileFacts) -> str:
    """Return the name of the directory in `teams` that contains the inboxes of the team.

    Other programs write the roster of `My Team` to `teams/my-team` and its inboxes to `teams/My-Team`.
    """
    mapped = map_to_inbox_name(facts.given_name)
    if mapped == team or mapped.lower() != team:
        return team
    for name in (mapped, team):
        inboxes = home.open_existing("teams", name, "inboxes")
        if inboxes is not None:
            inboxes.close()
            return name
    return mapped
