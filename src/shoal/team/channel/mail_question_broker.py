"""Question broker of a teammate: sends questions to the lead by mail and receives the answers by mail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.names import LEAD_NAME, AgentName, TeamName
from shoal.core.permissions.permission_changes import PermissionSuggestion
from shoal.core.permissions.questions import (
    AllowAnswer,
    Answer,
    DenyAnswer,
    PermissionQuestion,
    PlanApprovalQuestion,
    PlanApprovedAnswer,
    Question,
)
from shoal.core.ports import QuestionBroker
from shoal.core.teams.mail_bodies import (
    MailedPermissionGrant,
    PermissionRequestMail,
    PermissionResponseMail,
    PermissionUpdate,
    PlanApprovalRequestMail,
    PlanApprovalResponseMail,
    create_permission_request_id,
    format_plan_request_id,
)
from shoal.core.teams.roster import format_agent_id
from shoal.team.mail.mail_sender import TeamMailPoster
from shoal.team.team_prompts import format_team_notice


class _MailedQuestion(Struct, eq=False):
    question: Question
    answer: asyncio.Future[Answer]


class MailQuestionBroker:
    """Asks the lead by mail.

    `person` gets questions for which the mail protocol has no body. `on_withdrawn` is called for requests
    that nobody waits for.
    """

    def __init__(
        self,
        name: AgentName,
        team: TeamName,
        mail_sender: TeamMailPoster,
        person: QuestionBroker,
        on_withdrawn: Callable[[str], None],
    ) -> None:
        self._name = name
        self._team = team
        self._mail_sender = mail_sender
        self._person = person
        self._on_withdrawn = on_withdrawn
        self._pending: dict[str, _MailedQuestion] = {}
        self._open_count = 0
        self._late_requests: set[str] = set()
        self._granted_calls: list[tuple[str, dict[str, Any]]] = []
        self._listeners: list[Callable[[], None]] = []

    @property
    def has_unanswered_questions(self) -> bool:
        """True if any question is unanswered."""
        return self._open_count > 0

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call the listener whenever a question was asked or answered."""
        self._listeners.append(listener)

    async def ask_person_or_deny(self, question: Question) -> Answer:
        self._change_open_count(1)
        try:
            return await self._ask_lead(question)
        finally:
            self._change_open_count(-1)

    def _change_open_count(self, change: int) -> None:
        self._open_count += change
        for listener in self._listeners:
            listener()

    async def _ask_lead(self, question: Question) -> Answer:
        match question:
            case PermissionQuestion(tool=tool, input=call_input) if (tool, call_input) in self._granted_calls:
                self._granted_calls.remove((tool, call_input))
                return AllowAnswer()
            case PermissionQuestion():
                request: PermissionRequestMail | PlanApprovalRequestMail = self._build_permission_request(
                    question
                )
            case PlanApprovalQuestion():
                request = self._build_plan_request(question)
            case _:
                return await self._person.ask_person_or_deny(question)
        mailed_question = _MailedQuestion(question, asyncio.get_running_loop().create_future())
        self._pending[request.request_id] = mailed_question
        try:
            await self._mail_sender.post_mail_body(self._name, LEAD_NAME, request)
            return await mailed_question.answer
        finally:
            del self._pending[request.request_id]
            # Also after an answer: it may have bypassed the lead, which still asks.
            self._on_withdrawn(request.request_id)

    def is_waiting_for_answer(self, request: str) -> bool:
        return request in self._pending

    def accept_answer(self, body: PermissionResponseMail | PlanApprovalResponseMail) -> bool:
        """Resolve a waiting question; False if none waits. The first answer counts."""
        mailed_question = self._pending.get(body.request_id)
        if mailed_question is None or mailed_question.answer.done():
            return False
        match mailed_question.question, body:
            case PermissionQuestion(), PermissionResponseMail():
                mailed_question.answer.set_result(_answer_from_permission_response(body))
            case PlanApprovalQuestion(digest=digest), PlanApprovalResponseMail():
                mailed_question.answer.set_result(_answer_from_plan_response(body, digest))
            case _:
                return False
        return True

    def accept_late_permission(self, body: PermissionResponseMail, call: ToolUseBlock) -> AllowAnswer | None:
        """Accept a late permission for a call that was cut off in an earlier process; it counts once."""
        answer = _answer_from_permission_response(body)
        if not isinstance(answer, AllowAnswer) or body.request_id in self._late_requests:
            return None
        self._late_requests.add(body.request_id)
        self._granted_calls.append((call.name, call.input if answer.input is None else answer.input))
        return answer

    def _build_permission_request(self, question: PermissionQuestion) -> PermissionRequestMail:
        own_id = format_agent_id(self._name, self._team)
        return PermissionRequestMail(
            request_id=create_permission_request_id(
                self._mail_sender.current_milliseconds, self._mail_sender.id_generator.random
            ),
            agent_id=self._name,
            tool_name=question.tool,
            tool_use_id=question.tool_use_id,
            description=question.reason,
            input=question.input,
            permission_suggestions=permission_updates_from_suggestions(question.suggestions),
            subagent_id=UNSET if question.agent == own_id else question.agent,
        )

    def _build_plan_request(self, question: PlanApprovalQuestion) -> PlanApprovalRequestMail:
        return PlanApprovalRequestMail(
            sender=self._name,
            timestamp=self._mail_sender.current_timestamp,
            plan_file_path=question.path,
            plan_content=question.plan,
            request_id=format_plan_request_id(self._mail_sender.current_milliseconds, self._name, self._team),
        )


