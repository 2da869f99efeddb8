"""Routes that read and change the task board of a run."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from shoal.app.run_access.run_handle import RunHandle
from shoal.app.teams.board_changes import add_board_task, change_task_and_notify_owners
from shoal.app.teams.team_lookup import resolve_task_owner
from shoal.core.names import USER_NAME, AgentName, parse_safe_name, parse_task_id
from shoal.core.teams.tasks import RANK_KEY, Task, TaskDraft, TaskUpdate
from shoal.surfaces.web.json_replies import (
    WebApiRequestRefusedError,
    build_json_reply,
    decode_request_body,
    get_path_param,
)
from shoal.surfaces.web.web_context import WebContext
from shoal.tools.task_format import task_to_dict


class NewTaskRequestBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    board: str
    subject: str
    description: str = ""
    blocked_by: tuple[str, ...] = ()
    owner: str = ""


class TaskChangeRequestBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Missing fields stay unchanged; an empty owner unassigns, and a null rank sorts by number."""

    owner: str | UnsetType | None = UNSET
    status: Literal["pending", "in_progress", "completed", "deleted"] | UnsetType = UNSET
    rank: float | UnsetType | None = UNSET
    subject: str | UnsetType = UNSET
    description: str | UnsetType = UNSET


class TaskBoardWebRoutes:
    def __init__(self, context: WebContext) -> None:
        self._runs = context.runs
        self._team_store = context.team_store

    async def post_task(self, request: Request) -> Response:
        run, new_task = (
            self._runs.find_run(get_path_param(request, "session")),
            await decode_request_body(request, NewTaskRequestBody),
        )
        board = await self._require_board_of_run(run, new_task.board, to_change=True)
        if not new_task.subject.strip():
            raise WebApiRequestRefusedError(400, "A task needs a subject.")
        draft = TaskDraft(subject=new_task.subject, description=new_task.description)
        owner = await resolve_task_owner(self._team_store, board, new_task.owner)
        blocked_by = tuple(map(parse_task_id, new_task.blocked_by))
        task = await add_board_task(self._team_store, board, draft, blocked_by=blocked_by, by=USER_NAME)
        if owner is not None:
            task = await change_task_and_notify_owners(
                self._team_store, board, task.id, TaskUpdate(owner=owner), by=USER_NAME
            )
        return build_json_reply({"ok": True, "task": _task_to_json(task)}, 201)

    async def patch_task(self, request: Request) -> Response:
        run, change_request = (
            self._runs.find_run(get_path_param(request, "session")),
            await decode_request_body(request, TaskChangeRequestBody),
        )
        board = await self._require_board_of_run(run, get_path_param(request, "board"), to_change=True)
        task = parse_task_id(get_path_param(request, "task"))
        updated_task = await change_task_and_notify_owners(
            self._team_store, board, task, await self._build_task_update(board, change_request), by=USER_NAME
        )
        return build_json_reply({"ok": True, "task": _task_to_json(updated_task)})

    async def _build_task_update(self, board: str, request: TaskChangeRequestBody) -> TaskUpdate:
        owner: AgentName | UnsetType | None = UNSET
        if not isinstance(request.owner, UnsetType):
            owner = await resolve_task_owner(self._team_store, board, request.owner or "")
        change = TaskUpdate(
            subject=request.subject,
            description=request.description,
            status=request.status,
            owner=owner,
            metadata={} if isinstance(request.rank, UnsetType) else {RANK_KEY: request.rank},
        )
        if change == TaskUpdate():
            raise WebApiRequestRefusedError(400, "There is nothing to change.")
        return change

    async def get_task(self, request: Request) -> Response:
        run = self._runs.find_run(get_path_param(request, "session"))
        board = await self._require_board_of_run(run, get_path_param(request, "board"))
        task = await self._team_store.open_board(board).get(parse_task_id(get_path_param(request, "task")))
        if task is None:
            raise WebApiRequestRefusedError(404, f"The board {board} has no such task.")
        return build_json_reply(_task_to_json(task))

    async def _require_board_of_run(self, run: RunHandle, name: str, *, to_change: bool = False) -> str:
        """Return the board's name if it is the run's own or that of one of its teams."""
        board, facts = parse_safe_name(name), await self._runs.get_run_summary(run)
        if board not in (run.session, *facts.teams, *facts.boards):
            raise WebApiRequestRefusedError(404, f"The run has no board {board}.")
        if to_change and not run.is_live:
            raise WebApiRequestRefusedError(
                409,
                "The run has ended, so its journal would not record the change. Resume it: shoal --resume "
                f"{run.session}",
            )
        return board


def _task_to_json(task: Task) -> dict[str, Any]:
    return {**task_to_dict(task), "rank": task.rank}
