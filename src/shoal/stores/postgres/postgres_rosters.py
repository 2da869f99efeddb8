"""Rosters of all teams in the database. A roster is the document that its file would contain."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from shoal.core.clock import Clock
from shoal.core.errors import StateFileError, TeamHasActiveMembers, TeamNotFound, TeamStoreError
from shoal.core.names import LEAD_NAME, AgentName, TeamName, find_free_name, parse_safe_name
from shoal.core.teams.roster import NewMember, RosterEntry, TeamRoster, format_agent_id
from shoal.stores.postgres.database_client import DatabaseClient
from shoal.stores.postgres.database_worker import ActivityBatch, DatabaseWorker
from shoal.stores.store_texts import format_store_notice
from shoal.wire.foreign_json import InvalidFileContent
from shoal.wire.roster_codec import ParsedTeamRosterFile, encode_new_team_roster, parse_team_roster

T = TypeVar("T")
_IMMUTABLE_FIELDS = frozenset({"agent_id", "joined_at"})
_TEAM_NAMES_LOCK = 0x7465616D73  # "teams" in ASCII
TEAM_TABLES = {
    "teams": "name",
    "team_keys": "team",
    "inboxes": "team",
    "mail": "team",
    "tasks": "board",
    "board_leases": "board",
    "boards": "name",
}
"""Tables of a team, each with the column that names it."""


class PostgresRosters:
    def __init__(self, client: DatabaseClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def create_team(
        self,
        name: TeamName,
        *,
        lead: NewMember,
        session: str,
        description: str | None,
        leader: str | None = None,
    ) -> TeamRoster:
        requested_name = parse_safe_name(name)

        async def create(raw: Any) -> TeamRoster:
            await raw.execute("SELECT pg_advisory_xact_lock($1)", _TEAM_NAMES_LOCK)
            rows = await raw.fetch("SELECT name FROM shoal.teams UNION SELECT name FROM shoal.boards")
            free_name = TeamName(find_free_name(requested_name, {row[0] for row in rows}))
            now = self._clock.now()
            team = TeamRoster(
                name=free_name,
                description=description,
                created_at=now,
                lead_agent_id=leader or format_agent_id(LEAD_NAME, free_name),
                lead_session_id=session,
                members=(lead.to_lead_entry(free_name, at=now),),
            )
            # Mail signed by an earlier team of this name must not be valid for this one.
            await raw.execute("DELETE FROM shoal.team_keys WHERE team = $1", free_name)
            await raw.execute(
                "INSERT INTO shoal.teams (name, document) VALUES ($1, $2)",
                free_name,
                encode_new_team_roster(team),
            )
            return team

        return await self._client.call(lambda worker: worker.transact(create))

    async def read_team_roster(self, team: TeamName) -> TeamRoster | None:
        name = _check_team_name(team)

        async def read(raw: Any) -> bytes | None:
            document: bytes | None = await raw.fetchval(
                "SELECT document FROM shoal.teams WHERE name = $1", name
            )
            return document

        document = await self._client.call(lambda worker: worker.execute(read))
        return None if document is None else _parse_roster(document, name).team

    async def list_teams(self) -> Sequence[TeamName]:
        async def list_names(raw: Any) -> list[TeamName]:
            return [TeamName(row[0]) for row in await raw.fetch("SELECT name FROM shoal.teams")]

        return tuple(sorted(await self._client.call(lambda worker: worker.execute(list_names))))

    async def add_member(self, team: TeamName, new_member: NewMember) -> RosterEntry:
        async def add(raw: Any, file: ParsedTeamRosterFile, spawned: int) -> RosterEntry:
            member_count = sum(member.name != LEAD_NAME for member in file.team.members)
            earlier_spawns = max(member_count, spawned)
            member = new_member.to_teammate_entry(
                file.team.choose_member_name(new_member),
                file.team.name,
                at=self._clock.now(),
                spawned_before=earlier_spawns,
            )
            await _write_roster(raw, file, (*file.team.members, member), spawned=earlier_spawns + 1)
            return member

        return await self._change_roster(team, add)

    async def update_member(self, team: TeamName, name: AgentName, **fields: object) -> RosterEntry:
        if immutable_fields := _IMMUTABLE_FIELDS & fields.keys():
            raise TeamStoreError(
                format_store_notice("immutable_fields", fields=", ".join(sorted(immutable_fields)))
            )

        async def update(raw: Any, file: ParsedTeamRosterFile, _spawned: int) -> RosterEntry:
            old_entry = file.team.find_member(name)
            if old_entry is None:
                names = ", ".join(member.name for member in file.team.members)
                raise TeamStoreError(format_store_notice("unknown_member", team=team, name=name, names=names))
            new_entry = replace(old_entry, **fields)
            if new_entry != old_entry:
                members = tuple(new_entry if member is old_entry else member for member in file.team.members)
                await _write_roster(raw, file, members)
            return new_entry

        return await self._change_roster(team, update)

    async def list_members_of_other_programs(self, team: TeamName) -> frozenset[AgentName]:
        return frozenset()  # other programs do not write to the database

    async def set_active_members(self, team: TeamName, active: Mapping[AgentName, bool]) -> None:
        name = _check_team_name(team)

        async def join_batch(worker: DatabaseWorker) -> None:
            batch = worker.activity_batches.get(name)
            if batch is None:
                batch = worker.activity_batches[name] = ActivityBatch()
                worker.start_task(self._write_and_report_activity(worker, name, batch))
            batch.changes.update(active)
            await asyncio.shield(batch.written)

        await self._client.call(join_batch)

    async def _write_and_report_activity(
        self, worker: DatabaseWorker, name: TeamName, batch: ActivityBatch
    ) -> None:
        try:
            await self._write_activity(worker, name, batch)
        except asyncio.CancelledError:
            batch.written.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - raised by all callers
            batch.written.set_exception(error)
        else:
            batch.written.set_result(None)

    async def _write_activity(self, worker: DatabaseWorker, name: TeamName, batch: ActivityBatch) -> None:
        """Write the changes of all members in this process at once.

        One write for each would lock the same row, and members that wait for it would hold all connections.
        """
        async with worker.activity_locks.setdefault(name, asyncio.Lock()):
            del worker.activity_batches[name]  # later changes go to the next batch

            async def set_active(raw: Any, file: ParsedTeamRosterFile, _spawned: int) -> None:
                members = tuple(
                    member
                    if (is_active := batch.changes.get(member.name)) is None or is_active == member.is_active
                    else replace(member, is_active=is_active)
                    for member in file.team.members
                )
                if members != file.team.members:
                    await _write_roster(raw, file, members)

            await worker.transact(partial(_change_locked_roster, team=name, change=set_active))

    async def remove_member(self, team: TeamName, name: AgentName) -> bool:
        async def remove(raw: Any, file: ParsedTeamRosterFile, _spawned: int) -> bool:
            remaining = tuple(member for member in file.team.members if member.name != name)
            if len(remaining) == len(file.team.members):
                return False
            await _write_roster(raw, file, remaining)
            return True

        return await self._change_roster(team, remove)

    async def delete_team(self, team: TeamName) -> None:
        async def delete(raw: Any, file: ParsedTeamRosterFile, _spawned: int) -> None:
            active_names = [m.name for m in file.team.members if m.is_active and m.name != LEAD_NAME]
            if active_names:
                raise TeamHasActiveMembers(
                    format_store_notice("active_members", team=team, names=", ".join(active_names))
                )
            for table, column in TEAM_TABLES.items():
                await raw.execute(f"DELETE FROM shoal.{table} WHERE {column} = $1", file.team.name)

        await self._change_roster(team, delete)

    async def aclose(self) -> None: ...

    async def _change_roster(
        self, team: TeamName, change: Callable[[Any, ParsedTeamRosterFile, int], Awaitable[T]]
    ) -> T:
        """Run a change on the locked roster."""
        name = _check_team_name(team)

        return await self._client.call(
            lambda worker: worker.transact(partial(_change_locked_roster, team=name, change=change))
        )


async def _change_locked_roster(
    raw: Any, *, team: TeamName, change: Callable[[Any, ParsedTeamRosterFile, int], Awaitable[T]]
) -> T:
    row = await raw.fetchrow("SELECT document, spawned FROM shoal.teams WHERE name = $1 FOR UPDATE", team)
    if row is None:
        raise TeamNotFound(format_store_notice("unknown_team", team=team))
    return await change(raw, _parse_roster(row[0], team), row[1])


async def _write_roster(
    raw: Any, file: ParsedTeamRosterFile, members: tuple[RosterEntry, ...], *, spawned: int | None = None
) -> None:
    document = file.encode_changed_roster(replace(file.team, members=members))
    await raw.execute(
        "UPDATE shoal.teams SET document = $2, spawned = coalesce($3, spawned) WHERE name = $1",
        file.team.name,
        document,
        spawned,
    )


def _parse_roster(document: bytes, name: TeamName) -> ParsedTeamRosterFile:
    file = parse_team_roster(bytes(document), name)
    if isinstance(file, InvalidFileContent):
        from pathlib import Path

        raise StateFileError(f"The roster of the team {name} is not valid: {file.reason}.", path=Path())
    return file


def _check_team_name(team: TeamName) -> TeamName:
    return TeamName(parse_safe_name(team))
