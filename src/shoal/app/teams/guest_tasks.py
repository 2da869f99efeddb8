"""Task board of a team for an external program, equivalent to the task tools of agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from shoal.app.teams.board_orders import add_task
from shoal.app.teams.guest import Guest, Seat
from shoal.app.teams.record import AgentsRecord
from shoal.core.errors import TaskRefused
from shoal.core.names import AgentName, agent_name, task_id
from shoal.core.record import TaskBoard
from shoal.core.tasks import Change, Draft, Task, around, begun_by
from shoal.tools.task_texts import as_data, refused

NewStatus: TypeAlias = Literal["pending", "in_progress", "completed", "deleted"]


class Wish(Struct, frozen=True, kw_only=True):
    """Task update requested by the program; None leaves a field unchanged."""

    status: NewStatus | None = None
    owner: str | None = None
    subject: str | None = None
    description: str | None = None
    blocks: Sequence[str] = ()
    blocked_by: Sequence[str] = ()
    metadata: Mapping[str, Any] = {}
    attempt: str | None = None


class GuestTasks:
    def __init__(self, record: AgentsRecord, guest: Guest) -> None:
        self._record = record
        self._guest = guest

    async def create(self, seat: Seat, draft: Draft, blocked_by: Sequence[str] = ()) -> Task:
        waits_for = tuple(map(task_id, blocked_by))
        return await add_task(self._record, seat.team, draft, blocked_by=waits_for, by=seat.name)

    async def list(self, seat: Seat) -> Sequence[Task]:
        return await self._record.board(seat.team).list()

    async def get(self, seat: Seat, task: str) -> Task:
        found = await self._record.board(seat.team).get(task_id(task))
        if found is None:
            raise TaskRefused(f"There is no task {task}. task_list shows the tasks there are.")
        return found

    async def update(self, seat: Seat, text: str, wish: Wish) -> tuple[Task, str | None]:
        """Return the task and the attempt id under which the program holds it. Starting a task claims it."""
        board, before = self._record.board(seat.team), await self.get(seat, text)
        self._refuse(seat, before, wish)
        key = (seat.team, before.id)
        claims = (wish.status == "in_progress" and wish.owner in (None, seat.name)) or wish.owner == seat.name
        if claims:
            claim = await board.claim(before.id, by=seat.name)
            if not claim.success:
                raise TaskRefused(refused(before.id, claim, await board.look()))
            self._guest.attempts[key] = claim.attempt or ""
        attempt = wish.attempt or self._guest.attempts.get(key)
        change = _change(wish, attempt, claimed=claims)
        after = await self.get(seat, text) if claims else before
        if change != Change(attempt=attempt):
            _, after = await board.update(before.id, change, by=seat.name)
        elif not claims:
            raise TaskRefused("Nothing was given to change. Give a status, an owner, or another field.")
        if wish.status not in (None, "in_progress"):
            self._guest.attempts.pop(key, None)
        await self._tell(seat, board, before, after, wish)
        return after, self._guest.attempts.get(key)

    def _refuse(self, seat: Seat, task: Task, wish: Wish) -> None:
        command = task.metadata.get("acceptance")
        if wish.status == "completed" and isinstance(command, str):
            raise TaskRefused(
                f"Task {task.id} is done when its acceptance command passes (`{command}`), and only agents "
                "of Shoal run it. Tell the lead that it is ready."
            )
        held = task.status == "in_progress" and task.owner not in (None, seat.name)
        if held and not seat.leads and wish.status in ("completed", "pending", "deleted"):
            raise TaskRefused(
                f"Task {task.id} is being worked on by {task.owner}, so it was not changed. "
                f"Write to {task.owner} or to the lead."
            )

    async def _tell(self, seat: Seat, board: TaskBoard, before: Task, after: Task, wish: Wish) -> None:
        if after.owner not in (None, before.owner, seat.name):
            await self._record.assign(seat.team, seat.name, after.owner, after)
        if wish.status == "completed":
            for task in begun_by(after.id, around(after, await board.look())):
                if task.owner not in (None, seat.name):
                    await self._record.assign(seat.team, seat.name, task.owner, task)


def _change(wish: Wish, attempt: str | None, *, claimed: bool) -> Change:
    owner: AgentName | UnsetType | None = UNSET
    if wish.owner is not None and not claimed:
        owner = agent_name(wish.owner) if wish.owner.strip() else None
    return Change(
        subject=UNSET if wish.subject is None else wish.subject,
        description=UNSET if wish.description is None else wish.description,
        status=UNSET if wish.status is None or (claimed and wish.status == "in_progress") else wish.status,
        owner=owner,
        add_blocks=tuple(map(task_id, wish.blocks)),
        add_blocked_by=tuple(map(task_id, wish.blocked_by)),
        metadata=wish.metadata,
        attempt=attempt,
    )


def task_data(task: Task, attempt: str | None = None) -> dict[str, Any]:
    return as_data(task) if attempt is None else {**as_data(task), "attempt": attempt}
