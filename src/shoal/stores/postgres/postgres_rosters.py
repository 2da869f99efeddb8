"""Rosters of all teams in the database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from shoal.core.clock import Clock
from shoal.core.errors import TeamHasActiveMembers, TeamNotFound, TeamStoreError
from shoal.core.names import LEAD_NAME, AgentName, TeamName, find_free_name, parse_safe_name
from shoal.core.teams.roster import NewMember, RosterEntry, TeamRoster, format_agent_id
from shoal.stores.postgres.database_client import DatabaseClient
from shoal.stores.postgres.database_worker import ActivityBatch, DatabaseWorker
from shoal.stores.postgres.roster_rows import (
    RosterMirror,
    insert_member,
    remove_member_row,
    set_active_rows,
    update_member_row,
)
from shoal.stores.store_texts import format_store_notice
from shoal.wire.roster_codec import ParsedTeamRosterFile, encode_new_team_roster

T = TypeVar("T")
RosterChange: TypeAlias = Callable[[Any, RosterMirror, ParsedTeamRosterFile, int], Awaitable[T]]
"""Gets the connection, the roster, the document of the team and the number of members spawned so far."""
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

        async def read_in_worker(worker: DatabaseWorker) -> TeamRoster | None:
            mirror = worker.get_roster_mirror(name)

            async def read(raw: Any) -> TeamRoster | None:
                return None if await mirror.refresh(raw) is None else mirror.get_roster()

            return await worker.execute(read)

        return await self._client.call(read_in_worker)

    async def list_teams(self) -> Sequence[TeamName]:
        async def list_names(raw: Any) -> list[TeamName]:
            return [TeamName(row[0]) for row in await raw.fetch("SELECT name FROM shoal.teams")]

        return tuple(sorted(await self._client.call(lambda worker: worker.execute(list_names))))

    async def add_member(self, team: TeamName, new_member: NewMember) -> RosterEntry:
        async def add(
            raw: Any, mirror: RosterMirror, _file: ParsedTeamRosterFile, spawned: int
        ) -> RosterEntry:
            earlier_spawns = max(mirror.count_members(), spawned)
            member = new_member.to_teammate_entry(
                mirror.choose_member_name(new_member),
                _check_team_name(team),
                at=self._clock.now(),
                spawned_before=earlier_spawns,
            )
            await insert_member(raw, mirror.id, member)
            await raw.execute(
                "UPDATE shoal.teams SET spawned = $2 WHERE id = $1", mirror.id, earlier_spawns + 1
            )
            return member

        return await self._change_roster(team, add)

    async def update_member(self, team: TeamName, name: AgentName, **fields: object) -> RosterEntry:
        if immutable_fields := _IMMUTABLE_FIELDS & fields.keys():
            raise TeamStoreError(
                format_store_notice("immutable_fields", fields=", ".join(sorted(immutable_fields)))
            )

        async def update(raw: Any) -> RosterEntry | None:
            return await update_member_row(raw, _check_team_name(team), name, fields)

        entry = await self._client.call(lambda worker: worker.transact(update))
        return entry if entry is not None else await self._update_member_of_document(team, name, fields)

    async def _update_member_of_document(
        self, team: TeamName, name: AgentName, fields: dict[str, object]
    ) -> RosterEntry:
        async def update(
            raw: Any, mirror: RosterMirror, file: ParsedTeamRosterFile, _spawned: int
        ) -> RosterEntry:
            old_entry = file.team.find_member(name)
            if old_entry is None:
                names = ", ".join(member.name for member in mirror.get_roster().members)
                raise TeamStoreError(format_store_notice("unknown_member", team=team, name=name, names=names))
            new_entry = replace(old_entry, **fields)
            if new_entry != old_entry:
                members = tuple(new_entry if member is old_entry else member for member in file.team.members)
                await _write_document(raw, file, members)
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

            mirror = worker.get_roster_mirror(name)

            async def set_active(raw: Any) -> bool:
                """Change the rows; return False if there are members without one among the names."""
                found = await mirror.refresh(raw)
                if found is None:
                    raise TeamNotFound(format_store_notice("unknown_team", team=name))
                await set_active_rows(raw, mirror.id, batch.changes)
                return not any(member.name in batch.changes for member in found[0].team.members)

            async def set_active_in_document(
                raw: Any, _mirror: RosterMirror, file: ParsedTeamRosterFile, _spawned: int
            ) -> None:
                members = tuple(
                    member
                    if (is_active := batch.changes.get(member.name)) is None or is_active == member.is_active
                    else replace(member, is_active=is_active)
                    for member in file.team.members
                )
                if members != file.team.members:
                    await _write_document(raw, file, members)

            if not await worker.transact(set_active):
                await _change_locked_roster(worker, name, set_active_in_document)

    async def remove_member(self, team: TeamName, name: AgentName) -> bool:
        async def remove(raw: Any, mirror: RosterMirror, file: ParsedTeamRosterFile, _spawned: int) -> bool:
            if await remove_member_row(raw, mirror.id, name):
                return True
            remaining = tuple(member for member in file.team.members if member.name != name)
            if len(remaining) == len(file.team.members):
                return False
            await _write_document(raw, file, remaining)
            return True

        return await self._change_roster(team, remove)

    async def delete_team(self, team: TeamName) -> None:
        async def delete(raw: Any, mirror: RosterMirror, file: ParsedTeamRosterFile, _spawned: int) -> None:
            members = mirror.get_roster().members
            active_names = [m.name for m in members if m.is_active and m.name != LEAD_NAME]
            if active_names:
                raise TeamHasActiveMembers(
                    format_store_notice("active_members", team=team, names=", ".join(active_names))
                )
            await raw.execute("DELETE FROM shoal.team_members WHERE team = $1", mirror.id)
            for table, column in TEAM_TABLES.items():
                await raw.execute(f"DELETE FROM shoal.{table} WHERE {column} = $1", file.team.name)

        await self._change_roster(team, delete)

    async def aclose(self) -> None: ...

    async def _change_roster(self, team: TeamName, change: RosterChange[T]) -> T:
        """Run a change on the locked roster."""
        name = _check_team_name(team)
        return await self._client.call(lambda worker: _change_locked_roster(worker, name, change))


async def _change_locked_roster(worker: DatabaseWorker, team: TeamName, change: RosterChange[T]) -> T:
    mirror = worker.get_roster_mirror(team)

    async def lock_and_change(raw: Any) -> T:
        found = await mirror.refresh(raw, lock=True)
        if found is None:
            raise TeamNotFound(format_store_notice("unknown_team", team=team))
        return await change(raw, mirror, *found)

    return await worker.transact(lock_and_change)


async def _write_document(raw: Any, file: ParsedTeamRosterFile, members: tuple[RosterEntry, ...]) -> None:
    document = file.encode_changed_roster(replace(file.team, members=members))
    await raw.execute("UPDATE shoal.teams SET document = $2 WHERE name = $1", file.team.name, document)


def _check_team_name(team: TeamName) -> TeamName:
    return TeamName(parse_safe_name(team))
