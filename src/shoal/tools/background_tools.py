"""Tools that inspect and stop background work: agents and shells."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from msgspec import Meta

from shoal.core.agents.subagents import AgentOperations, AgentStatusSnapshot
from shoal.core.agents.workflow_scripts import WorkflowOperations
from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput, create_tool_error_output
from shoal.core.core_texts import format_end_reason
from shoal.core.teams.team_operations import TeamOperations
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.shell_supervisor import BackgroundShellProcess, BackgroundShellSupervisor
from shoal.tools.tool_texts import format_tool_text
from shoal.wire.notification_text import (
    format_agent_report,
    format_retained_worktree_work,
    summarize_agent_result,
)

_MAX_TIMEOUT = 600_000


def build_background_tools(
    supervisor: AgentOperations,
    shells: BackgroundShellSupervisor,
    teams: TeamOperations,
    workflows: WorkflowOperations,
    *,
    has_output: bool = True,
) -> tuple[Tool, ...]:
    """Build the tools; `has_output` is False if nothing can run in the background but teammates."""
    return (
        *([_build_task_output_tool(supervisor, shells, workflows)] if has_output else ()),
        _build_task_stop_tool(supervisor, shells, teams, workflows),
    )


def _build_task_output_tool(
    supervisor: AgentOperations, shells: BackgroundShellSupervisor, workflows: WorkflowOperations
) -> Tool:
    @builtin_tool(name="TaskOutput", reads_only=True, deadline=None)
    async def task_output(
        task_id: str,
        block: bool = True,  # noqa: FBT001, FBT002 - the name models know
        timeout: Annotated[int, Meta(ge=0, le=_MAX_TIMEOUT)] = 30_000,
        *,
        context: ToolContext,
    ) -> ToolOutput:
        seconds = timeout / 1000 if block else 0
        shell = shells.find_shell(task_id)
        if shell is not None:
            return await _wait_and_read_shell_output(shells, shell, seconds, context)
        if workflows.take_snapshot(task_id) is not None:
            return await _wait_and_describe_workflow(workflows, task_id, seconds, context)
        return _format_agent_output(await supervisor.poll_agent(task_id, seconds=seconds, context=context))

    return task_output


def _build_task_stop_tool(
    supervisor: AgentOperations,
    shells: BackgroundShellSupervisor,
    teams: TeamOperations,
    workflows: WorkflowOperations,
) -> Tool:
    @builtin_tool(name="TaskStop", deadline=60)
    async def task_stop(
        task_id: str | None = None,
        shell_id: str | None = None,
        *,
        context: ToolContext,
    ) -> ToolOutput:
        target = task_id or shell_id
        if target is None:
            return create_tool_error_output(format_tool_text("TaskStop", "no_target"))
        shell = shells.find_shell(target)
        if shell is not None:
            if shell.status != "running":
                return create_tool_error_output(
                    format_tool_text("TaskStop", "not_running", shell=target, status=shell.status)
                )
            await shell.stop(format_end_reason("stopped_by", name=context.agent.name), by=context.agent.agent)
            return ToolOutput(
                content=format_tool_text("TaskStop", "stopped_shell", shell=target, command=shell.command),
                data={"task_id": target},
            )
        if await teams.stop_member(target, context):
            return ToolOutput(
                content=format_tool_text("TaskStop", "stopped_teammate", name=target),
                data={"task_id": target},
            )
        if await workflows.stop_workflow(target, format_end_reason("stopped_by", name=context.agent.name)):
            return ToolOutput(
                content=format_tool_text("TaskStop", "stopped_workflow", workflow=target),
                data={"task_id": target},
            )
        stopped = await supervisor.stop_agent(target, context)
        return ToolOutput(
            content=format_tool_text(
                "TaskStop", "stopped_agent", agent=stopped.agent, description=stopped.description
            ),
            data={"task_id": stopped.agent, "status": stopped.status},
        )

    return task_stop


async def _wait_and_read_shell_output(
    shells: BackgroundShellSupervisor, shell: BackgroundShellProcess, seconds: float, context: ToolContext
) -> ToolOutput:
    if seconds and shell.status == "running":
        try:
            async with context.clock.deadline(seconds):
                await shell.ended.wait()
        except TimeoutError:
            pass
    shells.mark_shell_end_seen(shell, context)
    return ToolOutput(
        content=f"status: {shell.status}\nexit code: {shell.exit_code}\n\n{shell.read_new_output()}",
        data={"task_id": shell.id, "status": shell.status, "exit_code": shell.exit_code},
    )


async def _wait_and_describe_workflow(
    workflows: WorkflowOperations, workflow: str, seconds: float, context: ToolContext
) -> ToolOutput:
    if seconds:
        with suppress(TimeoutError):
            async with context.clock.deadline(seconds):
                await workflows.wait_for_end(workflow)
    snapshot = workflows.take_snapshot(workflow)
    assert snapshot is not None
    phase = f" Phase: {snapshot.phase}." if snapshot.phase else ""
    lines = [
        f"status: {snapshot.status}",
        f"{snapshot.finished_steps} steps finished, {snapshot.open_steps} open.{phase}",
        *filter(None, (snapshot.detail, snapshot.value)),
    ]
    return ToolOutput(
        content="\n".join(lines), data={"task_id": snapshot.workflow, "status": snapshot.status}
    )


def _format_agent_output(snapshot: AgentStatusSnapshot) -> ToolOutput:
    data = {"task_id": snapshot.agent, "status": snapshot.status, "output_file": snapshot.output}
    result = snapshot.completion
    if result is None:
        activity = f" Current step: {snapshot.doing}." if snapshot.doing else ""
        return ToolOutput(
            content=format_tool_text(
                "TaskOutput",
                "running",
                calls=snapshot.tool_calls,
                tokens=f"{snapshot.tokens:,}",
                seconds=f"{snapshot.seconds:.0f}",
                activity=activity,
                output=snapshot.output,
            ),
            data=data,
        )
    retained_work = "" if result.worktree is None else f"\n\n{format_retained_worktree_work(result.worktree)}"
    report = f"{format_agent_report(result)}{retained_work}"
    content = f"status: {result.status}\n{summarize_agent_result(result)}\n\n{report}"
    return ToolOutput(content=content, data=data)
