"""Shutdown of team members: on request, on their own or by force, and the notices about it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from shoal.core.agents.subagents import RetainedWorktreeWork
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import AgentRequestRefused, ShoalError, TeamNotFound
from shoal.core.events import AgentEnded, WorktreeWorkRetained
from shoal.core.names import LEAD_NAME, AgentName
from shoal.core.teams.mail_bodies import ShutdownRejectedMail, ShutdownRequestMail
from shoal.core.teams.team_storage import TaskBoard
from shoal.runs.run_outcome import AgentRunOutcome
from shoal.team.mail.lead_inbox import LeadInbox
from shoal.team.mail.mail_sender import TeamMailPoster
from shoal.team.members.member_results import (
    build_member_end_notice,
    build_member_result,
    build_shutdown_approval,
    format_member_termination,
    infer_backend_from_pane,
)
from shoal.team.members.member_table import MemberHandle, MemberTable
from shoal.team.roster_activity import RosterActivityWriter
from shoal.team.team_prompts import format_team_notice
from shoal.team.team_services import TeamServices

KILL_TIMEOUT = 5.0
"""Seconds within which a member that is being ended must be gone."""


class MemberShutdown:
    """Ends the members of one team; `tasks` outlives it."""

    def __init__(
        self,
        services: TeamServices,
        members: MemberTable,
        board: TaskBoard,
        mail_sender: TeamMailPoster,
        *,
        lead_inbox: LeadInbox,
        activity_writer: RosterActivityWriter,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._services = services
        self._members = members
        self._board = board
        self._mail_sender = mail_sender
        self._lead_inbox = lead_inbox
        self._activity_writer = activity_writer
        self._tasks = tasks

    def start_grace(self, name: AgentName, request: ShutdownRequestMail) -> None:
        """Start the grace of a member that was asked to shut down."""
        handle = self._members.handles.get(name)
        if handle is None:  # it ended while the request was on its way
            return
        handle.clear_shutdown_request_and_grace()
        handle.set_shutdown_request(request)
        handle.grace_task = self._tasks.create_task(self._end_member_after_grace(handle))

    def start_remote_grace(self, name: AgentName, request: ShutdownRequestMail) -> None:
        """Start the grace of a member that takes its mail in its own process."""
        handle = self._members.handles.get(name)
        if handle is not None and handle.member.reads_own_mail:
            self.start_grace(name, request)

    async def answer_shutdown(
        self, handle: MemberHandle, request: str, reason: str, *, approve: bool
    ) -> None:
        shutdown_request = handle.member.shutdown_request
        if shutdown_request is None or request not in ("", shutdown_request.request_id):
            raise AgentRequestRefused(format_team_notice("unknown_shutdown"))
        if not approve and handle.has_rejected:
            raise AgentRequestRefused(format_team_notice("second_shutdown"))
        handle.clear_shutdown_request_and_grace()
        if approve:
            handle.approved_request = shutdown_request
            self._tasks.create_task(self.end_member(handle, format_end_reason("shut_down")))
            # This is the member's own tool call and ends with it: its model must not be called after this.
            await handle.gone.wait()
            return
        handle.has_rejected = True
        await self._mail_sender.post_mail_body(
            handle.member.name,
            LEAD_NAME,
            ShutdownRejectedMail(
                request_id=shutdown_request.request_id,
                sender=handle.member.name,
                reason=reason,
                timestamp=self._mail_sender.current_timestamp,
            ),
        )

    async def end_member(
        self, handle: MemberHandle, why: str, *, quietly: bool = False, resumable: bool = False
    ) -> None:
        """End a member whatever it is doing; it is gone when this returns."""
        # A task that is canceled before its first step never runs, and would never report its end.
        await asyncio.sleep(0)
        if handle.run_task is not None and handle.mark_ending(why, quietly=quietly, resumable=resumable):
            # Only once: a second cancel would interrupt its end report.
            handle.run_task.cancel()
        try:
            async with self._services.runtime.clock.deadline(KILL_TIMEOUT):
                await handle.gone.wait()
        except TimeoutError:
            self._services.note(
                f"{handle.member.name} did not end within {KILL_TIMEOUT:g} s; it was removed from the team."
            )
            if handle.run_task is not None:
                handle.run_task.cancel()
            await self.remove_member(handle, AgentRunOutcome(status="killed", text="", detail=why))

    async def wait_until_end_announced(self, handle: MemberHandle) -> None:
        """Wait until the end of a member that is already ending is announced."""
        with suppress(TimeoutError):
            async with self._services.runtime.clock.deadline(KILL_TIMEOUT):
                await handle.gone.wait()

    async def _end_member_after_grace(self, handle: MemberHandle) -> None:
        await self._services.runtime.clock.sleep(self._services.policy.grace)
        await self.end_member(
            handle, format_end_reason("no_shutdown_answer", seconds=f"{self._services.policy.grace:g}")
        )

    async def remove_member(self, handle: MemberHandle, outcome: AgentRunOutcome) -> None:
        """Remove a member that ended, release what it used and announce its end."""
        member = handle.member
        if self._members.handles.pop(member.name, None) is None:
            return
        self._members.leaving.add(handle)
        member.state = "shutdown"
        self._activity_writer.forget_member(member.name)
        if handle.mail_task is not None:
            handle.mail_task.cancel()
        work: RetainedWorktreeWork | None = None
        try:
            with self._report_cleanup_errors(member.name):
                await self._services.stop_agents_of(member.id, format_end_reason("member_ended"))
            await self._remove_member_from_store(handle)
            with self._report_cleanup_errors(member.name):
                work = await member.clean_up()
        finally:
            self._services.runtime.budget.close_agent_slot(handle.slot)
            self._services.runtime.inbox.queue.discard_agent_items(member.id)
            self._announce_member_end(handle, outcome, work)
            self._members.leaving.discard(handle)
            handle.gone.set()
            self._members.notify_changed()
            if handle.grace_task is not None and handle.grace_task is not asyncio.current_task():
                handle.clear_shutdown_request_and_grace()

    async def _remove_member_from_store(self, handle: MemberHandle) -> None:
        name, rosters = handle.member.name, self._services.runtime.team_store.rosters
        if handle.member.resumable:
            self._activity_writer.set_member_active(name, active=False)
            return
        was_removed = False
        with self._report_cleanup_errors(name), suppress(TeamNotFound):
            await self._board.release_owner_tasks(name)
        with self._report_cleanup_errors(name), suppress(TeamNotFound):
            await rosters.remove_member(self._members.team, name)
            was_removed = True
            # Another program may add a member of this name.
            self._members.own_names.discard(name)
        if was_removed and handle.approved_request is not None and not handle.member.is_foreign:
            # Posted after it is gone, so that a reader of the approval finds it gone.
            pane = handle.member.pane
            body = build_shutdown_approval(
                handle.approved_request,
                name,
                pane,
                infer_backend_from_pane(pane),
                self._mail_sender.current_timestamp,
            )
            with self._report_cleanup_errors(name):
                await self._mail_sender.post_mail_body(name, LEAD_NAME, body)

    @contextmanager
    def _report_cleanup_errors(self, name: AgentName) -> Iterator[None]:
        """Report errors of one cleanup step, so that the other steps still run."""
        try:
            yield
        except ShoalError as error:
            self._services.note(f"{name} could not be cleaned up completely: {error}")

    def _announce_member_end(
        self, handle: MemberHandle, outcome: AgentRunOutcome, work: RetainedWorktreeWork | None
    ) -> None:
        """Notify the lead through its queue, not by mail; one event, so that a crash cannot split it."""
        member, result = handle.member, build_member_result(self._services, handle, outcome)
        notice = "" if handle.silent else format_member_termination(handle, outcome, work)
        self._services.emit_or_note(AgentEnded(agent=member.id, completion=result, notice=notice))
        if work is not None:
            self._services.emit_or_note(WorktreeWorkRetained(agent=member.id, work=work))
        if notice:
            self._lead_inbox.release_held_idle_notices()
            self._services.runtime.inbox.queue.put(
                build_member_end_notice(self._services.lead_id, result.id, notice)
            )
