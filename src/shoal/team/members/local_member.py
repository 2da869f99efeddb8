"""Teammate in this process: waits for work, works on it, reports that it is idle, and repeats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Coroutine
from typing import Any

from msgspec import Struct

from shoal.agent.hook_points import emit_note, run_agent_hooks
from shoal.agent.loop import LoopResult, run_agent_loop
from shoal.agent.repetition_guard import enforce_claim_limit
from shoal.core.agents.identity import assume_identity
from shoal.core.agents.subagents import ResolvedAgentSettings, RetainedWorktreeWork
from shoal.core.budgets.limits import AgentSlot, BudgetRefusal
from shoal.core.clock import format_iso_time
from shoal.core.compact_event import CompactEvent
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import Message, TextBlock, find_interrupted_tool_call, user_message
from shoal.core.errors import LockUnavailable, ShoalError, StateFileError, TeamStoreError
from shoal.core.events import AgentStarted, MemberWentIdle, MemberWoken
from shoal.core.extensions.hooks import MAX_WAKES_IN_A_ROW
from shoal.core.ids import AgentId
from shoal.core.names import LEAD_NAME, AgentName, TaskId
from shoal.core.permissions.permission_changes import PermissionSuggestion
from shoal.core.permissions.questions import PermissionQuestion
from shoal.core.task_groups import uncancel_current_task
from shoal.core.teams.mail_bodies import (
    IdleNotificationMail,
    IdleReason,
    PermissionResponseMail,
    PlanApprovalResponseMail,
    ShutdownRequestMail,
)
from shoal.core.teams.roster import RosterEntry
from shoal.core.teams.tasks import Task, extract_stable_claim_attempt_part
from shoal.core.teams.team_operations import MemberState, TeammateStatusSnapshot
from shoal.core.teams.team_storage import TaskBoard
from shoal.core.text.control_tags import escape_control_tags
from shoal.runs.prepared_agent import AgentPreparationRequest, PreparedAgent
from shoal.runs.progress_monitor import ProgressMonitor
from shoal.runs.run_outcome import AgentRunOutcome, find_last_assistant_text, outcome_from_loop_result
from shoal.runs.stored_report import excerpt_and_store_long_report
from shoal.team.channel.mail_question_broker import MailQuestionBroker
from shoal.team.mail.mail_authentication import InboundMail
from shoal.team.mail.mail_sender import TeamMailPoster
from shoal.team.mail.rendered_mail import RenderedMail, render_claimed_task, render_mail, render_mail_text
from shoal.team.members.down_member import DownMember
from shoal.team.members.member_protocol import MemberObserver
from shoal.team.members.stall_detector import MemberStallDetector, MemberStalledError
from shoal.team.team_prompts import format_team_notice
from shoal.team.team_services import TeamServices
from shoal.wire.notification_text import format_late_permission_notice

_RETRY_DELAY = 1.0
"""Seconds before a board that could not be read or written is retried."""
_MAX_FAILED_CLAIMS = 3
"""Failed claims in a row after which the member is down: the disk may stay full."""


class MemberPreparation(Struct, frozen=True, kw_only=True):
    """Request to prepare the agent of a member, and the parts that the agent shares with the member."""

    request: AgentPreparationRequest
    question_broker: MailQuestionBroker
    stall_detector: MemberStallDetector


class LocalMember:
    is_foreign = reads_own_mail = False
    death_cause = ""

    def __init__(
        self,
        services: TeamServices,
        prepared: PreparedAgent,
        slot: AgentSlot | None,
        *,
        preparation: MemberPreparation,
        mail_sender: TeamMailPoster,
        board: TaskBoard,
        observer: MemberObserver,
    ) -> None:
        self._services = services
        self._slot = slot
        """None for the member of a process whose lead has no Shoal budget."""
        self._mail_sender = mail_sender
        self._board = board
        self._observer = observer
        self.prepared = prepared
        self.question_broker = preparation.question_broker
        self.agent = prepared.agent
        self.id: AgentId = prepared.agent.identity.agent
        self.name = AgentName(prepared.agent.identity.name)
        self.state: MemberState = "created"
        self.is_claiming = False
        self.claims_tasks = True
        """True if it claims tasks on its own; False after a failure until somebody writes to it."""
        self._last_message_summary = ""
        """Recipient and summary of its last message to anybody but the lead."""
        self.stop_reason = ""
        """Reason why it is being ended; empty if it is not."""
        self.resumable = self.has_finished_work = False
        self.shutdown_request: ShutdownRequestMail | None = None
        """Shutdown request that is not answered yet."""
        self._stall_detector = preparation.stall_detector
        self._run_task: asyncio.Task[Any] | None = None
        self._in_turn = self._is_interrupting = False
        self._idle_start: CompactEvent | None = None
        self._claimed_task: TaskId | None = None
        self._board_error = ""
        """Last error that kept it from claiming tasks."""
        self._failed_claims = 0

    @property
    def agent_started_event(self) -> AgentStarted:
        return self.prepared.started

    @property
    def resolved(self) -> ResolvedAgentSettings:
        return self.prepared.resolved

    @property
    def monitor(self) -> ProgressMonitor | None:
        return self.prepared.monitor

    @property
    def delivered(self) -> Container[str]:
        return self.prepared.delivered

    @property
    def pane(self) -> str:
        return "in-process"

    @property
    def is_busy(self) -> bool:
        """True if work or its end is still pending."""
        if self.state in ("running", "created") or self.is_claiming or self.shutdown_request is not None:
            return True
        return bool(self._services.runtime.inbox.queue.count_waking_items(self.id))

    @property
    def can_claim_task(self) -> bool:
        return self.claims_tasks and self.shutdown_request is None and not self.stop_reason

    async def is_confirmed_idle(self) -> bool:
        # The mail pump knows whether it has undelivered mail.
        return True

    def is_waiting_for_answer(self, request: str, mail: str) -> bool:
        return self.question_broker.is_waiting_for_answer(request)

    async def discard(self) -> None:
        await self.clean_up()

    async def clean_up(self) -> RetainedWorktreeWork | None:
        return await self.prepared.clean_up()

    def to_teammate_status(self) -> TeammateStatusSnapshot:
        identity = self.agent.identity
        return TeammateStatusSnapshot(
            agent=self.id,
            name=self.name,
            kind=identity.kind,
            state=self.state,
            color=identity.color,
            model=self.agent.current_model.card.id,
        )

    async def deliver_mail(self, received: InboundMail) -> bool:
        """Handle received mail; return True if it is settled."""
        mail, body = received.mail, received.body
        match body:
            case PermissionResponseMail() | PlanApprovalResponseMail():
                if self.question_broker.accept_answer(body):
                    return True
                if isinstance(body, PermissionResponseMail) and await self._accept_late_permission(
                    mail.id, body
                ):
                    return False
                self._services.note(
                    f"An answer for {self.name} arrived too late, so {body.request_id} was dropped."
                )
                return True
            case ShutdownRequestMail():
                self.shutdown_request = body
                self._observer.on_shutdown_requested(self.name, body)
            case _:
                self.claims_tasks = self.claims_tasks or not mail.fyi
        rendered = render_mail(mail, body) if received.trusted else render_mail_text(mail, trusted=False)
        self._services.runtime.inbox.queue.put(rendered.to_inbox_item(mail.id, self.id))
        if self.state == "created" and not rendered.wakes:
            self._start_idle()
        self._observer.notify_changed()
        return False

    def _start_idle(self) -> None:
        """Become idle without a working period: its first prompt gives it no work yet."""
        self.state = "idle"
        self._observer.set_roster_activity(self.name, active=False)
        self._services.runtime.events.emit_event(MemberWentIdle(agent=self.id, reason="available"))
        if self._idle_start is not None:
            self._idle_start.set()
            self._idle_start = None  # an event takes almost a kilobyte

    async def _accept_late_permission(self, item_id: str, body: PermissionResponseMail) -> bool:
        """Queue a late permission for a call of an earlier process; return False if it is none."""
        request = await self._mail_sender.find_sent_permission_request(self.name, body.request_id)
        call = (
            None
            if request is None
            else find_interrupted_tool_call(self.agent.conversation.messages, request.tool_use_id)
        )
        answer = None if call is None else self.question_broker.accept_late_permission(body, call)
        if call is None or answer is None:
            return False
        question = PermissionQuestion(
            id=body.request_id,
            agent=self.id,
            tool_use_id=call.id,
            tool=call.name,
            input=call.input,
            reason="",
        )
        text = format_late_permission_notice(question, answer, requester="")
        self._services.runtime.inbox.queue.put(
            InboxItem(
                id=item_id,
                to=self.id,
                content=(TextBlock(text=text),),
                by="runtime",
                mode="orphaned-permission",
            )
        )
        self.agent.permissions.remember_permission_answer(call, answer)
        self._observer.notify_changed()
        return True

    async def run(self) -> AgentRunOutcome:
        """Run until it is ended; expected ends and crashes are returned as values."""
        assume_identity(self.agent.identity, self.agent.environment.workspace)
        self._run_task = asyncio.current_task()
        try:
            while True:
                await self._wait_for_item_or_claim_task()
                await self._acquire_work_slot()
                if not self.agent.state.repetition.stop_reason:
                    await self._run_working_period()
                self._release_work_slot()
                if detail := self.agent.state.repetition.stop_reason:
                    text = self._last_assistant_text
                    return AgentRunOutcome(status="failed", text=text, detail=detail)
        except asyncio.CancelledError:
            if not self.stop_reason:
                raise
            uncancel_current_task()
            self._close_interrupted_tool_calls()
            return AgentRunOutcome(status="killed", text=self._last_assistant_text, detail=self.stop_reason)
        except Exception as error:  # noqa: BLE001 - boundary around teammates: a crash ends only this one
            self._close_interrupted_tool_calls()
            detail = str(error) if isinstance(error, ShoalError) else f"{type(error).__name__}: {error}"
            return AgentRunOutcome(
                status="failed",
                text=self._last_assistant_text,
                detail=detail,
                is_passing=isinstance(error, (StateFileError, TeamStoreError)),
            )

    async def continue_after_restart(
        self,
        claimed_tasks: tuple[TaskId, ...],
        lead_mail_ids: Container[str],
        shutdown_request: ShutdownRequestMail | None = None,
    ) -> None:
        """Restore the idle state, or queue a notice that it was cut off at work in an earlier process.

        `lead_mail_ids` are the ids of all mail that its lead ever received.
        """
        await self._requeue_task_claim_notices(claimed_tasks)
        if self._was_cut_off_at_work:
            rendered = RenderedMail(
                rank=0,
                by="runtime",
                text=format_team_notice("process_restarted", tasks=_describe_kept_tasks(claimed_tasks)),
            )
            self._services.runtime.inbox.queue.put(
                rendered.to_inbox_item(f"again-{self._services.ids.new_short_id()}", self.id)
            )
        elif self.agent.conversation.messages:
            self.state = "idle"
            if self._idle_notice_id not in lead_mail_ids:
                # Its process died between its last text and the idle notice.
                await self._notify_lead_and_go_idle(
                    "available", AgentRunOutcome(status="completed", text=self._last_assistant_text)
                )
        else:
            await self._requeue_read_prompt()
        self.shutdown_request = shutdown_request

    async def _requeue_read_prompt(self) -> None:
        """Queue its first prompt again if it was read and the conversation that contained it is lost."""
        mailboxes = self._services.runtime.team_store.open_mailboxes(self.agent.identity.team or "")
        history = await mailboxes.read_history(self.name)
        if not history or not all(mail.read for mail in history):
            return
        prompt = next((mail.text for mail in history if mail.sender == LEAD_NAME), "")
        rendered = RenderedMail(rank=0, by="runtime", text=format_team_notice("history_lost", prompt=prompt))
        self._services.runtime.inbox.queue.put(
            rendered.to_inbox_item(f"lost-{self._services.ids.new_short_id()}", self.id)
        )

    async def _requeue_task_claim_notices(self, claimed_tasks: tuple[TaskId, ...]) -> None:
        """Queue notices of tasks that it claimed just before its process ended and is not aware of."""
        for task_id in claimed_tasks:
            task = await self._board.get(task_id)
            if task is not None and _build_task_claim_notice_id(task) not in self.prepared.delivered:
                self._queue_task_claim_notice(task)

    @property
    def _was_cut_off_at_work(self) -> bool:
        """True if its process ended during work: the last message is not its own, or is a call."""
        messages = self.agent.conversation.messages
        return bool(messages) and (messages[-1].role == "user" or bool(messages[-1].tool_uses))

    def _queue_task_claim_notice(self, task: Task) -> None:
        self._services.runtime.inbox.queue.put(
            render_claimed_task(task).to_inbox_item(_build_task_claim_notice_id(task), self.id)
        )

    def _queue_release_notice(self, released_tasks: tuple[TaskId, ...]) -> None:
        """Queue a notice that its tasks were released, for when something else wakes it.

        Its conversation says that the tasks are its own. The notice of a restart replaces this one if the
        process ends first.
        """
        if not released_tasks:
            return
        text = format_team_notice("tasks_released", tasks=_list_task_numbers(released_tasks))
        rendered = RenderedMail(rank=0, by="runtime", text=text, wakes=False)
        self._services.runtime.inbox.queue.put(
            rendered.to_inbox_item(f"released-{self._services.ids.new_short_id()}", self.id)
        )

    def on_message_sent(self, summary: str) -> None:
        self._last_message_summary = summary

    def on_foreign_mail(self, *, is_idle: bool) -> None:
        return

    def send_permission_update(self, update: PermissionSuggestion) -> None:
        return  # its permissions are those of this process

    def create_placeholder(self, entry: RosterEntry, cause: str) -> DownMember:
        return DownMember(entry, cause, self)

    def expect_restart(self) -> bool:
        return False

    def interrupt_turn(self) -> bool:
        if not self._in_turn or self._run_task is None:
            return False
        self._is_interrupting = True
        self._run_task.cancel()
        return True

    async def _wait_for_item_or_claim_task(self) -> None:
        """Wait until an item is queued for it or it has claimed a task."""
        queue = self._services.runtime.inbox.queue
        while not queue.count_waking_items(self.id):
            if self.state == "created":
                await _run_both_until_first_ends(
                    self._wait_for_idle_start, lambda: queue.wait_for_waking_item(self.id)
                )
            elif not self.can_claim_task:
                await queue.wait_for_waking_item(self.id)
            elif self._is_task_claimable_now():
                # Most tasks of a large board are claimed without waiting. The others get their turn first.
                await asyncio.sleep(0)
                if not queue.count_waking_items(self.id):
                    await self._claim_next_board_task()
            elif await _run_both_until_first_ends(
                self._wait_for_claimable_task, lambda: queue.wait_for_waking_item(self.id)
            ):
                await self._claim_next_board_task()

    async def _wait_for_idle_start(self) -> None:
        if self.state == "created":
            self._idle_start = CompactEvent()
            await self._idle_start.wait()

    def _is_task_claimable_now(self) -> bool:
        try:
            return self._board.is_task_claimable_now()
        except (LockUnavailable, StateFileError):
            return False  # the wait notes the error and retries

    async def _wait_for_claimable_task(self) -> None:
        while True:
            try:
                return await self._board.wait_for_claimable()
            except (LockUnavailable, StateFileError) as error:
                await self._note_board_error_and_wait(error)

    async def _note_board_error_and_wait(self, error: ShoalError) -> None:
        """Note an error once and pause before the retry; other work continues."""
        if str(error) != self._board_error:
            self._board_error = str(error)
            self._services.note(f"{self.name} cannot claim tasks now and will retry: {error}")
        await self._services.runtime.clock.sleep(_RETRY_DELAY)

    async def _claim_next_board_task(self) -> None:
        # Acquired first: a claimed task must be one that somebody works on.
        await self._acquire_work_slot()
        if self._services.runtime.inbox.queue.count_waking_items(self.id):
            return
        limit = self._services.runtime.budget.find_spent_limit(self.agent.identity.kind)
        if limit is not None and self.can_claim_task:
            await self._report_spent_limit(limit)
            return
        # Set before the next await: a team whose last open task is being claimed is not quiet.
        self.is_claiming = True
        claim = None
        try:
            if self.can_claim_task:
                claim = await self._board.claim_next(by=self.name)
                self._board_error, self._failed_claims = "", 0
            if claim is not None and claim.success and claim.task is not None:
                self._claimed_task = claim.task.id
                self._services.runtime.team_store.attempts[self.id, claim.task.id] = claim.attempt or ""
                self._queue_task_claim_notice(claim.task)
                await enforce_claim_limit(self.agent, claim.task.id)
        except (LockUnavailable, StateFileError) as error:
            self._failed_claims += isinstance(error, StateFileError)
            if self._failed_claims >= _MAX_FAILED_CLAIMS:
                raise
            await self._note_board_error_and_wait(error)
        finally:
            self.is_claiming = False
            if claim is None or not claim.success:
                self._release_work_slot()
            self._observer.notify_changed()

    async def _report_spent_limit(self, limit: BudgetRefusal) -> None:
        """Report as failed instead of claiming a task for which no request can be sent."""
        outcome = AgentRunOutcome(status="failed", text=self._last_assistant_text, detail=limit.sentence)
        ident = f"{self._idle_notice_id}-{limit.limit}"
        # The team is not quiet before the lead knows.
        self.is_claiming = True
        try:
            await self._notify_lead_and_go_idle("failed", outcome, ident=ident)
        finally:
            self.is_claiming = False
            self._release_work_slot()
            self._observer.notify_changed()

    async def _acquire_work_slot(self) -> None:
        """Wait for a slot among the members that may work at once."""
        if self._slot is not None:
            await self._services.runtime.budget.activate_agent_slot(self._slot)

    def _release_work_slot(self) -> None:
        if self._slot is not None:
            self._services.runtime.budget.deactivate_agent_slot(self._slot)

    async def _run_working_period(self) -> None:
        self.state = "running"
        self._services.runtime.events.emit_event(MemberWoken(agent=self.id))
        self._observer.set_roster_activity(self.name, active=True)
        self._last_message_summary = ""
        reason: IdleReason = "available"
        self._in_turn = True
        try:
            outcome = outcome_from_loop_result(
                await self._run_turns_until_done(), self.agent.conversation.messages
            )
        except asyncio.CancelledError:
            if self.stop_reason or not self._is_interrupting:
                raise
            uncancel_current_task()
            self._is_interrupting = False
            self._close_interrupted_tool_calls()
            reason, outcome = (
                "interrupted",
                AgentRunOutcome(status="completed", text=self._last_assistant_text),
            )
        except StateFileError:
            raise
        except (ShoalError, MemberStalledError) as error:
            self._close_interrupted_tool_calls()
            outcome = AgentRunOutcome(status="failed", text=self._last_assistant_text, detail=str(error))
        finally:
            self._in_turn = False
        if outcome.status == "failed":
            reason = "failed"
        await self._notify_lead_and_go_idle(reason, outcome)

    async def _run_turns_until_done(self) -> LoopResult:
        """Run turns until the work is done and no hook sends it back."""
        prompt: Message | None = None
        for _ in range(MAX_WAKES_IN_A_ROW + 1):
            result = await self._run_turn_with_stall_retry(prompt)
            self._services.agents.announce_missed_results(self.id, result.interrupted_results)
            if result.reason == "blocked" and not self.agent.state.halt_reason:
                # The user's prompt was erased: there was nothing to do.
                return LoopResult(reason="done", detail=result.detail)
            if result.reason != "done" or not self.agent.hooks.has_hooks_for("TeammateIdle"):
                return result
            decision = await run_agent_hooks(self.agent, "TeammateIdle")
            if self.agent.state.halt_reason:
                return LoopResult(reason="blocked", text=result.text, detail=self.agent.state.halt_reason)
            if decision.blocked is None:
                return result
            prompt = user_message(format_team_notice("idle_hook", text=escape_control_tags(decision.blocked)))
        note = (
            f"The TeammateIdle hooks sent it back to work {MAX_WAKES_IN_A_ROW} times in a row. It is idle "
            f"now."
        )
        await emit_note(self.agent, note)
        return result

    async def _run_turn_with_stall_retry(self, prompt: Message | None) -> LoopResult:
        """Run a turn, restarted once from its history. Raises `MemberStalledError` at the second stall."""
        try:
            async with self._stall_detector.watch_turn_for_stall(self.agent.tools):
                return await run_agent_loop(self.agent, prompt, by="runtime")
        except MemberStalledError as error:
            self._close_interrupted_tool_calls()
            self._services.note(f"{self.name} stalled, so its turn is being restarted: {error}.")
            restart_notice = RenderedMail(rank=0, by="runtime", text=format_team_notice("turn_restarted"))
            self._services.runtime.inbox.queue.put(
                restart_notice.to_inbox_item(f"stalled-{self._services.ids.new_short_id()}", self.id)
            )
        async with self._stall_detector.watch_turn_for_stall(self.agent.tools):
            return await run_agent_loop(self.agent, None)

    @property
    def _idle_notice_id(self) -> str:
        """Id of its idle notice, derived from the last entry of its transcript."""
        return f"rest-{self.agent.conversation.last_entry or self._services.ids.new_short_id()}"

    async def _notify_lead_and_go_idle(
        self, reason: IdleReason, outcome: AgentRunOutcome, *, ident: str = ""
    ) -> None:
        """Send the lead an idle notice, by default one per working period, then show the idle state."""
        self.claims_tasks = reason == "available"
        if reason == "failed":
            self._queue_release_notice(await self._board.release_owner_tasks(self.name))
        completed_task = await self._pop_completed_claimed_task()
        report = excerpt_and_store_long_report(
            outcome.text,
            self.id,
            self._services.ids.new_short_id(),
            self.agent.environment.results,
            tokens=self._services.policy.report_tokens,
        )
        result = report.excerpt
        if report.path is not None:
            result += "\n" + format_team_notice("whole_text", path=report.path)
        await self._mail_sender.post_mail_body(
            self.name,
            LEAD_NAME,
            IdleNotificationMail(
                sender=self.name,
                timestamp=format_iso_time(self._services.runtime.clock.now()),
                idle_reason=reason,
                summary=self._last_message_summary or None,
                completed_task_id=completed_task,
                completed_status=None if completed_task is None else "completed",
                failure_reason=outcome.detail or reason if reason == "failed" else None,
                result=result or None,
            ),
            ident=ident or self._idle_notice_id,
        )
        self._observer.set_roster_activity(self.name, active=False)
        self._services.runtime.events.emit_event(
            MemberWentIdle(agent=self.id, reason=reason, detail=outcome.detail)
        )
        self.state, self.has_finished_work = "idle", True
        self._observer.notify_changed()

    async def _pop_completed_claimed_task(self) -> TaskId | None:
        """Return the task that it claimed on its own if it is completed."""
        task, self._claimed_task = self._claimed_task, None
        stored_task = None if task is None else await self._board.get(task)
        return task if stored_task is not None and stored_task.status == "completed" else None

    @property
    def _last_assistant_text(self) -> str:
        """Last text that it wrote."""
        return find_last_assistant_text(self.agent.conversation.messages)

    def _close_interrupted_tool_calls(self) -> None:
        """Close open calls so that the conversation can continue; a resume does the same if this fails."""
        try:
            self._services.agents.announce_missed_results(
                self.id, self.agent.conversation.add_interrupted_call_results()
            )
        except StateFileError:
            return


def _describe_kept_tasks(tasks: tuple[TaskId, ...]) -> str:
    if not tasks:
        return format_team_notice("tasks_lost")
    return format_team_notice("tasks_kept", tasks=_list_task_numbers(tasks))


def _list_task_numbers(tasks: tuple[TaskId, ...]) -> str:
    return ", ".join(f"#{task}" for task in tasks)


def _build_task_claim_notice_id(task: Task) -> str:
    """Return the id of the notice about a claimed task, the same in every process."""
    return f"task-{task.id}-{extract_stable_claim_attempt_part(task.claim_attempt)}"


async def _run_both_until_first_ends(
    one: Callable[[], Coroutine[Any, Any, None]], other: Callable[[], Coroutine[Any, Any, None]]
) -> bool:
    """Wait until one of them ends; return True if the first ended, even if both did."""
    async with asyncio.TaskGroup() as task_group:
        tasks = [task_group.create_task(each()) for each in (one, other)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
    return not tasks[0].cancelled()
