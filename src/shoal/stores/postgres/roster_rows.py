"""Rows of rosters, and the copies of them in memory.

The document of a team contains its lead and the members of an imported team. Each member that joins has a
row, which contains what the document would contain for it. A process reads only the rows that changed since
it last read them: a team may have ten thousand members, and each of them reads the roster when it starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from shoal.core.errors import StateFileError
from shoal.core.names import LEAD_NAME, RESERVED_NAMES, AgentName, TeamName, fold_name, parse_agent_name
from shoal.core.teams.roster import NewMember, RosterEntry, TeamRoster
from shoal.wire.foreign_json import InvalidFileContent
from shoal.wire.roster_codec import (
    ParsedTeamRosterFile,
    encode_roster_entry,
    parse_roster_entry,
    parse_team_roster,
)

_CHANGED = "version = version + 1, changed_in = pg_current_xact_id()"
_CHANGED_MEMBERS = """
    SELECT number, name, entry, is_active, is_removed, version FROM shoal.team_members
    WHERE team = $1 AND changed_in >= $2::text::xid8 ORDER BY number
"""
_SET_ACTIVE = f"""
    UPDATE shoal.team_members SET is_active = change.active, {_CHANGED}
    FROM unnest($2::text[], $3::boolean[]) AS change (name, active)
    WHERE team = $1 AND team_members.name = change.name AND NOT is_removed
    AND is_active IS DISTINCT FROM change.active
"""


class RosterMirror:
    """Copy of one roster."""

    def __init__(self, team: TeamName) -> None:
        self._name = team
        self.id = -1
        self._reset(-1)

    def _reset(self, team_id: int) -> None:
        """Forget everything: this is the first team of the name, or another one."""
        self.id = team_id
        self._cursor = "0"
        self._content = b""
        self._file: ParsedTeamRosterFile | None = None
        self._versions: dict[int, int] = {}
        self._members: dict[int, RosterEntry] = {}
        self._folded_names: dict[str, int] = {}
        self._roster: TeamRoster | None = None

    async def refresh(self, raw: Any, *, lock: bool = False) -> tuple[ParsedTeamRosterFile, int] | None:
        """Read what has changed; return the team's document and number of spawns, or None without a team."""
        row = await raw.fetchrow(
            "SELECT id, document, spawned, pg_snapshot_xmin(pg_current_snapshot())::text "
            f"FROM shoal.teams WHERE name = $1 {'FOR UPDATE' if lock else ''}",
            self._name,
        )
        if row is None:
            self._reset(-1)
            return None
        if row[0] != self.id:
            self._reset(row[0])
        rows = await raw.fetch(_CHANGED_MEMBERS, row[0], self._cursor)
        if row[0] != self.id:  # another call has read a newer team
            return await self.refresh(raw, lock=lock)
        if self._file is None or row[1] != self._content:
            self._file, self._content, self._roster = _parse_roster(row[1], self._name), bytes(row[1]), None
        for changed in rows:
            self._apply_row(changed)
        self._cursor = max(self._cursor, row[3], key=int)
        return self._file, row[2]

    def _apply_row(self, row: Any) -> None:
        number, name, entry, is_active, is_removed, version = row
        if version <= self._versions.get(number, -1):
            return
        self._versions[number], self._roster = version, None
        if is_removed:
            self._members.pop(number, None)
            if self._folded_names.get(fold_name(name)) == number:
                del self._folded_names[fold_name(name)]
        else:
            self._members[number] = parse_member_row(entry, self._name, is_active=is_active)
            self._folded_names[fold_name(name)] = number

    def get_roster(self) -> TeamRoster:
        """Return the roster as it was last read."""
        assert self._file is not None
        if self._roster is None:
            members = (*self._file.team.members, *self._members.values())
            self._roster = replace(self._file.team, members=members)
        return self._roster

    def choose_member_name(self, new_member: NewMember) -> AgentName:
        """Return a free name, like the roster itself; usually without a look at all its names."""
        assert self._file is not None
        name = parse_agent_name(new_member.name)
        others = {*(member.name for member in self._file.team.members), *RESERVED_NAMES}
        if fold_name(name) in self._folded_names or fold_name(name) in map(fold_name, others):
            return self.get_roster().choose_member_name(new_member)
        return name

    def count_members(self) -> int:
        assert self._file is not None
        return len(self._members) + sum(member.name != LEAD_NAME for member in self._file.team.members)


async def insert_member(raw: Any, team: int, member: RosterEntry) -> None:
    await raw.execute(
        "INSERT INTO shoal.team_members (team, name, entry) VALUES ($1, $2, $3)",
        team,
        member.name,
        encode_roster_entry(member),
    )


async def update_member_row(
    raw: Any, team: TeamName, name: AgentName, fields: dict[str, object]
) -> RosterEntry | None:
    """Change a member; return None if it has no row."""
    row = await raw.fetchrow(
        "SELECT team, number, entry, is_active FROM shoal.team_members "
        "WHERE team = (SELECT id FROM shoal.teams WHERE name = $1) AND name = $2 AND NOT is_removed "
        "FOR UPDATE",
        team,
        name,
    )
    if row is None:
        return None
    old_entry = parse_member_row(row[2], team, is_active=row[3])
    new_entry = replace(old_entry, **fields)
    if new_entry != old_entry:
        await raw.execute(
            f"UPDATE shoal.team_members SET entry = $3, is_active = NULL, {_CHANGED} "
            "WHERE team = $1 AND number = $2",
            row[0],
            row[1],
            encode_roster_entry(new_entry, row[2]),
        )
    return new_entry


async def remove_member_row(raw: Any, team: int, name: AgentName) -> bool:
    return bool(
        await raw.fetchval(
            f"UPDATE shoal.team_members SET is_removed = true, entry = '', {_CHANGED} "
            "WHERE team = $1 AND name = $2 AND NOT is_removed RETURNING true",
            team,
            name,
        )
    )


async def set_active_rows(raw: Any, team: int, changes: dict[AgentName, bool]) -> None:
    # In one order everywhere, so that two processes do not wait for each other.
    ordered = sorted(changes.items())
    await raw.execute(_SET_ACTIVE, team, [name for name, _ in ordered], [active for _, active in ordered])


async def read_roster_document(raw: Any, team: TeamName, document: bytes) -> bytes:
    """Return the file that a team would have, with all its members."""
    rows = await raw.fetch(
        "SELECT entry, is_active FROM shoal.team_members "
        "WHERE team = (SELECT id FROM shoal.teams WHERE name = $1) AND NOT is_removed ORDER BY number",
        team,
    )
    entries = [
        bytes(entry)
        if is_active is None
        else encode_roster_entry(parse_member_row(entry, team, is_active=is_active), bytes(entry))
        for entry, is_active in rows
    ]
    return _parse_roster(document, team).append_entries(entries) if entries else document


def parse_member_row(entry: bytes, team: TeamName, *, is_active: bool | None) -> RosterEntry:
    member = parse_roster_entry(entry, team)
    return member if is_active is None else replace(member, is_active=is_active)


def _parse_roster(document: bytes, name: TeamName) -> ParsedTeamRosterFile:
    file = parse_team_roster(bytes(document), name)
    if isinstance(file, InvalidFileContent):
        raise StateFileError(f"The roster of the team {name} is not valid: {file.reason}.", path=Path())
    return file
