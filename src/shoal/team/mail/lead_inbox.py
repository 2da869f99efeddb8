"""Inbox of the lead: mail that wakes it, mail that is held, and requests that the runtime answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import UnsetType
from msgspec.structs import replace

from shoal.core.conversation.inbox_items import InboxItem, can_join_item_id, join_item_ids
from shoal.core.conversation.messages import TextBlock
from shoal.core.errors import LockUnavailable, ShoalError, StateFileError
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.names import LEAD_NAME, AgentName
from shoal.core.permissions.permission_changes import format_session_permission_rules
from shoal.core.permissions.permission_decisions import PermissionMode
from shoal.core.permissions.questions import (
    Answer,
    DenyAnswer,
    PermissionQuestion,
    PlanApprovalQuestion,
    PlanApprovedAnswer,
)
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.mail_bodies import (
    IdleNotificationMail,
    PermissionRequestMail,
    PermissionResponseMail,
    PlanApprovalRequestMail,
    PlanApprovalResponseMail,
    ShutdownApprovedMail,
    ShutdownRejectedMail,
    ShutdownRequestMail,
)
from shoal.runs.stored_report import excerpt_and_store_long_report
from shoal.team.channel.mail_question_broker import (
    build_permission_response,
    permission_suggestions_from_updates,
)
from shoal.team.mail.mail_authentication import InboundMail
from shoal.team.mail.mail_pump import MailPump
from shoal.team.mail.mail_sender import TeamMailPoster
from shoal.team.mail.rendered_mail import render_idle_notice, render_mail, render_mail_text
from shoal.team.members.member_table import MemberTable
from shoal.team.team_prompts import format_team_notice
from shoal.team.team_services import TeamServices
from shoal.tools.plan_tools import compute_plan_digest

_MAX_SEPARATE_NOTICES = 100
"""Maximum number of held idle notices that are separate items of the lead's conversation."""
_MAX_NOTICE_TOKENS = 20_000
_PAUSE = 1.0
"""Seconds before a failed write of an answer is retried."""


