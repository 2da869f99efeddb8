"""Task tools on a board that a team shares or one session owns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from shoal.core.agents.identity import AgentIdentity
from shoal.core.agents.subagents import ShellCommandResult
from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput, create_tool_error_output
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import StateFileError, TeamStoreError
from shoal.core.extensions.hooks import HookDecision
from shoal.core.names import AgentName, TaskId, parse_agent_name, parse_task_id
from shoal.core.teams.tasks import (
    REFUSAL_KEY,
    Task,
    TaskClaimResult,
    TaskDraft,
    TaskUpdate,
    find_claimable_tasks_unblocked_by,
    find_open_blockers,
    find_owned_tasks_unblocked_by,
    is_same_claim,
    refuse_blocked_claim,
    select_tasks_affected_by_completion,
)
from shoal.core.teams.team_storage import ClaimAttempts, TaskBoard
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.function_tool import FunctionTool, ToolParameterName
from shoal.tools.task_format import explain_failed_claim, format_task_details, format_task_line, task_to_dict
from shoal.tools.tool_texts import format_tool_text, load_tool_text

BoardLookup: TypeAlias = Callable[[AgentIdentity], TaskBoard]
AssignmentNotifier: TypeAlias = Callable[[AgentIdentity, AgentName, Task], Awaitable[None]]
AcceptanceRunner: TypeAlias = Callable[[str, AgentIdentity], Awaitable[tuple[ShellCommandResult, str]]]
LeadIdentityLookup: TypeAlias = Callable[[AgentIdentity, str], AgentIdentity | None]
_DEADLINE = 60
_UPDATE_DEADLINE = 660
"""Time limit in seconds for an update, which may run an acceptance command first."""

_REFUSAL_LINES, _REFUSAL_LENGTH = 20, 2_000

_Text = Annotated[str, Meta(min_length=1)]
_Id = Annotated[str, ToolParameterName("taskId")]
_Ids = Annotated[list[str], Meta(max_length=1000)]
_Metadata = dict[str, Any]
_Status = Literal["pending", "in_progress", "completed", "deleted"]


async def _ignore_assignment(_: AgentIdentity, __: AgentName, ___: Task) -> None:
    return


def build_task_tools(
    find_board: BoardLookup,
    notify_assignee: AssignmentNotifier = _ignore_assignment,
    run_acceptance: AcceptanceRunner | None = None,
    attempts: ClaimAttempts | None = None,
    find_lead_identity: LeadIdentityLookup | None = None,
) -> tuple[Tool, ...]:
    """Return the task tools, for any number of agents.

    `find_board` returns an agent's board; `notify_assignee` informs an agent of its task. `run_acceptance`
    runs the `acceptance` command from a task's metadata before the task is completed. `attempts` also holds
    claims that the runtime made for agents. `find_lead_identity` returns the identity an agent has on the
    board of another team that it leads; without it the `team_name` input is hidden.
    """
    actions = _TaskToolActions(
        find_board, notify_assignee, run_acceptance, {} if attempts is None else attempts, find_lead_identity
    )
    tools = (
        _build_task_create_tool(actions),
        _build_task_get_tool(actions),
        _build_task_list_tool(actions),
        _build_task_update_tool(actions),
    )
    if find_lead_identity is None:
        for task_tool in tools:
            task_tool.restrict_inputs(task_tool.get_inputs_without("team_name"))
    return tools


def _build_task_create_tool(actions: _TaskToolActions) -> FunctionTool:
    @builtin_tool(name="TaskCreate", deadline=_DEADLINE)
    async def task_create(
        subject: _Text,
        description: str,
        active_form: Annotated[str, ToolParameterName("activeForm")] = "",
        metadata: _Metadata = {},  # noqa: B006 - copied for each call
        team_name: str | None = None,
        *,
        context: ToolContext,
    ) -> ToolOutput:
        draft = TaskDraft(
            subject=subject, description=description, active_form=active_form, metadata=metadata
        )
        return await _return_store_errors_as_output(actions.create_task(draft, context, team_name))

    return task_create


def _build_task_get_tool(actions: _TaskToolActions) -> FunctionTool:
    @builtin_tool(name="TaskGet", reads_only=True, deadline=_DEADLINE)
    async def task_get(task: _Id, team_name: str | None = None, *, context: ToolContext) -> ToolOutput:
        return await _return_store_errors_as_output(actions.get_task(task, context, team_name))

    return task_get


def _build_task_list_tool(actions: _TaskToolActions) -> FunctionTool:
    @builtin_tool(name="TaskList", reads_only=True, deadline=_DEADLINE)
    async def task_list(team_name: str | None = None, *, context: ToolContext) -> ToolOutput:
        return await _return_store_errors_as_output(actions.list_tasks(context, team_name))

    return task_list


def _build_task_update_tool(actions: _TaskToolActions) -> FunctionTool:
    @builtin_tool(name="TaskUpdate", deadline=_UPDATE_DEADLINE)
    async def task_update(  # noqa: PLR0913, PLR0917 - the inputs that the protocol names
        task: _Id,
        subject: _Text | None = None,
        description: str | None = None,
        active_form: Annotated[str | None, ToolParameterName("activeForm")] = None,
        status: _Status | None = None,
        add_blocks: Annotated[_Ids, ToolParameterName("addBlocks")] = [],  # noqa: B006
        add_blocked_by: Annotated[_Ids, ToolParameterName("addBlockedBy")] = [],  # noqa: B006
        owner: str | None = None,
        metadata: _Metadata = {},  # noqa: B006
        team_name: str | None = None,
        *,
        context: ToolContext,
    ) -> ToolOutput:
        request = _TaskUpdateRequest(
            subject=subject,
            description=description,
            active_form=active_form,
            status=status,
            owner=owner,
            add_blocks=add_blocks,
            add_blocked_by=add_blocked_by,
            metadata=metadata,
        )
        return await _return_store_errors_as_output(actions.update_task(task, request, context, team_name))

    return task_update


class _TaskUpdateRequest(Struct, frozen=True, kw_only=True):
    """An update as requested by the model; None leaves a field unchanged."""

    subject: str | None
    description: str | None
    active_form: str | None
    status: _Status | None
    owner: str | None
    add_blocks: list[str]
    add_blocked_by: list[str]
    metadata: _Metadata

    def is_task_claim(self, me: AgentName) -> bool:
        """Return True if the update claims the task: it sets the caller as owner, or starts the task."""
        return self.owner == me if self.owner is not None else self.status == "in_progress"

    def build_task_update(self, *, claimed: bool, attempt: str | None) -> TaskUpdate:
        owner: AgentName | UnsetType | None = UNSET
        if self.owner is not None and not claimed:
            owner = parse_agent_name(self.owner) if self.owner.strip() else None
        is_set_by_claim = claimed and self.status == "in_progress"
        return TaskUpdate(
            subject=_unset_if_none(self.subject),
            description=_unset_if_none(self.description),
            active_form=_unset_if_none(self.active_form),
            status=UNSET if self.status is None or is_set_by_claim else self.status,
            owner=owner,
            add_blocks=tuple(map(parse_task_id, self.add_blocks)),
            add_blocked_by=tuple(map(parse_task_id, self.add_blocked_by)),
            metadata=self.metadata,
            attempt=attempt,
        )


class _TaskToolActions:
    """Implements the tools, with the attempts under which agents of this process hold their tasks."""

    def __init__(
        self,
        find_board: BoardLookup,
        notify_assignee: AssignmentNotifier,
        run_acceptance: AcceptanceRunner | None,
        attempts: ClaimAttempts,
        find_lead_identity: LeadIdentityLookup | None,
    ) -> None:
        self._find_board = find_board
        self._notify_assignee = notify_assignee
        self._run_acceptance = run_acceptance
        self._attempts = attempts
        self._find_lead_identity = find_lead_identity

    def _switch_to_lead_identity(self, context: ToolContext, team: str | None) -> ToolContext:
        """Return the context with the agent's identity on that board.

        Raises `TeamStoreError` if the agent does not lead the team.
        """
        if team is None or team == context.agent.team:
            return context
        lead = None if self._find_lead_identity is None else self._find_lead_identity(context.agent, team)
        if lead is None:
            raise TeamStoreError(format_tool_text("TaskUpdate", "other_team", team=repr(team)))
        return structs.replace(context, agent=lead)

    async def create_task(self, draft: TaskDraft, context: ToolContext, team: str | None) -> ToolOutput:
        context = self._switch_to_lead_identity(context, team)
        if context.hooks.has_hooks_for("TaskCreated"):
            # Before it is on the board, where another agent could claim it at once.
            hook_input = {"task_subject": draft.subject, "task_description": draft.description}
            decision = await context.hooks.run_hooks("TaskCreated", hook_input)
            if (reason := _find_objection(decision)) is not None:
                return create_tool_error_output(format_tool_text("TaskCreate", "hook_blocked", reason=reason))
        task = await self._find_board(context.agent).create(draft)
        return ToolOutput(
            content=format_tool_text("TaskCreate", "created", task=task.id, subject=task.subject),
            data={"task": task_to_dict(task)},
        )

    async def get_task(self, text: str, context: ToolContext, team: str | None) -> ToolOutput:
        context = self._switch_to_lead_identity(context, team)
        board = self._find_board(context.agent)
        task = await board.get(parse_task_id(text))
        if task is None:
            return create_tool_error_output(format_tool_text("TaskUpdate", "unknown_task", task=text))
        return ToolOutput(
            content=format_task_details(task, await board.get_live_task_mapping()),
            data={"task": task_to_dict(task)},
        )

    async def list_tasks(self, context: ToolContext, team: str | None) -> ToolOutput:
        context = self._switch_to_lead_identity(context, team)
        tasks = await self._find_board(context.agent).list_tasks()
        by_id = {task.id: task for task in tasks}
        lines = [format_task_line(task, find_open_blockers(task, by_id)) for task in tasks]
        return ToolOutput(
            content="\n".join(lines) or load_tool_text("TaskList", "empty"),
            data={"tasks": [task_to_dict(task) for task in tasks]},
        )

    async def update_task(
        self, text: str, request: _TaskUpdateRequest, context: ToolContext, team: str | None
    ) -> ToolOutput:
        context = self._switch_to_lead_identity(context, team)
        board, caller, task_id = (
            self._find_board(context.agent),
            parse_agent_name(context.agent.name),
            parse_task_id(text),
        )
        key = (context.agent.agent, task_id)
        known_task = await board.get(task_id)
        if (refusal := await self._explain_update_refusal(known_task, request, context)) is not None:
            await _record_refused_completion(board, task_id, request, refusal, caller)
            return create_tool_error_output(refusal)
        claim: TaskClaimResult | None = None
        if request.is_task_claim(caller):
            await _validate_claim(board, known_task, request)
            claim = await board.claim(task_id, by=caller)
            if not claim.success:
                return create_tool_error_output(
                    explain_failed_claim(task_id, claim, await board.get_live_task_mapping())
                )
            self._attempts[key] = claim.attempt or ""
        else:
            if self._has_completion_checks(known_task, request, context):
                known_task = await board.get(task_id)  # the checks took time
            if (holder_problem := _check_task_holder(known_task, request, context)) is not None:
                return create_tool_error_output(holder_problem)
        change = request.build_task_update(claimed=claim is not None, attempt=self._attempts.get(key))
        try:
            before, after = (
                await board.update(task_id, change, by=caller)
                if _has_task_changes(change)
                else _get_claimed_task_pair(claim)
            )
        except TeamStoreError:
            was_held = claim is not None and known_task is not None and is_same_claim(known_task, claim)
            if claim is not None and claim.attempt is not None and not was_held:
                await board.release(task_id, attempt=claim.attempt)
            raise
        if change.status is not UNSET and change.status != "in_progress":
            self._attempts.pop(key, None)
        if after.owner not in (None, before.owner, caller):
            await self._notify_assignee(context.agent, after.owner, after)
        return await self._report_update(board, request, after, context, claimed=claim is not None)

    async def _report_update(
        self,
        board: TaskBoard,
        request: _TaskUpdateRequest,
        after: Task,
        context: ToolContext,
        *,
        claimed: bool,
    ) -> ToolOutput:
        caller = parse_agent_name(context.agent.name)
        if request.status == "deleted":
            return ToolOutput(
                content=format_tool_text("TaskUpdate", "deleted", task=after.id), data={"deleted": after.id}
            )
        # Without dependencies, the rest of the board does not matter: it may be large.
        tasks = await board.get_live_task_mapping() if after.blocks or after.blocked_by else {after.id: after}
        # Copied, because the mapping may change while owners are notified.
        related = select_tasks_affected_by_completion(after, tasks) if request.status == "completed" else {}
        blockers = find_open_blockers(after, tasks)
        await self._notify_unblocked_owners(after, related, caller, context)
        return _format_task_update(after, blockers, related, caller, claimed=claimed)

    async def _notify_unblocked_owners(
        self, completed: Task, related: Mapping[TaskId, Task], caller: AgentName, context: ToolContext
    ) -> None:
        """Notify owners of tasks this one blocked: nobody else will claim those."""
        for task in find_owned_tasks_unblocked_by(completed.id, related):
            if task.owner not in (None, caller):
                await self._notify_assignee(context.agent, task.owner, task)

    async def _explain_update_refusal(
        self, task: Task | None, request: _TaskUpdateRequest, context: ToolContext
    ) -> str | None:
        """Return why the update is not allowed, for any holder of the task."""
        if (
            acceptance_problem := _check_acceptance_change(task, request, context)
        ) is not None or request.status != "completed":
            return acceptance_problem
        return await self._run_acceptance_command(task, context) or await _run_task_completed_hook(
            task, context
        )

    def _has_completion_checks(
        self, task: Task | None, request: _TaskUpdateRequest, context: ToolContext
    ) -> bool:
        has_command = task is not None and "acceptance" in task.metadata
        return request.status == "completed" and (has_command or context.hooks.has_hooks_for("TaskCompleted"))

    async def _run_acceptance_command(self, task: Task | None, context: ToolContext) -> str | None:
        """Return why the task is not done, if its acceptance command fails."""
        command = None if task is None else task.metadata.get("acceptance")
        if task is None or self._run_acceptance is None or not isinstance(command, str):
            return None
        result, output = await self._run_acceptance(command, context.agent)
        if result.exit_code == 0:
            return None
        outcome = (
            format_end_reason("command_timed_out")
            if result.exit_code is None
            else format_end_reason("command_exited", status=result.exit_code)
        )
        return format_tool_text(
            "TaskUpdate", "not_accepted", task=task.id, command=command, outcome=outcome, output=output
        )


async def _validate_claim(board: TaskBoard, task: Task | None, request: _TaskUpdateRequest) -> None:
    """Raise an error for invalid input before anything is claimed: it changes nothing."""
    added_blockers = request.build_task_update(claimed=True, attempt=None).add_blocked_by
    if task is not None and added_blockers:
        refuse_blocked_claim(task, added_blockers, await board.get_live_task_mapping())


def _check_task_holder(task: Task | None, request: _TaskUpdateRequest, context: ToolContext) -> str | None:
    """Refuse to end another agent's task, unless the caller is the lead."""
    if request.status not in ("completed", "pending") or context.agent.is_lead:
        return None
    if task is None or task.owner == parse_agent_name(context.agent.name):
        return None
    if task.status == request.status == "completed":
        by = f" by {task.owner}" if task.owner else ""
        return format_tool_text("TaskUpdate", "already_completed", task=task.id, by=by)
    if task.status != "in_progress" or task.owner is None:
        return None
    return format_tool_text("TaskUpdate", "owned", task=task.id, owner=task.owner)


