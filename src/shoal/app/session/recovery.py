"""Publishes the start of a session, and recovers in a resumed one what its earlier process left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import shoal
from shoal.app.agents.backend_launcher import restore_cluster_work
from shoal.app.config.session_memory import build_resume_message
from shoal.core.conversation.messages import ToolUseBlock, user_message
from shoal.core.events import (
    PREVIEW_LENGTH,
    AgentEnded,
    NoteAdded,
    QuestionAnswered,
    SessionStarted,
    WorktreeWorkRetained,
)
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.permissions.questions import AllowAnswer, PermissionQuestion
from shoal.core.text.text_format import to_one_line
from shoal.runs.late_answers import format_late_answer_item_id, resolve_answer_permission_updates
from shoal.stores.subagent_records import has_unstarted_description
from shoal.wire.notification_text import format_late_permission_notice

if TYPE_CHECKING:
    from shoal.app.config.journal_recovery import RecoveredSessionState
    from shoal.app.session.session import Session


async def start_or_recover_session(session: Session) -> None:
    runtime, recovered = session.runtime, session.recovered
    turns_before = max(runtime.config.history.turns, 0 if recovered is None else recovered.turns)
    runtime.lead.permissions.answers.subscribe(session.teams.share_permission_across_processes)
    runtime.events.resume_turns(turns_before)
    if runtime.options.lead_channel is not None:
        # The run belongs to the lead, which has already started it.
        return
    if (resume_message := build_resume_message(session.agent, runtime.config.history)) is not None:
        session.agent.conversation.add_message(resume_message, meta=True)
    runtime.question_broker.withdraw_leftover_questions()
    await session.publish_event(
        SessionStarted(
            agent=session.agent.identity.agent,
            session=session.id,
            cwd=str(runtime.lead.workspace.root),
            model=session.agent.current_model.card.id,
            mode=runtime.lead.permissions.mode,
            tools=tuple(session.agent.tools),
            resumed=bool(turns_before),
            version=shoal.__version__,
            budget_usd=session.budget_limits.max_usd,
            budget_tokens=session.budget_limits.max_tokens,
            model_named=runtime.options.model if isinstance(runtime.options.model, str) else "",
        )
    )
    session.parts.lifecycle_hooks.launch_session_start_hooks(
        resumed=bool(turns_before), send_message=session.steer
    )
    # Nobody is subscribed yet, so the user gets these notes with those about the start.
    unsubscribe = session.subscribe(
        lambda event: session.notes.append(event.text) if isinstance(event, NoteAdded) else None
    )
    try:
        for report in runtime.config.history.damage:
            runtime.events.note(report)
        if recovered is not None:
            for report in _describe_journal_damage(recovered, str(runtime.store.directory / "journal.jsonl")):
                runtime.events.note(report)
            await _recover_session(session, recovered)
    finally:
        unsubscribe()


def _describe_journal_damage(recovered: RecoveredSessionState, journal: str) -> Iterator[str]:
    if count := recovered.unreadable.damaged_lines:
        yield (
            f"The journal {journal} is damaged: {count} of its lines cannot be read. Shoal uses the other "
            "events. The events in the damaged lines are lost and may be missing from the view, the cost and "
            "the list of running agents."
        )
    if recovered.unreadable.event_types:
        types = to_one_line(", ".join(recovered.unreadable.event_types))[:PREVIEW_LENGTH]
        yield (
            f"Cannot read some events in the journal {journal} ({types}). The session continues without them."
        )


async def _recover_session(session: Session, recovered: RecoveredSessionState) -> None:
    """Journal the missing events first, then deliver the pending items."""
    workspace, workspace_allocator = session.runtime.lead.workspace, session.runtime.agents.workspaces
    for completion in recovered.cut_off_results:
        session.emit_event(AgentEnded(agent=completion.agent, completion=completion))
    for completion, worktree in recovered.unsettled_worktrees:
        work = await workspace_allocator.finish_orphaned_worktree(workspace.root, worktree)
        if work is not None:
            recovered.attach_retained_work(work, completion)
            session.emit_event(WorktreeWorkRetained(agent=completion.agent, work=work))
    await workspace_allocator.finish_leftover_worktrees(
        workspace.root, session.id, recovered.resumable_worktrees
    )
    for shell_ended in recovered.shells.ended:
        session.emit_event(shell_ended)
    session.supervisor.restore_earlier_agents(recovered.pending, recovered.completions)
    session.runtime.inbox.scheduler.restore_schedules(recovered.schedules)
    await restore_cluster_work(session.runtime)
    if (teams := session.led_teams) is not None:
        await _remove_unprepared_members(session, recovered.members.former)
        await teams.resume_team(
            session.id, recovered.delivered, recovered.members.active, recovered.members.idle
        )
    _watch_late_answers(session, recovered.cut_off_questions)
    session.workflows.scripts.notify_interrupted(recovered.interrupted_scripts)


async def _remove_unprepared_members(session: Session, former_members: frozenset[AgentId]) -> None:
    """Remove members that were added to a roster by a process that died before it had described them.

    Under their id, the store has only the description and the conversation of a former member of that name.
    """
    store, rosters = session.config.history.store, session.runtime.team_store.rosters
    for name in await rosters.list_teams() if former_members else ():
        team = await rosters.read_team_roster(name)
        if team is None or team.lead_session_id != session.id:
            continue
        for entry in team.members:
            agent = AgentId(entry.agent_id)
            if agent in former_members and not has_unstarted_description(store, agent):
                await rosters.remove_member(team.name, entry.name)
                session.runtime.events.note(
                    f"The start of the teammate {entry.name} was interrupted, so it is not in the team. "
                    "Start it again."
                )


def _watch_late_answers(session: Session, questions: tuple[PermissionQuestion, ...]) -> None:
    late_answers = session.runtime.question_broker.late_answers

    def on_late_answer(question: PermissionQuestion, answer: AllowAnswer) -> None:
        """Queue a late answer for the lead, which decides whether its agents continue."""
        asker = "" if question.agent == LEAD_ID else str(question.agent)
        text = format_late_permission_notice(question, answer, requester=asker)
        session.queue_message(
            user_message(text),
            by="runtime",
            mode="orphaned-permission",
            identity=format_late_answer_item_id(question.id),
        )
        call = ToolUseBlock(id=question.tool_use_id, name=question.tool, input=question.input)
        session.runtime.lead.permissions.remember_permission_answer(
            call, AllowAnswer(updates=resolve_answer_permission_updates(question, answer))
        )

    late_answers.watch_interrupted_questions(questions, on_late_answer)
    for question in questions:
        if (answer := late_answers.find_unreported_answer(question)) is not None:
            session.emit_event(QuestionAnswered(agent=question.agent, question=question.id, answer=answer))