def build_permission_response(request: PermissionRequestMail, answer: Answer) -> PermissionResponseMail:
    """Build the response to a member from a person's answer."""
    match answer:
        case AllowAnswer(input=changed_input, updates=updates, destination=destination):
            if not updates and destination is not None:
                suggestions = permission_suggestions_from_updates(request.permission_suggestions)
                updates = tuple(each for each in suggestions if each.destination == destination)[:1]
            return PermissionResponseMail(
                request_id=request.request_id,
                subtype="success",
                response=MailedPermissionGrant(
                    updated_input=UNSET if changed_input is None else changed_input,
                    permission_updates=permission_updates_from_suggestions(updates),
                ),
            )
        case DenyAnswer(reason=reason):
            return PermissionResponseMail(request_id=request.request_id, subtype="error", error=reason)
        case _:
            return PermissionResponseMail(
                request_id=request.request_id,
                subtype="error",
                error=format_team_notice("no_permission_decision"),
            )


def permission_updates_from_suggestions(
    suggestions: tuple[PermissionSuggestion, ...],
) -> tuple[PermissionUpdate, ...]:
    return tuple(msgspec.convert(msgspec.to_builtins(each), PermissionUpdate) for each in suggestions)


def permission_suggestions_from_updates(
    updates: tuple[PermissionUpdate, ...],
) -> tuple[PermissionSuggestion, ...]:
    """Convert updates with a known destination; skipping one grants less, never more."""
    suggestions: list[PermissionSuggestion] = []
    for update in updates:
        try:
            suggestions.append(msgspec.convert(msgspec.to_builtins(update), PermissionSuggestion))
        except msgspec.ValidationError:
            continue
    return tuple(suggestions)


def _answer_from_permission_response(body: PermissionResponseMail) -> Answer:
    if body.response is None:
        return DenyAnswer(reason=body.error or format_team_notice("question_refused"))
    changed_input = body.response.updated_input
    return AllowAnswer(
        input=None if changed_input is UNSET else changed_input,
        updates=permission_suggestions_from_updates(body.response.permission_updates),
    )


def _answer_from_plan_response(body: PlanApprovalResponseMail, digest: str) -> Answer:
    if body.approved:
        return PlanApprovedAnswer(digest=digest, mode=body.permission_mode)
    return DenyAnswer(reason=body.feedback or format_team_notice("plan_rejected"))
