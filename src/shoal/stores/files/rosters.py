"""Team rosters on plain files: `teams/{team}/config.json`, read, changed and renamed under locks."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import structs

from shoal.core.clock import Clock
from shoal.core.errors import BadName, NoSuchTeam, RecordError, TeamBusy
from shoal.core.names import LEAD_NAME, AgentName, TeamName, free_name, name_from
from shoal.core.roster import Member, Newcomer, Team, agent_id
from shoal.stores.files.below_home import found_inside, inside
from shoal.stores.files.handles import Directory
from shoal.stores.files.keys import remove_key
from shoal.stores.files.record_locks import PATIENCE, OwnLock, RecordLock
from shoal.stores.files.reporting import Report, unreported
from shoal.wire.foreign import Invalid
from shoal.wire.roster import TeamFile, read_team, team_bytes

CONFIG = "config.json"
_DELETING = "deleting"
"""Marker in `shoal/teams/{team}`: the team is deleted, and its files are still being removed."""
_MAKING = "making"
"""Marker in the same directory: without a roster the team was never created, and its name is free."""
_SPAWNED = "spawned"
_STAGED = "roster.staged"
"""File exchanged with the roster, which is cheaper than a rename; see `DirectoryHandle.swap_files`."""
_UNCHANGEABLE = frozenset({"agent_id", "joined_at"})


class FileRosters:
    """All teams of a home, shared with any number of processes and other programs."""

    def __init__(
        self,
        home: Path,
        *,
        clock: Clock,
        report: Report = unreported,
        patience: float = PATIENCE,
    ) -> None:
        self._home = home
        self._clock = clock
        self._report = report
        self._patience = patience
        self._latest: dict[TeamName, TeamFile] = {}
        self._told: set[tuple[TeamName, str]] = set()
        """Problems already reported: rosters change often, and each problem is reported once."""

    async def create(
        self,
        name: TeamName,
        *,
        lead: Newcomer,
        session: str,
        description: str | None,
        leader: str | None = None,
    ) -> Team:
        wanted = name_from(name)
        async with self._naming():
            self._clear_remains()
            free = TeamName(free_name(wanted, self._taken()))
            now = self._clock.now()
            team = Team(
                name=free,
                description=description,
                created_at=now,
                lead_agent_id=leader or agent_id(LEAD_NAME, free),
                lead_session_id=session,
                members=(lead.as_lead(free, at=now),),
            )
            self._make(team)
        return team

    async def read(self, team: TeamName) -> Team | None:
        name = _checked(team)
        directory = self._found(name)
        if directory is None:
            return None
        with directory:
            found = self._read(directory, name)
            if isinstance(found, Invalid):
                return await self._read_again(directory, name)
        return None if found is None else found.team

    async def list(self) -> Sequence[TeamName]:
        teams = found_inside(self._home, "teams")
        if teams is None:
            return ()
        with teams:
            names = [name for name in sorted(teams.names()) if _is_name(name)]
        return tuple(TeamName(name) for name in names if self._has_config(TeamName(name)))

    async def join(self, team: TeamName, newcomer: Newcomer) -> Member:
        async with self._changing(team) as (file, write):
            name = file.team.name_for(newcomer)
            spawned = self._count_spawn(file.team)
            member = newcomer.as_teammate(name, file.team.name, at=self._clock.now(), spawned_before=spawned)
            write(structs.replace(file.team, members=(*file.team.members, member)))
        return member

    async def change(self, team: TeamName, name: AgentName, **fields: object) -> Member:
        if refused := _UNCHANGEABLE & fields.keys():
            raise RecordError(f"A member's {', '.join(sorted(refused))} cannot be changed.")
        async with self._changing(team) as (file, write):
            before = file.team.member(name)
            if before is None:
                raise RecordError(f"There is no {name} in the team {team}. {_members(file.team)}")
            after = structs.replace(before, **fields)
            if after != before:
                members = (after if member is before else member for member in file.team.members)
                write(structs.replace(file.team, members=tuple(members)))
        return after

    async def show_active(self, team: TeamName, active: Mapping[AgentName, bool]) -> None:
        async with self._changing(team) as (file, write):
            before = file.team.members
            after = tuple([_shown(member, active=active.get(member.name)) for member in before])
            if any(new is not old for new, old in zip(after, before, strict=True)):
                write(structs.replace(file.team, members=after))

    async def leave(self, team: TeamName, name: AgentName) -> bool:
        async with self._changing(team) as (file, write):
            stay = tuple(member for member in file.team.members if member.name != name)
            if len(stay) == len(file.team.members):
                return False
            write(structs.replace(file.team, members=stay))
        return True

    async def delete(self, team: TeamName) -> None:
        async with self._naming():
            async with self._changing(team) as (file, _):
                active = [m.name for m in file.team.members if m.is_active and m.name != LEAD_NAME]
                if active:
                    raise TeamBusy(
                        f"The team {team} still has active members: {', '.join(active)}. "
                        "Ask them to shut down first; when they have ended, delete it again."
                    )
                # From here on the team is deleted, even if this process dies: the next one removes the rest.
                with self._own(file.team.name) as own:
                    own.replace(_DELETING, b"")
            self._remove(file.team.name)
            self._latest.pop(file.team.name, None)

    async def aclose(self) -> None:
        """Drop the cache; nothing is held open between calls."""
        self._latest.clear()

    @asynccontextmanager
    async def _naming(self) -> AsyncIterator[None]:
        """Hold the lock that lets one process at a time create or remove teams."""
        with inside(self._home, "shoal") as directory:
            async with OwnLock(directory, "teams.lock", patience=self._patience):
                yield

    @asynccontextmanager
    async def _changing(self, team: TeamName) -> AsyncIterator[tuple[TeamFile, Callable[[Team], None]]]:
        """Hold the locks of the roster; yield it and the function that writes it."""
        name = _checked(team)
        directory = self._found(name)
        if directory is None:
            raise _no_such(team)
        with directory, self._own(name) as own:
            async with self._lock(own, directory) as held:
                file = self._under_lock(directory, name)
                if file is None:
                    raise _no_such(team)
                found = file

                def write(changed: Team) -> None:
                    held.confirm()
                    after = found.changed(changed)
                    own.write_again(_STAGED, after.content)
                    own.swap(_STAGED, directory, CONFIG)
                    self._latest[name] = after

                yield found, write

    def _lock(self, own: Directory, directory: Directory) -> RecordLock:
        return RecordLock(own, "roster.lock", beside=directory, file=CONFIG, patience=self._patience)

    async def _read_again(self, directory: Directory, name: TeamName) -> Team | None:
        """Read again under the lock: a partial file is normal while another program writes in place."""
        with self._own(name) as own:
            async with self._lock(own, directory):
                file = self._under_lock(directory, name)
        return None if file is None else file.team

    def _under_lock(self, directory: Directory, name: TeamName) -> TeamFile | None:
        found = self._read(directory, name)
        if found is None:
            return None
        if isinstance(found, Invalid):
            path = directory.path / directory.keep_copy(CONFIG, f"{CONFIG}.corrupt-{self._clock.now()}")
            directory.remove(CONFIG)
            self._report(f"The roster of the team {name} is {found.reason}. It was set aside as {path}.")
            return None
        for rejected in found.rejected:
            if (name, rejected.reason) not in self._told:
                self._told.add((name, rejected.reason))
                self._report(f"A member of the team {name} cannot be read: {rejected.reason}.")
        return found

    def _read(self, directory: Directory, name: TeamName) -> TeamFile | Invalid | None:
        """Read the roster; unchanged content is not parsed again."""
        content = directory.read(CONFIG)
        if content is None:
            return None
        last = self._latest.get(name)
        if last is not None and last.content == content:
            return last
        found = read_team(content, name)
        if isinstance(found, TeamFile):
            self._latest[name] = found
        return found

    def _make(self, team: Team) -> None:
        with self._own(team.name) as own:
            os.close(own.open(_MAKING, os.O_WRONLY | os.O_CREAT))
        # Mail signed by an earlier team of this name must not be valid for this one.
        remove_key(self._home, team.name)
        inside(self._home, "teams", team.name, "inboxes").close()
        with inside(self._home, "tasks", team.name) as tasks:
            os.close(tasks.open(".lock", os.O_WRONLY | os.O_CREAT))
        with inside(self._home, "teams", team.name) as directory:
            directory.replace(CONFIG, team_bytes(team))
        with self._own(team.name) as own:
            own.remove(_MAKING)

    def _taken(self) -> set[str]:
        """Return the names with a roster, files that another program is creating, tasks, or leftovers of a
        deleted team."""
        return self._names("teams") | self._names("tasks") | self._names("shoal", "teams")

    def _names(self, *steps: str) -> set[str]:
        directory = found_inside(self._home, *steps)
        if directory is None:
            return set()
        with directory:
            return set(directory.names())

    def _found(self, team: TeamName) -> Directory | None:
        if self._is_deleting(team):
            return None
        return found_inside(self._home, "teams", team)

    def _has_config(self, team: TeamName) -> bool:
        directory = self._found(team)
        if directory is None:
            return False
        with directory:
            return directory.status(CONFIG) is not None

    def _own(self, team: TeamName) -> Directory:
        return inside(self._home, "shoal", "teams", team)

    def _is_deleting(self, team: TeamName) -> bool:
        return self._is_marked(team, _DELETING)

    def _is_marked(self, team: TeamName, mark: str) -> bool:
        own = found_inside(self._home, "shoal", "teams", team)
        if own is None:
            return False
        with own:
            return own.status(mark) is not None

    def _count_spawn(self, team: Team) -> int:
        """Count a spawn and return the number of earlier ones, with members that left; it sets the colour."""
        with self._own(team.name) as own:
            content = (own.read(_SPAWNED) or b"").strip()
            present = sum(member.name != LEAD_NAME for member in team.members)
            before = max(present, int(content) if content.isdigit() and len(content) < 19 else 0)
            own.overwrite(_SPAWNED, f"{before + 1:018d}".encode())
        return before

    def _clear_remains(self) -> None:
        """Remove leftovers of processes that died while they created or removed a team, and our files of
        teams that another program removed: their mail is not for the next team of that name.

        The caller holds the lock for creating and removing teams."""
        there = self._names("teams") | self._names("tasks")
        for name in map(TeamName, filter(_is_name, self._names("shoal", "teams"))):
            making = self._is_marked(name, _MAKING)
            half_made = making and not self._has_config(name)
            if name not in there or half_made or self._is_deleting(name):
                self._remove(name)
            elif making:
                # Created, and only the marker is left: if its roster were lost later, the team would count as
                # never created.
                with self._own(name) as own:
                    own.remove(_MAKING)

    def _remove(self, team: TeamName) -> None:
        remove_key(self._home, team)
        # Our directory last: its marker says that the rest must be removed.
        for steps in (("teams",), ("tasks",), ("shoal", "tasks"), ("shoal", "teams")):
            directory = found_inside(self._home, *steps)
            if directory is not None:
                with directory:
                    if not directory.remove_tree(team):
                        self._report(f"{directory.path / team}, of a team that is gone, cannot be removed.")
                        return


def _shown(member: Member, *, active: bool | None) -> Member:
    if active is None or active == member.is_active:
        return member
    return structs.replace(member, is_active=active)


def _checked(team: TeamName) -> TeamName:
    return TeamName(name_from(team))


def _is_name(text: str) -> bool:
    try:
        return name_from(text) == text
    except BadName:
        return False


def _no_such(team: TeamName) -> NoSuchTeam:
    return NoSuchTeam(f"There is no team {team}. `shoal team ls` shows the teams.")


def _members(team: Team) -> str:
    return f"Its members are: {', '.join(member.name for member in team.members)}."
