"""Team rosters on plain files: `teams/{team}/config.json`, read, changed and renamed under locks."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from msgspec import structs

from shoal.core.clock import Clock
from shoal.core.errors import InvalidName, StateFileError, TeamHasActiveMembers, TeamNotFound, TeamStoreError
from shoal.core.names import LEAD_NAME, AgentName, TeamName, find_free_name, parse_safe_name
from shoal.core.teams.roster import NewMember, RosterEntry, TeamRoster, format_agent_id
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.access.partial_writes import read_settled_file
from shoal.stores.files.access.problem_reporter import ProblemReporter, ignore_problem
from shoal.stores.files.home.home_directories import (
    open_existing_home_subdirectory,
    open_or_create_home_subdirectory,
)
from shoal.stores.files.locks.shared_file_lock import LOCK_TIMEOUT, AsyncFlock, SharedFileLock
from shoal.stores.files.teams.team_keys import remove_team_mail_key
from shoal.stores.files.teams.team_ownership import (
    CREATOR_FILE,
    find_inbox_directory,
    is_led_by_shoal,
    read_team_facts,
)
from shoal.stores.store_texts import format_store_notice
from shoal.wire.foreign_json import InvalidFileContent
from shoal.wire.roster_codec import (
    ParsedTeamRosterFile,
    encode_new_team_roster,
    encode_own_member_list,
    parse_own_member_list,
    parse_team_roster,
)

ROSTER_FILE = "config.json"
_DELETING_MARKER = "deleting"
"""Marker in `shoal/teams/{team}`: the team is deleted, and its files are still being removed."""
_CREATING_MARKER = "making"
"""Marker in the same directory: if there is no roster, the team was never created, and its name is free."""
_SPAWN_COUNTER = "spawned"
OWN_MEMBERS_FILE = "members"
"""File with the name of each member that Shoal added, one per line; the others are run by other programs."""
_STAGED_OWN_MEMBERS = "members.staged"
_STAGED_ROSTER = "roster.staged"
"""File exchanged with the roster, which is cheaper than a rename; see `DirectoryHandle.swap_or_move_file`."""
_ROSTER_COPY = "roster.copy"
"""Last good roster, without later changes of activity; it replaces a damaged one."""
_IMMUTABLE_FIELDS = frozenset({"agent_id", "joined_at"})


class _RosterWriter(Protocol):
    def __call__(self, changed: TeamRoster, *, is_activity: bool = False) -> None:
        """Write the roster. A change of activity alone does not change its copy."""


class FileRosterStore:
    """All teams of a home, shared with any number of processes and other programs."""

    def __init__(
        self,
        home: Path,
        *,
        clock: Clock,
        report_problem: ProblemReporter = ignore_problem,
        lock_timeout: float = LOCK_TIMEOUT,
        durable: bool = False,
        read_only: bool = False,
    ) -> None:
        """With `read_only`, damaged rosters are reported and never changed."""
        self._home = home
        self._durable = durable
        self._read_only = read_only
        self._clock = clock
        self._report_problem = report_problem
        self._lock_timeout = lock_timeout
        self._cached_files: dict[TeamName, ParsedTeamRosterFile] = {}
        self._reported: set[tuple[TeamName, str]] = set()
        """Problems already reported: rosters change often, and each problem is reported once."""
        self._stale_copies: set[TeamName] = set()
        """Teams whose copy of the roster could not be written; the next change writes it."""

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
        async with self._lock_team_names():
            self._remove_leftover_team_files()
            free_name = TeamName(find_free_name(requested_name, self._list_taken_names()))
            now = self._clock.now()
            team = TeamRoster(
                name=free_name,
                description=description,
                created_at=now,
                lead_agent_id=leader or format_agent_id(LEAD_NAME, free_name),
                lead_session_id=session,
                members=(lead.to_lead_entry(free_name, at=now),),
            )
            self._create_team_files(team)
        return team

    async def read_team_roster(self, team: TeamName) -> TeamRoster | None:
        name = _check_team_name(team)
        directory = self._find_team_directory(name)
        if directory is None:
            return None
        with directory:
            found = self._read_roster(directory, name)
            if isinstance(found, InvalidFileContent):
                found = await self._read_settled_roster(directory, name)
            if isinstance(found, InvalidFileContent) and self._read_only:
                return self._read_roster_copy_for_view(directory, name, found)
            if isinstance(found, InvalidFileContent):
                return await self._reread_roster_under_lock(directory, name)
            if found is not None:
                self._report_rejected_entries(found, name, directory)
        return None if found is None else found.team

    async def list_teams(self) -> Sequence[TeamName]:
        teams = open_existing_home_subdirectory(self._home, "teams")
        if teams is None:
            return ()
        with teams:
            names = [name for name in sorted(teams.list_names()) if _is_safe_name(name)]
        return tuple(TeamName(name) for name in names if self._has_roster_file(TeamName(name)))

    async def add_member(self, team: TeamName, new_member: NewMember) -> RosterEntry:
        async with self._lock_roster(team) as (file, write, own_directory):
            name = file.team.choose_member_name(new_member)
            own_names = _read_own_member_list(own_directory)
            if own_names is not None:
                _write_own_member_list(own_directory, (*own_names, name))
            spawn_count = _increment_spawn_counter(own_directory, file.team)
            member = new_member.to_teammate_entry(
                name, file.team.name, at=self._clock.now(), spawned_before=spawn_count
            )
            write(structs.replace(file.team, members=(*file.team.members, member)))
        return member

    async def list_members_of_other_programs(self, team: TeamName) -> frozenset[AgentName]:
        roster = await self.read_team_roster(team)
        own_names = None if roster is None else self._read_own_member_names(roster.name)
        if roster is None or own_names is None:
            return frozenset()
        return frozenset(
            member.name
            for member in roster.members
            if member.name != LEAD_NAME and member.name not in own_names
        )

    def _read_own_member_names(self, team: TeamName) -> set[str] | None:
        """Return the members that Shoal added; None if the list is missing or damaged."""
        own_directory = open_existing_home_subdirectory(self._home, "shoal", "teams", team)
        if own_directory is not None:
            with own_directory:
                own_names = _read_own_member_list(own_directory)
                if own_names is not None:
                    return set(own_names)
        with DirectoryHandle.open_root(self._home) as home:
            return None if is_led_by_shoal(home, team, read_team_facts(home, team)) else set()

    async def update_member(self, team: TeamName, name: AgentName, **fields: object) -> RosterEntry:
        if immutable_fields := _IMMUTABLE_FIELDS & fields.keys():
            raise TeamStoreError(
                format_store_notice("immutable_fields", fields=", ".join(sorted(immutable_fields)))
            )
        async with self._lock_roster(team) as (file, write, _):
            old_entry = file.team.find_member(name)
            if old_entry is None:
                raise TeamStoreError(
                    format_store_notice(
                        "unknown_member",
                        team=team,
                        name=name,
                        names=", ".join(member.name for member in file.team.members),
                    )
                )
            new_entry = structs.replace(old_entry, **fields)
            if new_entry != old_entry:
                members = (new_entry if member is old_entry else member for member in file.team.members)
                write(structs.replace(file.team, members=tuple(members)))
        return new_entry

    async def set_active_members(self, team: TeamName, active: Mapping[AgentName, bool]) -> None:
        async with self._lock_roster(team) as (file, write, _):
            old_members = file.team.members
            new_members = tuple(
                [_set_member_active(member, active=active.get(member.name)) for member in old_members]
            )
            if any(new is not old for new, old in zip(new_members, old_members, strict=True)):
                write(structs.replace(file.team, members=new_members), is_activity=True)

    async def remove_member(self, team: TeamName, name: AgentName) -> bool:
        async with self._lock_roster(team) as (file, write, own_directory):
            remaining = tuple(member for member in file.team.members if member.name != name)
            if len(remaining) == len(file.team.members):
                return False
            write(structs.replace(file.team, members=remaining))
            own_names = _read_own_member_list(own_directory)
            if own_names is not None and name in own_names:
                # Another program may add a member of this name.
                _write_own_member_list(own_directory, [each for each in own_names if each != name])
        return True

    async def delete_team(self, team: TeamName) -> None:
        async with self._lock_team_names():
            async with self._lock_roster(team) as (file, _, own_directory):
                active_members = [m.name for m in file.team.members if m.is_active and m.name != LEAD_NAME]
                if active_members:
                    raise TeamHasActiveMembers(
                        format_store_notice("active_members", team=team, names=", ".join(active_members))
                    )
                # From here on the team is deleted, even if this process dies: the next one removes the rest.
                own_directory.replace_file(_DELETING_MARKER, b"")
            self._remove_team_files(file.team.name)
            self._cached_files.pop(file.team.name, None)

    async def aclose(self) -> None:
        """Drop the cache; nothing is held open between calls."""
        self._cached_files.clear()

    @asynccontextmanager
    async def _lock_team_names(self) -> AsyncIterator[None]:
        """Hold the lock that lets one process at a time create or remove teams."""
        with open_or_create_home_subdirectory(self._home, "shoal") as directory:
            async with AsyncFlock(directory, "teams.lock", timeout=self._lock_timeout):
                yield

    @asynccontextmanager
    async def _lock_roster(
        self, team: TeamName
    ) -> AsyncIterator[tuple[ParsedTeamRosterFile, _RosterWriter, DirectoryHandle]]:
        """Hold the locks of the roster; yield it, the function that writes it, and our own directory."""
        name = _check_team_name(team)
        directory = open_existing_home_subdirectory(self._home, "teams", name, durable=self._durable)
        if directory is None:
            raise _build_team_not_found(team)
        with directory, self._open_private_team_directory(name) as own_directory:
            if own_directory.has_entry(_DELETING_MARKER):
                raise _build_team_not_found(team)
            async with self._build_roster_lock(own_directory, directory) as foreign_lock:
                file = await self._read_or_quarantine_roster(directory, name)
                if file is None:
                    raise _build_team_not_found(team)
                found = file

                def write_changed_roster(changed: TeamRoster, *, is_activity: bool = False) -> None:
                    foreign_lock.confirm_held()
                    updated_file = found.replace_roster(changed)
                    own_directory.rewrite_unshared_or_recreate_file(_STAGED_ROSTER, updated_file.content)
                    own_directory.swap_or_move_file(_STAGED_ROSTER, directory, ROSTER_FILE)
                    self._cached_files[name] = updated_file
                    if not is_activity or name in self._stale_copies:
                        self._write_roster_copy(own_directory, name, updated_file.content)

                yield found, write_changed_roster, own_directory

    def _write_roster_copy(self, own_directory: DirectoryHandle, name: TeamName, content: bytes) -> None:
        """Write the copy of a roster. A failure must not be taken for one of the change, which is stored."""
        self._stale_copies.add(name)
        with suppress(StateFileError, OSError):
            own_directory.rewrite_unshared_or_recreate_file(_ROSTER_COPY, content)
            self._stale_copies.discard(name)

    def _build_roster_lock(
        self, own_directory: DirectoryHandle, directory: DirectoryHandle
    ) -> SharedFileLock:
        return SharedFileLock(
            own_directory, "roster.lock", directory=directory, file=ROSTER_FILE, timeout=self._lock_timeout
        )

    async def _reread_roster_under_lock(
        self, directory: DirectoryHandle, name: TeamName
    ) -> TeamRoster | None:
        """Read again under the lock: the program that writes the file may hold it."""
        with self._open_private_team_directory(name) as own_directory:
            async with self._build_roster_lock(own_directory, directory):
                file = await self._read_or_quarantine_roster(directory, name)
        return None if file is None else file.team

    async def _read_or_quarantine_roster(
        self, directory: DirectoryHandle, name: TeamName
    ) -> ParsedTeamRosterFile | None:
        found = self._read_roster(directory, name)
        if isinstance(found, InvalidFileContent):
            found = await self._read_settled_roster(directory, name)
        if found is None:
            return None
        if isinstance(found, InvalidFileContent):
            return self._replace_damaged_roster(directory, name, found)
        self._report_rejected_entries(found, name, directory)
        return found

    def _report_rejected_entries(
        self, file: ParsedTeamRosterFile, name: TeamName, directory: DirectoryHandle
    ) -> None:
        for rejected in file.rejected:
            if (name, rejected.reason) not in self._reported:
                self._reported.add((name, rejected.reason))
                self._report_problem(
                    f"The roster entry of a member of {name} in {directory.path / ROSTER_FILE} cannot be "
                    f"read: {rejected.reason}. Shoal uses the other entries. Repair the entry to bring the "
                    "member back."
                )

    def _replace_damaged_roster(
        self, directory: DirectoryHandle, name: TeamName, damaged: InvalidFileContent
    ) -> ParsedTeamRosterFile | None:
        """Set the damaged roster aside and restore its last good copy; return None if there is none."""
        backup = directory.path / directory.set_entry_aside(
            ROSTER_FILE, f"{ROSTER_FILE}.corrupt-{self._clock.now()}"
        )
        headline = f"The roster of the team {name} was damaged: {damaged.reason}. Shoal keeps it as {backup}."
        copy = self._read_roster_copy(name)
        if copy is None:
            self._report_problem(
                f"{headline} There is no good copy, so the list of members is lost. The team's mail and "
                f"tasks are kept."
            )
            return None
        directory.replace_file(ROSTER_FILE, copy.content)
        self._cached_files[name] = copy
        self._report_problem(
            f"{headline} Shoal uses its last good copy instead. The team's mail and tasks are kept."
        )
        return copy

    def _read_roster_copy_for_view(
        self, directory: DirectoryHandle, name: TeamName, damaged: InvalidFileContent
    ) -> TeamRoster | None:
        path, copy = directory.path / ROSTER_FILE, self._read_roster_copy(name)
        used = "There is no good copy of it." if copy is None else "This view uses its last good copy."
        if (name, damaged.reason) not in self._reported:
            self._reported.add((name, damaged.reason))
            self._report_problem(f"The roster {path} is damaged: {damaged.reason}. {used}")
        return None if copy is None else copy.team

    def _read_roster_copy(self, name: TeamName) -> ParsedTeamRosterFile | None:
        own_directory = open_existing_home_subdirectory(self._home, "shoal", "teams", name)
        if own_directory is None:
            return None
        with own_directory:
            # An exchange leaves the previous roster behind, which is better than none.
            for file in (_ROSTER_COPY, _STAGED_ROSTER):
                with suppress(StateFileError):
                    content = own_directory.read_file(file)
                    copy = None if content is None else parse_team_roster(content, name)
                    if isinstance(copy, ParsedTeamRosterFile):
                        return copy
        return None

    async def _read_settled_roster(
        self, directory: DirectoryHandle, name: TeamName
    ) -> ParsedTeamRosterFile | InvalidFileContent | None:
        """Read again while another program may be writing the file in place."""

        def is_invalid(found: ParsedTeamRosterFile | InvalidFileContent | None) -> bool:
            return isinstance(found, InvalidFileContent)

        return await read_settled_file(
            directory, ROSTER_FILE, lambda: self._read_roster(directory, name), is_invalid
        )

    def _read_roster(
        self, directory: DirectoryHandle, name: TeamName
    ) -> ParsedTeamRosterFile | InvalidFileContent | None:
        """Read the roster; unchanged content is not parsed again."""
        if (kind := directory.describe_irregular_entry(ROSTER_FILE)) is not None:
            return InvalidFileContent(f"it is {kind}")
        content = directory.read_file(ROSTER_FILE)
        if content is None:
            return None
        cached = self._cached_files.get(name)
        if cached is not None and cached.content == content:
            return cached
        found = parse_team_roster(content, name)
        is_damaged = isinstance(found, InvalidFileContent) or bool(found.rejected)
        if is_damaged and self._read_roster_copy(name) is None:
            # Shoal never wrote it.
            found = parse_team_roster(content, name, is_foreign=True)
        if isinstance(found, InvalidFileContent):
            return found
        if found.rejected and self._has_complete_copy(found, name):
            return InvalidFileContent(f"the entry of a member cannot be read: {found.rejected[0].reason}")
        self._cached_files[name] = found
        return found

    def _has_complete_copy(self, damaged: ParsedTeamRosterFile, name: TeamName) -> bool:
        """Return True if the last good copy has the same members, and can be read in full."""
        copy = self._read_roster_copy(name)
        if copy is None or copy.rejected:
            return False
        names = {member.name for member in damaged.team.members}
        others = [member for member in copy.team.members if member.name not in names]
        return len(copy.team.members) == len(names) + len(others) and len(others) == len(damaged.rejected)

    def _create_team_files(self, team: TeamRoster) -> None:
        with self._open_private_team_directory(team.name) as own_directory:
            own_directory.create_empty_file(_CREATING_MARKER)
        # Mail signed by an earlier team of this name must not be valid for this one.
        remove_team_mail_key(self._home, team.name)
        open_or_create_home_subdirectory(
            self._home, "teams", team.name, "inboxes", durable=self._durable
        ).close()
        with open_or_create_home_subdirectory(self._home, "tasks", team.name, durable=self._durable) as tasks:
            os.close(tasks.open_file(".lock", os.O_WRONLY | os.O_CREAT))
        content = encode_new_team_roster(team)
        with open_or_create_home_subdirectory(
            self._home, "teams", team.name, durable=self._durable
        ) as directory:
            directory.replace_file(ROSTER_FILE, content)
        with self._open_private_team_directory(team.name) as own_directory:
            own_directory.replace_file(OWN_MEMBERS_FILE, encode_own_member_list(()))
            own_directory.replace_file(CREATOR_FILE, team.lead_session_id.encode())
            own_directory.replace_file(_ROSTER_COPY, content)
            own_directory.remove_file(_CREATING_MARKER)

    def _list_taken_names(self) -> set[str]:
        """Return the names with a roster, files that another program is creating, tasks, or leftovers of a
        deleted team."""
        return (
            self._list_home_subdirectory_names("teams")
            | self._list_home_subdirectory_names("tasks")
            | self._list_home_subdirectory_names("shoal", "teams")
        )

    def _list_home_subdirectory_names(self, *parts: str) -> set[str]:
        directory = open_existing_home_subdirectory(self._home, *parts)
        if directory is None:
            return set()
        with directory:
            return set(directory.list_names())

    def _find_team_directory(self, team: TeamName) -> DirectoryHandle | None:
        if self._is_team_being_deleted(team):
            return None
        return open_existing_home_subdirectory(self._home, "teams", team, durable=self._durable)

    def _has_roster_file(self, team: TeamName) -> bool:
        directory = self._find_team_directory(team)
        if directory is None:
            return False
        with directory:
            return directory.get_entry_stat(ROSTER_FILE) is not None

    def _open_private_team_directory(self, team: TeamName) -> DirectoryHandle:
        return open_or_create_home_subdirectory(self._home, "shoal", "teams", team, durable=self._durable)

    def _is_team_being_deleted(self, team: TeamName) -> bool:
        return self._has_team_operation_marker(team, _DELETING_MARKER)

    def _has_team_operation_marker(self, team: TeamName, marker: str) -> bool:
        own_directory = open_existing_home_subdirectory(self._home, "shoal", "teams", team)
        if own_directory is None:
            return False
        with own_directory:
            return own_directory.has_entry(marker)

    def _remove_leftover_team_files(self) -> None:
        """Remove leftovers of processes that died while they created or removed a team, and our files of
        teams that another program removed: their mail is not for the next team of that name.

        The caller holds the lock for creating and removing teams."""
        existing_names = self._list_home_subdirectory_names("teams") | self._list_home_subdirectory_names(
            "tasks"
        )
        for name in map(
            TeamName, filter(_is_safe_name, self._list_home_subdirectory_names("shoal", "teams"))
        ):
            is_creating = self._has_team_operation_marker(name, _CREATING_MARKER)
            is_incomplete = is_creating and not self._has_roster_file(name)
            if name not in existing_names or is_incomplete or self._is_team_being_deleted(name):
                self._remove_team_files(name)
            elif is_creating:
                # Created, and only the marker is left: if its roster were lost later, the team would count as
                # never created.
                with self._open_private_team_directory(name) as own_directory:
                    own_directory.remove_file(_CREATING_MARKER)

    def _remove_team_files(self, team: TeamName) -> None:
        remove_team_mail_key(self._home, team)
        # The roster after the inboxes that it leads to; our directory last: its marker says that the rest
        # must be removed.
        for parts, name in (
            (("teams",), self._find_inbox_directory(team)),
            (("teams",), team),
            (("tasks",), team),
            (("shoal", "tasks"), team),
            (("shoal", "teams"), team),
        ):
            directory = open_existing_home_subdirectory(self._home, *parts, durable=self._durable)
            if directory is not None:
                with directory:
                    if not directory.remove_tree(name):
                        self._report_problem(
                            f"Cannot remove {directory.path / name}, left over from a deleted team."
                        )
                        return

    def _find_inbox_directory(self, team: TeamName) -> str:
        with DirectoryHandle.open_root(self._home) as home:
            return find_inbox_directory(home, team, read_team_facts(home, team))


def _read_own_member_list(own_directory: DirectoryHandle) -> list[str] | None:
    """Return the members that Shoal added; None if the list is missing or damaged."""
    return parse_own_member_list(own_directory.read_file(OWN_MEMBERS_FILE) or b"")


def _write_own_member_list(own_directory: DirectoryHandle, names: Sequence[str]) -> None:
    own_directory.rewrite_unshared_or_recreate_file(_STAGED_OWN_MEMBERS, encode_own_member_list(names))
    own_directory.swap_or_move_file(_STAGED_OWN_MEMBERS, own_directory, OWN_MEMBERS_FILE)


def _read_spawn_counter(own_directory: DirectoryHandle) -> int:
    content = (own_directory.read_file(_SPAWN_COUNTER) or b"").strip()
    return int(content) if content.isdigit() and len(content) < 19 else 0


def _increment_spawn_counter(own_directory: DirectoryHandle, team: TeamRoster) -> int:
    """Count a spawn and return the number of earlier ones, including members that left; the number
    determines the color."""
    names = [member.name for member in team.members]
    earlier_spawns = max(len(names) - names.count(LEAD_NAME), _read_spawn_counter(own_directory))
    own_directory.overwrite_file_in_place(_SPAWN_COUNTER, f"{earlier_spawns + 1:018d}".encode())
    return earlier_spawns


def _set_member_active(member: RosterEntry, *, active: bool | None) -> RosterEntry:
    if active is None or active == member.is_active:
        return member
    return structs.replace(member, is_active=active)


def _check_team_name(team: TeamName) -> TeamName:
    return TeamName(parse_safe_name(team))


def _is_safe_name(text: str) -> bool:
    try:
        return parse_safe_name(text) == text
    except InvalidName:
        return False


def _build_team_not_found(team: TeamName) -> TeamNotFound:
    return TeamNotFound(format_store_notice("unknown_team", team=team))
