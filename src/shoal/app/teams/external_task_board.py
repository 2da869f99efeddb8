"""Task board of a team for an external program, equivalent to the task tools of agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from shoal.app.model_notices import format_session_notice
from shoal.app.teams.board_changes import add_board_task
from shoal.app.teams.external_member import ExternalMember, ExternalMemberIdentity
from shoal.app.teams.team_store import TeamStore
from shoal.core.core_texts import format_core_notice
from shoal.core.errors import TaskUpdateRefused, TeamStoreError
from shoal.core.names import AgentName, parse_task_id
from shoal.core.teams.tasks import (
    Task,
    TaskClaimResult,
    TaskDraft,
    TaskUpdate,
    find_owned_tasks_unblocked_by,
    is_same_claim,
    refuse_blocked_claim,
    select_tasks_affected_by_completion,
)
from shoal.core.teams.team_storage import TaskBoard
from shoal.tools.task_format import explain_failed_claim, task_to_dict

NewStatus: TypeAlias = Literal["pending", "in_progress", "completed", "deleted"]


class ExternalTaskUpdateRequest(Struct, frozen=True, kw_only=True):
    """Task update requested by the program; None leaves a field unchanged."""

    status: NewStatus | None = None
    owner: str | None = None
    subject: str | None = None
    description: str | None = None
    blocks: Sequence[str] = ()
    blocked_by: Sequence[str] = ()
    metadata: Mapping[str, Any] = {}
    attempt: str | None = None


class ExternalMemberBoardAccess:
    def __init__(self, store: TeamStore, member: ExternalMember) -> None:
        self._store = store
        self._member = member

    async def create(
        self, identity: ExternalMemberIdentity, draft: TaskDraft, blocked_by: Sequence[str] = ()
    ) -> Task:
        blockers = tuple(map(parse_task_id, blocked_by))
        return await add_board_task(self._store, identity.team, draft, blocked_by=blockers, by=identity.name)

    async def list(self, identity: ExternalMemberIdentity) -> Sequence[Task]:
        return await self._store.open_board(identity.team).list_tasks()

    async def get(self, identity: ExternalMemberIdentity, task: str) -> Task:
        found = await self._store.open_board(identity.team).get(parse_task_id(task))
        if found is None:
            raise TaskUpdateRefused(format_session_notice("unknown_task", task=task))
        return found

    async def update(
        self, identity: ExternalMemberIdentity, task: str, request: ExternalTaskUpdateRequest
    ) -> tuple[Task, str | None]:
        """Return the task and the attempt id under which the program holds it. Starting a task claims it."""
        board, before = self._store.open_board(identity.team), await self.get(identity, task)
        if request.attempt and request.attempt != before.claim_attempt:
            raise TaskUpdateRefused(format_core_notice("lost_claim", task=before.id))
        self._check_update_allowed(identity, before, request)
        owner = await self._resolve_owner(identity, request.owner)
        request = replace(request, owner=owner)
        key = (identity.team, before.id)
        is_claim = (
            request.status == "in_progress" and request.owner in (None, identity.name)
        ) or request.owner == identity.name
        claim: TaskClaimResult | None = None
        if is_claim:
            # Validated before anything is claimed: invalid input changes nothing.
            added = _to_task_update(request, None, claimed=True).add_blocked_by
            if added:
                refuse_blocked_claim(before, added, await board.get_live_task_mapping())
            claim = await board.claim(before.id, by=identity.name)
            if not claim.success:
                raise TaskUpdateRefused(
                    explain_failed_claim(before.id, claim, await board.get_live_task_mapping())
                )
            self._member.attempts[key] = claim.attempt or ""
        attempt = request.attempt or self._member.attempts.get(key)
        change = _to_task_update(request, attempt, claimed=is_claim)
        after = await self.get(identity, task) if is_claim else before
        if change != TaskUpdate(attempt=attempt):
            try:
                _, after = await board.update(before.id, change, by=identity.name)
            except TeamStoreError:
                if claim is not None and claim.attempt is not None and not is_same_claim(before, claim):
                    self._member.attempts.pop(key, None)
                    await board.release(before.id, attempt=claim.attempt)
                raise
        elif not is_claim:
            raise TaskUpdateRefused(format_session_notice("no_task_change"))
        if after.claim_attempt is None or request.status not in (None, "in_progress"):
            self._member.attempts.pop(key, None)
        await self._notify_affected_owners(identity, board, before, after, request)
        return after, self._member.attempts.get(key)

    async def _resolve_owner(self, identity: ExternalMemberIdentity, owner: str | None) -> str | None:
        """Return the owner as the roster spells it. Raises `TaskUpdateRefused` if it is not a member."""
        if owner is None or not owner.strip():
            return owner
        team = await self._member.read_team(identity.team)
        entry = team.resolve_member(owner)
        if entry is None:
            names = ", ".join(member.name for member in team.members)
            raise TaskUpdateRefused(
                format_session_notice("unknown_owner", owner=repr(owner), team=team.name, names=names)
            )
        return entry.name

    def _check_update_allowed(
        self, identity: ExternalMemberIdentity, task: Task, request: ExternalTaskUpdateRequest
    ) -> None:
        command = task.metadata.get("acceptance")
        if (
            not identity.is_lead
            and command is not None
            and request.metadata.get("acceptance", command) != command
        ):
            raise TaskUpdateRefused(format_session_notice("acceptance_change", task=task.id, command=command))
        if request.status == "completed" and isinstance(command, str):
            raise TaskUpdateRefused(
                format_session_notice("acceptance_elsewhere", task=task.id, command=command)
            )
        is_held = task.status == "in_progress" and task.owner not in (None, identity.name)
        if is_held and not identity.is_lead and request.status in ("completed", "pending", "deleted"):
            raise TaskUpdateRefused(format_session_notice("task_of_other", task=task.id, owner=task.owner))

    async def _notify_affected_owners(
        self,
        identity: ExternalMemberIdentity,
        board: TaskBoard,
        before: Task,
        after: Task,
        request: ExternalTaskUpdateRequest,
    ) -> None:
        if after.owner not in (None, before.owner, identity.name):
            await self._store.post_assignment(identity.team, identity.name, after.owner, after)
        if request.status == "completed":
            for task in find_owned_tasks_unblocked_by(
                after.id, select_tasks_affected_by_completion(after, await board.get_live_task_mapping())
            ):
                if task.owner not in (None, identity.name):
                    await self._store.post_assignment(identity.team, identity.name, task.owner, task)


def _to_task_update(request: ExternalTaskUpdateRequest, attempt: str | None, *, claimed: bool) -> TaskUpdate:
    owner: AgentName | UnsetType | None = UNSET
    if request.owner is not None and not claimed:
        owner = AgentName(request.owner) if request.owner.strip() else None
    return TaskUpdate(
        subject=UNSET if request.subject is None else request.subject,
        description=UNSET if request.description is None else request.description,
        status=UNSET
        if request.status is None or (claimed and request.status == "in_progress")
        else request.status,
        owner=owner,
        add_blocks=tuple(map(parse_task_id, request.blocks)),
        add_blocked_by=tuple(map(parse_task_id, request.blocked_by)),
        metadata=request.metadata,
        attempt=attempt,
    )


def encode_task_with_attempt(task: Task, attempt: str | None = None) -> dict[str, Any]:
    return task_to_dict(task) if attempt is None else {**task_to_dict(task), "attempt": attempt}