def _format_task_update(
    task: Task,
    open_blockers: Sequence[TaskId],
    related: Mapping[TaskId, Task],
    caller: AgentName,
    *,
    claimed: bool,
) -> ToolOutput:
    """Format the result; `related` are the tasks that its completion affects."""
    sentences = [load_tool_text("TaskUpdate", "yours") if claimed else ""]
    unblocked = find_claimable_tasks_unblocked_by(task.id, related)
    owned = find_owned_tasks_unblocked_by(task.id, related)
    own_ids = [other.id for other in owned if other.owner == caller]
    others = [f"{other.id} ({other.owner}, notified)" for other in owned if other.owner != caller]
    free = [other.id for other in unblocked]
    for key, found in (("free", free), ("own_unblocked", own_ids), ("unblocked", others)):
        if found:
            sentences.append(format_tool_text("TaskUpdate", key, tasks=", ".join(found)))
    text = " ".join(filter(None, (format_task_line(task, open_blockers), *sentences)))
    return ToolOutput(content=text, data={"task": task_to_dict(task)})


async def _record_refused_completion(
    board: TaskBoard, task_id: TaskId, request: _TaskUpdateRequest, refusal: str, caller: AgentName
) -> None:
    """Store why a task was not completed, for the people and programs that see it unfinished."""
    if request.status != "completed":
        return
    tail = "\n".join(refusal.splitlines()[-_REFUSAL_LINES:])
    first = refusal.partition("\n")[0]
    text = refusal if len(refusal) <= _REFUSAL_LENGTH else f"{first}\n…\n{tail[-_REFUSAL_LENGTH:]}"
    with suppress(TeamStoreError):  # deleted in the meantime
        await board.update(task_id, TaskUpdate(metadata={REFUSAL_KEY: text}), by=caller)