class LeadInbox:
    """Holds idle notices until other mail wakes the lead or the team is quiet."""

    def __init__(
        self,
        services: TeamServices,
        mail_sender: TeamMailPoster,
        mail_pump: MailPump,
        members: MemberTable,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._services = services
        self._mail_sender = mail_sender
        self._mail_pump = mail_pump
        self._members = members
        self._tasks = tasks
        self._held_items: list[InboxItem] = []
        self._reported: set[AgentName] = set()
        """Members that wrote to the lead since they were last idle."""
        self._open_requests: dict[str, asyncio.Task[None]] = {}
        """Tasks by request id."""
        self._askers: dict[str, AgentName] = {}
        """Senders by request id."""

    @property
    def has_held_idle_notices(self) -> bool:
        return bool(self._held_items)

    async def deliver_mail(self, received: InboundMail) -> bool:
        """Handle received mail; return True if it is settled."""
        mail, body = received.mail, received.body
        match body:
            case IdleNotificationMail():
                self._handle_idle_notice(mail, body)
            case PermissionRequestMail() if self._is_sender_waiting(mail, body):
                self._start_answering_request(mail, body)
            case PlanApprovalRequestMail() if self._is_sender_waiting(mail, body):
                if self._services.policy.plan_approver == "lead":
                    self._queue_item_for_lead(
                        render_mail(mail, body).to_inbox_item(mail.id, self._services.lead_id)
                    )
                else:
                    self._start_answering_request(mail, body)
            case PermissionRequestMail() | PlanApprovalRequestMail():
                self._services.note(
                    f"A request from {mail.sender} was dropped because nobody is waiting for the answer."
                )
                return True
            case PermissionResponseMail() | PlanApprovalResponseMail() | ShutdownRequestMail():
                return True
            case ShutdownApprovedMail() | ShutdownRejectedMail():
                self._members.accept_shutdown_answer(mail.sender, body)
                self._queue_item_for_lead(
                    render_mail(mail, body).to_inbox_item(mail.id, self._services.lead_id)
                )
            case None:
                if received.trusted and not mail.fyi:
                    self._reported.add(mail.sender)
                self._queue_item_for_lead(
                    render_mail_text(mail, trusted=received.trusted).to_inbox_item(
                        mail.id, self._services.lead_id
                    )
                )
            case _:
                self._queue_item_for_lead(
                    render_mail(mail, body).to_inbox_item(mail.id, self._services.lead_id)
                )
        return False

    def _is_sender_waiting(
        self, mail: MailMessage, body: PermissionRequestMail | PlanApprovalRequestMail
    ) -> bool:
        return self._members.is_waiting_for_answer(mail.sender, body.request_id, mail.id)

    def release_held_idle_notices(self) -> bool:
        """Queue the held items for the lead; return True if there were any."""
        held, self._held_items = self._held_items, []
        joinable = [item for item in held if can_join_item_id(item.id)]
        if len(joinable) > _MAX_SEPARATE_NOTICES:
            held = [item for item in held if not can_join_item_id(item.id)] + [self._join_notices(joinable)]
        for item in held:
            self._services.runtime.inbox.queue.put(item)
        return bool(held)

    def _join_notices(self, items: Sequence[InboxItem]) -> InboxItem:
        """Return one item for the notices of a large team, of which the lead's model gets a bounded part."""
        report = excerpt_and_store_long_report(
            "\n\n".join(
                block.text for item in items for block in item.content if isinstance(block, TextBlock)
            ),
            self._services.lead_id,
            self._services.ids.new_short_id(),
            self._services.lead().environment.results,
            tokens=_MAX_NOTICE_TOKENS,
        )
        text = format_team_notice("many_idle", count=len(items)) + "\n\n" + report.excerpt
        if report.path is not None:
            text += "\n" + format_team_notice("whole_text", path=report.path)
        return replace(
            items[-1], id=join_item_ids(item.id for item in items), content=(TextBlock(text=text),)
        )

    def cancel_withdrawn_request(self, request: str) -> None:
        """Cancel a request whose sender no longer waits."""
        task = self._open_requests.get(request)
        if task is not None:
            task.cancel()

    def cancel_requests_of_member(self, name: AgentName) -> None:
        """Cancel all requests of a member whose process is gone."""
        for request, sender in tuple(self._askers.items()):
            if sender == name:
                self.cancel_withdrawn_request(request)

    def cancel_open_requests(self) -> None:
        """Cancel all open requests; they stay unread."""
        for request in tuple(self._open_requests):
            self._open_requests.pop(request).cancel()

    def _handle_idle_notice(self, mail: MailMessage, body: IdleNotificationMail) -> None:
        item = render_idle_notice(mail, body, has_reported=mail.sender in self._reported).to_inbox_item(
            mail.id, self._services.lead_id
        )
        self._reported.discard(mail.sender)
        self._members.on_foreign_mail(mail.sender, is_idle=True)
        if body.idle_reason == "failed":
            self._queue_item_for_lead(item)
        else:
            self._held_items.append(item)
            self._members.notify_changed()

    def _queue_item_for_lead(self, item: InboxItem) -> None:
        if item.wakes:
            self.release_held_idle_notices()
        self._services.runtime.inbox.queue.put(item)
        self._members.notify_changed()

    def _start_answering_request(
        self, mail: MailMessage, body: PermissionRequestMail | PlanApprovalRequestMail
    ) -> None:
        self._askers[body.request_id] = mail.sender
        self._open_requests[body.request_id] = self._tasks.create_task(
            self._answer_member_request(mail, body)
        )

    async def _answer_member_request(
        self, mail: MailMessage, body: PermissionRequestMail | PlanApprovalRequestMail
    ) -> None:
        try:
            if isinstance(body, PermissionRequestMail):
                answer: (
                    PermissionResponseMail | PlanApprovalResponseMail
                ) = await self._ask_person_for_permission(body)
            else:
                answer = await self._resolve_plan_approval(body)
            await self._mail_answer_with_retry(mail.sender, answer)
        except ShoalError as error:
            self._services.note(f"A request from {mail.sender} could not be answered: {error}")
        except asyncio.CancelledError:
            # Withdrawn: the sender no longer waits, and this task ends.
            if body.request_id in self._open_requests:
                self._mail_pump.note_mail_settled(mail.id, LEAD_NAME)
            raise
        finally:
            self._open_requests.pop(body.request_id, None)
            self._askers.pop(body.request_id, None)
        self._mail_pump.note_mail_settled(mail.id, LEAD_NAME)

    async def _mail_answer_with_retry(
        self, to: AgentName, answer: PermissionResponseMail | PlanApprovalResponseMail
    ) -> None:
        """Retry until the answer is written: a person gave it, and the sender waits for it."""
        is_noted = False
        while True:
            try:
                await self._mail_sender.post_mail_body(LEAD_NAME, to, answer)
            except (LockUnavailable, StateFileError) as error:
                if not is_noted:
                    is_noted = True
                    self._services.note(f"The answer to {to} is delayed: {error}")
                await self._services.runtime.clock.sleep(_PAUSE)
            else:
                return

    async def _ask_person_for_permission(self, body: PermissionRequestMail) -> PermissionResponseMail:
        suggestions = permission_suggestions_from_updates(body.permission_suggestions)
        question = PermissionQuestion(
            id=self._services.ids.new_short_id(),
            agent=self._find_asking_agent(body),
            tool_use_id=body.tool_use_id,
            tool=body.tool_name,
            input=body.input,
            reason=body.description,
            rule=format_session_permission_rules(suggestions),
            suggestions=suggestions,
        )
        answer = build_permission_response(body, await self._services.ask_person_or_deny(question))
        if answer.response is not None and self._members.is_own_member(body.agent_id):
            # Before the member gets the answer, so that members it then writes to need not ask again.
            for update in permission_suggestions_from_updates(answer.response.permission_updates):
                if update.destination == "session":
                    self._services.permissions.apply_session_permission(update)
        return answer

    def _find_asking_agent(self, body: PermissionRequestMail) -> AgentId:
        """Return the sub-agent that a member of this team names as the asker, or else the member."""
        member = self._members.get_agent_id(body.agent_id)
        asker = body.subagent_id
        if isinstance(asker, UnsetType) or not self._members.is_own_member(body.agent_id):
            return member
        # The lead and members ask for themselves.
        return member if asker == LEAD_ID or "@" in asker else asker

    async def _resolve_plan_approval(self, body: PlanApprovalRequestMail) -> PlanApprovalResponseMail:
        digest = compute_plan_digest(body.plan_content)
        answer: Answer = PlanApprovedAnswer(digest=digest, by="policy")
        if self._services.policy.plan_approver != "auto":
            question = PlanApprovalQuestion(
                id=self._services.ids.new_short_id(),
                agent=self._members.get_agent_id(body.sender),
                plan=body.plan_content,
                path=body.plan_file_path,
                digest=digest,
            )
            answer = await self._services.ask_person_or_deny(question)
        match answer:
            case PlanApprovedAnswer(digest=approved, mode=mode) if approved == digest:
                return self._build_plan_response(body, approved=True, mode=mode)
            case DenyAnswer(reason=reason):
                return self._build_plan_response(body, approved=False, feedback=reason)
            case _:
                return self._build_plan_response(
                    body, approved=False, feedback=format_team_notice("other_plan")
                )

    def _build_plan_response(
        self,
        body: PlanApprovalRequestMail,
        *,
        approved: bool,
        mode: PermissionMode | None = None,
        feedback: str | None = None,
    ) -> PlanApprovalResponseMail:
        return PlanApprovalResponseMail(
            request_id=body.request_id,
            approved=approved,
            timestamp=self._mail_sender.current_timestamp,
            permission_mode=(mode or self._services.lead_mode) if approved else None,
            feedback=feedback,
        )
