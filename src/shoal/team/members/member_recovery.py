"""Restarts members that failed unexpectedly. Until a restart succeeds they are down and stay in the team."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from shoal.core.core_texts import format_end_reason
from shoal.core.errors import AgentTranscriptMissing, ShoalError
from shoal.core.events import MemberWentDown
from shoal.core.names import LEAD_NAME, AgentName
from shoal.core.teams.team_storage import TaskBoard
from shoal.runs.run_outcome import AgentRunOutcome
from shoal.team.mail.mail_sender import TeamMailPoster
from shoal.team.members.down_member import DownMember
from shoal.team.members.member_admission import AdmittedMember, MemberAdmission
from shoal.team.members.member_protocol import Member
from shoal.team.members.member_results import build_member_end_notice
from shoal.team.members.member_table import MemberHandle, MemberTable
from shoal.team.roster_activity import RosterActivityWriter
from shoal.team.team_prompts import format_team_notice
from shoal.team.team_services import TeamServices

RETRY_DELAYS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Seconds before each consecutive attempt; the last delay repeats."""
STABLE_AFTER = 60.0
"""Seconds after which a restarted member counts as stable: its next failure starts a new series of
attempts."""
_MAX_KNOWN_MAIL = 100_000


class MemberRecovery:
    """Restarts the failed members of one team. `start_mail` starts the mail pump of a local member."""

    def __init__(
        self,
        services: TeamServices,
        members: MemberTable,
        board: TaskBoard,
        mail_sender: TeamMailPoster,
        *,
        admission: MemberAdmission,
        activity_writer: RosterActivityWriter,
        start_mail: Callable[[MemberHandle, AdmittedMember], None],
    ) -> None:
        self._services = services
        self._members = members
        self._board = board
        self._mail_sender = mail_sender
        self._admission = admission
        self._activity_writer = activity_writer
        self._start_mail = start_mail

    async def restart_failed_member(self, handle: MemberHandle, outcome: AgentRunOutcome) -> bool:
        """Restart a member after a failure that may pass; return False if it must leave the team.

        A member whose process keeps dying is given up after `max_restarts` restarts in a row. A member that
        cannot be started, or that cannot store its state, is never given up.
        """
        failed_member = handle.member
        has_died = bool(failed_member.death_cause)
        if not (has_died or outcome.is_passing) or failed_member.is_foreign or failed_member.stop_reason:
            return False
        if handle.approved_request is not None:
            return False
        max_restarts = self._services.policy.max_restarts
        if self._is_stable(handle):
            handle.restarts = handle.failed_starts = 0
        if has_died and handle.restarts >= max_restarts:
            return False
        handle.restarts += has_died
        handle.failed_starts += not has_died
        down_member = await self._mark_down(handle, outcome)
        while True:
            has_failed_often = handle.failed_starts >= max(max_restarts, 1)
            has_failed_often = has_failed_often or not down_member.is_start_repeatable
            if has_failed_often and down_member.is_restart_expected:
                await self._stop_waiting_for_restart(handle, down_member)
            await self._wait_for_next_attempt(handle, handle.restarts + handle.failed_starts - has_died)
            try:
                is_restarted = await self._start_member_again(handle, down_member)
            except AgentTranscriptMissing:
                return False
            except (ShoalError, OSError) as error:
                handle.failed_starts += 1
                down_member.cause = str(error)
                self._services.note(f"{down_member.name} could not be restarted: {error}")
                continue
            if is_restarted:
                self._services.note(
                    f"The process of {down_member.name} died ({outcome.detail}). {down_member.name} "
                    "continues in a new process."
                    if has_died
                    else f"{down_member.name} failed ({outcome.detail}) and was restarted."
                )
            return is_restarted

    def request_restart(self, name: AgentName) -> bool:
        """Make the next attempt to restart a down member now; return False if it is not down."""
        handle = self._members.handles.get(name)
        if handle is None or not handle.member.expect_restart():
            return False
        handle.restart_requested.set()
        self._members.notify_changed()
        return True

    def _is_stable(self, handle: MemberHandle) -> bool:
        lifetime = self._services.runtime.clock.monotonic() - handle.restarted_at
        return handle.member.has_finished_work or lifetime >= STABLE_AFTER

    async def _mark_down(self, handle: MemberHandle, outcome: AgentRunOutcome) -> DownMember:
        """Replace the member with a placeholder, and show in the roster and in the journal that it is
        down."""
        failed_member = handle.member
        down_member = handle.member = failed_member.create_placeholder(handle.entry, outcome.detail)
        if failed_member.agent is not None:
            await self._release_local_member(handle, failed_member)
        # Its claimed tasks stay its own while the team waits for the restart.
        with suppress(ShoalError):
            await self._board.reclaim_owner_tasks(failed_member.name)
        self._activity_writer.set_member_active(failed_member.name, active=False)
        try:
            await self._services.runtime.team_store.rosters.update_member(
                self._members.team, failed_member.name, is_active=False, is_down=True
            )
        except ShoalError as error:
            self._services.note(f"Could not record in the roster that {failed_member.name} is down: {error}")
        await self._remember_unread_mail(handle)
        self._services.emit_or_note(MemberWentDown(agent=failed_member.id, cause=outcome.detail))
        self._members.notify_changed()
        return down_member

    async def _release_local_member(self, handle: MemberHandle, member: Member) -> None:
        """Release what a member in this process uses. Its unread mail is delivered again."""
        if handle.mail_task is not None:
            handle.mail_task.cancel()
            handle.mail_task = None
        self._services.runtime.inbox.queue.discard_agent_items(member.id)
        self._services.runtime.budget.deactivate_agent_slot(handle.slot)
        try:
            if self._services.led_teams is not None:
                # Its team is kept: the failure may pass.
                await self._services.led_teams.suspend_team_of(member.id)
            await self._services.agents.stop_child_agents(member.id, format_end_reason("member_down"))
            await member.clean_up()
        except ShoalError as error:
            self._services.note(f"{member.name} could not be cleaned up completely: {error}")

    async def _stop_waiting_for_restart(self, handle: MemberHandle, down_member: DownMember) -> None:
        """Release its tasks and tell the lead once; attempts to restart it continue."""
        down_member.is_restart_expected = False
        with suppress(ShoalError):
            await self._board.release_owner_tasks(down_member.name)
        if not handle.down_reported:
            handle.down_reported = True
            text = format_team_notice("member_down", name=down_member.name, cause=down_member.cause)
            ident = self._services.ids.new_short_id()
            self._services.runtime.inbox.queue.put(
                build_member_end_notice(self._services.lead_id, ident, text)
            )
        self._members.notify_changed()

    async def _wait_for_next_attempt(self, handle: MemberHandle, attempts: int) -> None:
        """Wait for the delay, a request or new mail: a message from anybody starts the next attempt."""
        delay = RETRY_DELAYS[min(attempts, len(RETRY_DELAYS) - 1)]
        if delay:
            async with asyncio.TaskGroup() as tasks:
                mail_watch = tasks.create_task(self._request_restart_on_mail(handle))
                with suppress(TimeoutError):
                    async with self._services.runtime.clock.deadline(delay):
                        await handle.restart_requested.wait()
                mail_watch.cancel()
        handle.restart_requested.clear()
        await self._remember_unread_mail(handle)

    async def _request_restart_on_mail(self, handle: MemberHandle) -> None:
        name, mailboxes = (
            handle.member.name,
            self._services.runtime.team_store.open_mailboxes(self._members.team),
        )
        # If its inbox cannot be read, the member is retried after the delay.
        with suppress(ShoalError, OSError):
            await mailboxes.wait_for_mail(name, beyond=handle.known_mail)
            self.request_restart(name)

    async def _remember_unread_mail(self, handle: MemberHandle) -> None:
        """Remember the mail that the next attempt covers, so that it does not cause another attempt."""
        mailboxes = self._services.runtime.team_store.open_mailboxes(self._members.team)
        with suppress(ShoalError, OSError):
            unread = await mailboxes.take_unread(handle.member.name, limit=_MAX_KNOWN_MAIL)
            handle.known_mail = frozenset(mail.id for mail in unread)

    async def _resume_led_team(self, member: Member) -> None:
        """Resume the team that the member leads; if that fails, the team is resumed with the session."""
        if self._services.led_teams is None:
            return
        try:
            await self._services.led_teams.resume_team_of(member.id)
        except ShoalError as error:
            self._services.note(f"The team that {member.name} leads could not be resumed: {error}")

    async def _start_member_again(self, handle: MemberHandle, down_member: DownMember) -> bool:
        """Start the member from its transcript; return False if it is no longer in the roster."""
        claimed_tasks = await self._board.reclaim_owner_tasks(down_member.name)
        team = await self._services.runtime.team_store.rosters.read_team_roster(self._members.team)
        entry = None if team is None else team.find_member(down_member.name)
        if entry is None:
            return False
        backend = await self._services.launcher.choose_backend(entry.agent_type)
        if backend == "in-process":
            lead_mail_ids = await self._mail_sender.list_received_mail_ids(LEAD_NAME)
            admitted = await self._admission.restore_local_member(
                entry, claimed_tasks, lead_mail_ids, handle.slot
            )
            self._start_mail(handle, admitted)
            handle.member = admitted.member
        else:
            handle.member = await self._admission.restore_remote_member(
                entry, backend, handle.slot, down_member.monitor
            )
        await self._resume_led_team(handle.member)
        handle.set_shutdown_request(down_member.shutdown_request)
        handle.restarted_at, handle.down_reported = self._services.runtime.clock.monotonic(), False
        self._services.emit_or_note(handle.member.agent_started_event)
        self._members.notify_changed()
        return True