def _check_acceptance_change(
    task: Task | None, request: _TaskUpdateRequest, context: ToolContext
) -> str | None:
    """Refuse a change of the acceptance command by anyone but the lead."""
    if context.agent.is_lead or "acceptance" not in request.metadata:
        return None
    command = None if task is None else task.metadata.get("acceptance")
    if task is None or command in (None, request.metadata["acceptance"]):
        return None
    return format_tool_text("TaskUpdate", "acceptance_change", task=task.id, command=command)


async def _run_task_completed_hook(task: Task | None, context: ToolContext) -> str | None:
    """Return a hook's objection to completing the task."""
    if task is None or not context.hooks.has_hooks_for("TaskCompleted"):
        return None
    hook_input = {
        "task_id": task.id,
        "task_subject": task.subject,
        "task_description": task.description,
    }
    decision = await context.hooks.run_hooks("TaskCompleted", hook_input)
    if (reason := _find_objection(decision)) is None:
        return None
    return format_tool_text("TaskUpdate", "hook_blocked", task=task.id, reason=reason)


def _find_objection(decision: HookDecision) -> str | None:
    """Return why the task must not change: a hook that ends the turn does not want the change either."""
    return decision.stop if decision.blocked is None else decision.blocked


async def _return_store_errors_as_output(answer: Awaitable[ToolOutput]) -> ToolOutput:
    """Turn store errors into failed output: an unusable board must not end the turn."""
    try:
        return await answer
    except StateFileError as refusal:
        return create_tool_error_output(str(refusal))


def _unset_if_none(value: str | None) -> str | UnsetType:
    return UNSET if value is None else value


def _has_task_changes(change: TaskUpdate) -> bool:
    """Return True if the change sets anything."""
    return structs.replace(change, attempt=None) != TaskUpdate()


def _get_claimed_task_pair(claim: TaskClaimResult | None) -> tuple[Task, Task]:
    if claim is None or claim.task is None:
        raise TeamStoreError(format_tool_text("TaskUpdate", "no_change"))
    return claim.task, claim.task
