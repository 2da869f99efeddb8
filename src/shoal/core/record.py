"""The ports of the record between agents: mailboxes, the task board, rosters.

Every acknowledged call survives the death of any process. A lock that cannot be had in time means no write
and `LockUnavailable`. Nothing here polls: an event in this process, or the file system, wakes who waits.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from shoal.core.ids import AgentId
from shoal.core.mail import Mail, Receipt
from shoal.core.names import AgentName, TaskId, TeamName
from shoal.core.roster import Member, Newcomer, Team
from shoal.core.tasks import Change, Claim, Draft, Task

Attempts: TypeAlias = dict[tuple[AgentId, TaskId], str]
"""The attempts under which the agents of this process hold tasks, however they came by them."""


class Mailboxes(Protocol):
    """The inboxes of one team: any number of writers, one reader each. Cost does not grow with history."""

    async def open(self, owner: AgentName, *, foreign: bool = False) -> None:
        """Make the inbox. A `foreign` owner is run by another program: nothing is kept behind its file."""
        ...

    async def post(self, to: AgentName, mail: Mail) -> Receipt:
        """On disk when it returns; posts that wait for each other share one write."""
        ...

    async def take(self, owner: AgentName, *, limit: int = 64) -> tuple[Mail, ...]:
        """The oldest unread mail, in order; unread until `mark`, so a reader that dies gets it again."""
        ...

    async def mark(self, owner: AgentName, ids: Collection[str]) -> None:
        """These are consumed: they are in the reader's transcript. What waits behind the file moves up."""
        ...

    async def wait(self, owner: AgentName, *, beyond: Container[str] = ()) -> None:
        """Returns when there is unread mail beyond what has these ids; at once if there is some.

        The ids are looked up whenever the inbox changes, so they may grow while one waits.
        """
        ...

    def stirred(self, owners: Iterable[AgentName]) -> list[AgentName]:
        """Those whose inbox may hold what they have not seen; who waits for the rest has seen all of it."""
        ...

    def is_foreign(self, owner: AgentName) -> bool:
        """Whether its inbox was made for another program."""
        ...

    async def history(self, owner: AgentName) -> tuple[Mail, ...]:
        """All mail ever delivered: consumed mail in about the order it was consumed, then the unread."""
        ...

    async def aclose(self) -> None: ...


class TaskBoard(Protocol):
    """The tasks of one team or session."""

    async def create(self, draft: Draft) -> Task: ...

    async def get(self, task: TaskId) -> Task | None: ...

    async def list(self) -> Sequence[Task]:
        """By number."""
        ...

    async def unfinished(self) -> Sequence[Task]:
        """Those that are not completed, by number, at no cost for what is."""
        ...

    async def look(self) -> Mapping[TaskId, Task]:
        """All tasks as they are now, at no cost for each: to be looked up in and not kept."""
        ...

    async def update(self, task: TaskId, change: Change, *, by: AgentName) -> tuple[Task, Task]:
        """Before and after. Both sides of a dependency change together, or neither. Raises `TaskRefused`."""
        ...

    async def claim(self, task: TaskId, *, by: AgentName) -> Claim:
        """Of any number of claimants exactly one succeeds. The claim lives as long as its holder does."""
        ...

    async def claim_next(self, *, by: AgentName) -> Claim | None:
        """The first claimable task, or None."""
        ...

    async def reclaim(self, owner: AgentName) -> tuple[TaskId, ...]:
        """Hold again what this owner held when its process died, unless another has taken it.

        It is the same attempt, but for the process that holds it (`mark_of`).
        """
        ...

    async def release(self, task: TaskId, *, attempt: str) -> bool:
        """Give it back; False where the attempt no longer holds it."""
        ...

    async def release_all(self, owner: AgentName) -> tuple[TaskId, ...]:
        """Put back to pending what a member who is gone had claimed."""
        ...

    async def delete(self, task: TaskId) -> None: ...

    async def wait_claimable(self) -> None:
        """Returns when some task is claimable. k tasks wake at most k waiters of this process."""
        ...

    async def aclose(self) -> None: ...


class Rosters(Protocol):
    async def create(
        self,
        name: TeamName,
        *,
        lead: Newcomer,
        session: str,
        description: str | None,
        leader: str | None = None,
    ) -> Team:
        """A name that is taken gets a number. `leader` is the id of a lead that is a teammate elsewhere."""
        ...

    async def read(self, team: TeamName) -> Team | None: ...

    async def list(self) -> Sequence[TeamName]: ...

    async def join(self, team: TeamName, newcomer: Newcomer) -> Member:
        """Any number may join at the same time; none is lost."""
        ...

    async def change(self, team: TeamName, name: AgentName, **fields: object) -> Member: ...

    async def show_active(self, team: TeamName, active: Mapping[AgentName, bool]) -> None:
        """Whether each of these is at work, in one write; who is no member is passed over."""
        ...

    async def leave(self, team: TeamName, name: AgentName) -> bool: ...

    async def delete(self, team: TeamName) -> None:
        """Remove the team's roster, inboxes and tasks. Raises `TeamBusy` while a teammate is active."""
        ...

    async def aclose(self) -> None: ...


class Record(Protocol):
    """What a home holds between agents."""

    @property
    def rosters(self) -> Rosters: ...

    def board(self, name: str) -> TaskBoard:
        """Of a team, or of the session with that id."""
        ...

    def mailboxes(self, team: str) -> Mailboxes: ...

    @property
    def attempts(self) -> Attempts: ...

    def key(self, team: TeamName) -> bytes:
        """What the team's own processes sign their mail with; it goes with the team."""
        ...

    async def forget(self, team: TeamName) -> None:
        """Let go of what was open of a team that is deleted."""
        ...
