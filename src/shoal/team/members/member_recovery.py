"""Continues a member that an earlier process left."""

from __future__ import annotations

from collections.abc import Container

from shoal.core.names import TaskId
from shoal.core.teams.team_storage import TaskBoard
from shoal.runs.prepared_agent import PreparedAgent
from shoal.runs.run_outcome import AgentRunOutcome
from shoal.team.mail.rendered_mail import RenderedMail, render_claimed_task
from shoal.team.members.local_member import LocalMember, build_task_claim_notice_id
from shoal.team.team_prompts import format_team_notice
from shoal.team.team_services import TeamServices


async def continue_resumed_member(
    services: TeamServices,
    member: LocalMember,
    board: TaskBoard,
    claimed_tasks: tuple[TaskId, ...],
    lead_mail_ids: Container[str],
) -> None:
    """Restore the idle state, or queue a notice that it was cut off at work.

    `lead_mail_ids` are the ids of all mail that its lead ever received.
    """
    await _requeue_task_claim_notices(services, member, board, claimed_tasks)
    if was_cut_off_at_work(member.prepared):
        rendered = RenderedMail(rank=0, by="runtime", text=format_team_notice("process_restarted"))
        services.queue.put(rendered.to_inbox_item(f"again-{services.ids.new_short_id()}", member.id))
    elif member.agent.conversation.messages:
        member.state = "idle"
        if member.idle_notice_id not in lead_mail_ids:
            # Its process died between its last text and the idle notice.
            await member.notify_lead_and_go_idle(
                "available", AgentRunOutcome(status="completed", text=member.last_assistant_text)
            )


async def _requeue_task_claim_notices(
    services: TeamServices, member: LocalMember, board: TaskBoard, claimed_tasks: tuple[TaskId, ...]
) -> None:
    """Queue notices of tasks that it claimed just before its process ended and does not know."""
    delivered = member.prepared.delivered
    for task_id in claimed_tasks:
        task = await board.get(task_id)
        if task is not None and build_task_claim_notice_id(task) not in delivered:
            services.queue.put(
                render_claimed_task(task).to_inbox_item(build_task_claim_notice_id(task), member.id)
            )


def was_cut_off_at_work(prepared: PreparedAgent) -> bool:
    """Return True if its process ended during work: the last message is not its own, or is a call."""
    messages = prepared.agent.conversation.messages
    return bool(messages) and (messages[-1].role == "user" or bool(messages[-1].tool_uses))
