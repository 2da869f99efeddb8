"""Ports of the storage that agents share: mailboxes, the task board, rosters.

Every acknowledged call survives the death of any process. If a lock cannot be acquired in time, nothing is
written and `LockUnavailable` is raised. Nothing polls: an event in this process or the file system wakes
the waiters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from shoal.core.ids import AgentId
from shoal.core.names import AgentName, TaskId, TeamName
from shoal.core.teams.mail import MailMessage, MailPostReceipt
from shoal.core.teams.roster import NewMember, RosterEntry, TeamRoster
from shoal.core.teams.tasks import Task, TaskClaimResult, TaskDraft, TaskUpdate

ClaimAttempts: TypeAlias = dict[tuple[AgentId, TaskId], str]
"""Attempt ids under which agents of this process hold tasks, whether claimed or assigned."""


class MailboxStore(Protocol):
    """Inboxes of one team: any number of writers, one reader each. Cost does not grow with history."""

    async def open_inbox(self, owner: AgentName, *, foreign: bool = False) -> None:
        """Create the inbox. A `foreign` owner is another program: its mail never goes to the overflow."""
        ...

    async def post(self, to: AgentName, mail: MailMessage) -> MailPostReceipt:
        """Post mail; it is on disk when this returns. Concurrent posts share one write."""
        ...

    async def take_unread(
        self, owner: AgentName, *, limit: int = 64, beyond: Container[str] = ()
    ) -> tuple[MailMessage, ...]:
        """Return the oldest unread mail in order, other than these ids.

        It stays unread until `mark_read`: a crash loses none. An id may leave `beyond` only when its mail is
        marked as read; a reader that forgets an id passes a new container.
        """
        ...

    async def mark_read(self, owner: AgentName, ids: Collection[str]) -> None:
        """Mark mail that is in the reader's transcript as consumed. Mail in the overflow moves up."""
        ...

    async def wait_for_mail(self, owner: AgentName, *, beyond: Container[str] = ()) -> None:
        """Return when there is unread mail other than these ids; at once if there is some.

        The ids are checked whenever the inbox changes, so they may grow during the wait. They leave `beyond`
        as with `take_unread`.
        """
        ...

    def find_changed_inboxes(self, owners: Iterable[AgentName]) -> list[AgentName]:
        """Return the owners whose inbox may hold mail that their waiter has not seen."""
        ...

    def is_foreign_inbox(self, owner: AgentName) -> bool:
        """Return True if the inbox was created for another program."""
        ...

    async def read_history(self, owner: AgentName) -> tuple[MailMessage, ...]:
        """Return all mail ever delivered: consumed mail in approximate order, then unread mail."""
        ...

    async def aclose(self) -> None: ...


class TaskBoard(Protocol):
    """Task board of one team or session."""

    async def create(self, draft: TaskDraft) -> Task: ...

    async def get(self, task: TaskId) -> Task | None: ...

    async def list_tasks(self) -> Sequence[Task]:
        """Return all tasks by number."""
        ...

    async def list_unfinished(self) -> Sequence[Task]:
        """Return the tasks that are not completed, by number; completed ones cost nothing."""
        ...

    async def list_abandoned(self) -> frozenset[TaskId]:
        """Return the tasks in progress whose holder is gone, without releasing them."""
        ...

    async def get_live_task_mapping(self) -> Mapping[TaskId, Task]:
        """Return a mapping of the current tasks without copying it: look up in it, do not store it."""
        ...

    async def update(self, task: TaskId, change: TaskUpdate, *, by: AgentName) -> tuple[Task, Task]:
        """Update a task; return it before and after. Both sides of a dependency change, or neither.

        Raises `TaskUpdateRefused`.
        """
        ...

    async def claim(self, task: TaskId, *, by: AgentName) -> TaskClaimResult:
        """Claim a task; exactly one of many claimants succeeds. The claim lasts as long as its holder."""
        ...

    async def claim_next(self, *, by: AgentName) -> TaskClaimResult | None:
        """Claim the first claimable task; return None if there is none."""
        ...

    async def reclaim_owner_tasks(self, owner: AgentName) -> tuple[TaskId, ...]:
        """Reclaim the tasks that this owner held when its process died, unless another has taken them.

        The attempt is the same except for its holder's process (see `extract_stable_claim_attempt_part`).
        """
        ...

    async def release(self, task: TaskId, *, attempt: str) -> bool:
        """Release a task; return False if the attempt no longer holds it."""
        ...

    async def release_owner_tasks(self, owner: AgentName) -> tuple[TaskId, ...]:
        """Put the tasks that a departed member had claimed back to pending."""
        ...

    async def delete(self, task: TaskId) -> None: ...

    def is_task_claimable_now(self) -> bool:
        """Return True if some task is known to be claimable; False if nobody knows without a wait."""
        ...

    async def wait_for_claimable(self) -> None:
        """Return when some task is claimable. k tasks wake at most k waiters of this process."""
        ...

    async def aclose(self) -> None: ...


