"""Routes that read and change the task board of a run."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from shoal.app.outside.watching import Run
from shoal.app.teams.board_orders import add_task, change_task
from shoal.core.names import PERSON, AgentName, agent_name, name_from, task_id
from shoal.core.tasks import RANK, Change, Draft, Task
from shoal.surfaces.web.replies import Refused, body_of, json_reply, word_in
from shoal.surfaces.web.showing import Showing
from shoal.tools.task_texts import as_data


class NewTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    board: str
    subject: str
    description: str = ""
    blocked_by: tuple[str, ...] = ()
    owner: str = ""


class TaskWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Missing fields stay unchanged; an empty owner unassigns, and a null rank sorts by number."""

    owner: str | UnsetType | None = UNSET
    status: Literal["pending", "in_progress", "completed", "deleted"] | UnsetType = UNSET
    rank: float | UnsetType | None = UNSET
    subject: str | UnsetType = UNSET
    description: str | UnsetType = UNSET


class BoardDoor:
    def __init__(self, showing: Showing) -> None:
        self._runs = showing.runs
        self._record = showing.record

    async def add(self, request: Request) -> Response:
        run, wish = self._runs.find(word_in(request, "session")), await body_of(request, NewTask)
        board = await self._board(run, wish.board, to_change=True)
        if not wish.subject.strip():
            raise Refused(400, "A task needs a subject.")
        draft = Draft(subject=wish.subject, description=wish.description)
        owner = agent_name(wish.owner) if wish.owner.strip() else None
        waits_for = tuple(map(task_id, wish.blocked_by))
        task = await add_task(self._record, board, draft, blocked_by=waits_for, by=PERSON)
        if owner is not None:
            task = await change_task(self._record, board, task.id, Change(owner=owner), by=PERSON)
        return json_reply({"ok": True, "task": _shown(task)}, 201)

    async def change(self, request: Request) -> Response:
        run, wish = self._runs.find(word_in(request, "session")), await body_of(request, TaskWish)
        board = await self._board(run, word_in(request, "board"), to_change=True)
        task = task_id(word_in(request, "task"))
        after = await change_task(self._record, board, task, _change(wish), by=PERSON)
        return json_reply({"ok": True, "task": _shown(after)})

    async def whole(self, request: Request) -> Response:
        run = self._runs.find(word_in(request, "session"))
        board = await self._board(run, word_in(request, "board"))
        task = await self._record.board(board).get(task_id(word_in(request, "task")))
        if task is None:
            raise Refused(404, f"The board {board} has no such task.")
        return json_reply(_shown(task))

    async def _board(self, run: Run, name: str, *, to_change: bool = False) -> str:
        """Return the board's name if it is the run's own or that of one of its teams."""
        board, facts = name_from(name), await self._runs.facts(run)
        if board not in (run.session, *facts.teams, *facts.boards):
            raise Refused(404, f"The run has no board {board}.")
        if to_change and not run.is_live:
            raise Refused(
                409,
                "The run has ended, and its record would not tell of the change. "
                f"Go on with it: shoal --resume {run.session}",
            )
        return board


def _change(wish: TaskWish) -> Change:
    owner: AgentName | UnsetType | None = UNSET
    if not isinstance(wish.owner, UnsetType):
        owner = agent_name(wish.owner) if wish.owner and wish.owner.strip() else None
    change = Change(
        subject=wish.subject,
        description=wish.description,
        status=wish.status,
        owner=owner,
        metadata={} if isinstance(wish.rank, UnsetType) else {RANK: wish.rank},
    )
    if change == Change():
        raise Refused(400, "There is nothing to change.")
    return change


def _shown(task: Task) -> dict[str, Any]:
    return {**as_data(task), "rank": task.rank}