class ChangeWatch(Protocol):
    def close(self) -> None: ...


class StoredTaskBoard(TaskBoard, Protocol):
    """Task board as a store opens it: changes by others can be observed."""

    def peek_tasks(self) -> Mapping[TaskId, Task]:
        """Return the stored tasks at once, without releasing tasks of dead holders."""
        ...

    def take_changed_ids(self) -> Collection[TaskId] | None:
        """Return the ids of tasks that changed since the last call; None if that is not known."""
        ...

    def watch_changes(self, on_change: Callable[[], None]) -> ChangeWatch | None:
        """Call `on_change` in the running loop after changes; return None if the board does not exist yet."""
        ...


class RosterStore(Protocol):
    async def create_team(
        self,
        name: TeamName,
        *,
        lead: NewMember,
        session: str,
        description: str | None,
        leader: str | None = None,
    ) -> TeamRoster:
        """Create a team; a name that is taken gets a number. `leader` is the id of a lead that is a teammate
        of another team."""
        ...

    async def read_team_roster(self, team: TeamName) -> TeamRoster | None: ...

    async def list_teams(self) -> Sequence[TeamName]: ...

    async def add_member(self, team: TeamName, new_member: NewMember) -> RosterEntry:
        """Add a member; concurrent joins are never lost."""
        ...

    async def list_members_of_other_programs(self, team: TeamName) -> frozenset[AgentName]:
        """Return the members that another program added to the roster, and that it runs."""
        ...

    async def update_member(self, team: TeamName, name: AgentName, **fields: object) -> RosterEntry: ...

    async def set_active_members(self, team: TeamName, active: Mapping[AgentName, bool]) -> None:
        """Set which of these are active, in one write; names that are not members are ignored."""
        ...

    async def remove_member(self, team: TeamName, name: AgentName) -> bool: ...

    async def delete_team(self, team: TeamName) -> None:
        """Delete roster, inboxes and tasks. Raises `TeamHasActiveMembers` while a teammate is active."""
        ...

    async def aclose(self) -> None: ...


class TeamStorage(Protocol):
    """Shared storage of a home: rosters, boards and mailboxes."""

    @property
    def rosters(self) -> RosterStore: ...

    def open_board(self, name: str) -> TaskBoard:
        """Open the board of a team, or of the session with that id."""
        ...

    def open_mailboxes(self, team: str) -> MailboxStore: ...

    @property
    def attempts(self) -> ClaimAttempts: ...

    def read_signing_key(self, team: TeamName) -> bytes:
        """Return the key that signs the mail of the team's own processes; it is deleted with the team."""
        ...

    async def wait_until_available(self) -> None:
        """Return when the storage can be used. Raises `StateFileError` if that takes too long."""
        ...

    async def close_team_stores(self, team: TeamName) -> None:
        """Close everything that is open for a deleted team."""
        ...
