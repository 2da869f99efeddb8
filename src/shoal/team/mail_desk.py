"""Question broker of a teammate: sends questions to the lead by mail and receives the answers by mail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from shoal.core.bodies import (
    Granted,
    PermissionRequest,
    PermissionResponse,
    PermissionUpdate,
    PlanApprovalRequest,
    PlanApprovalResponse,
    permission_request_id,
    plan_request_id,
)
from shoal.core.messages import ToolUse
from shoal.core.names import LEAD_NAME, AgentName, TeamName
from shoal.core.permissions import Suggestion
from shoal.core.ports import Desk
from shoal.core.questions import Allowed, Answer, Approved, ApprovePlan, Denied, MayRun, Question
from shoal.team.office import Office


class _Waiting(Struct, eq=False):
    question: Question
    answer: asyncio.Future[Answer]


class MailDesk:
    """Asks the lead by mail.

    `person` gets questions for which the mail protocol has no body. `on_withdrawn` is called for requests
    that nobody waits for any more.
    """

    def __init__(
        self, name: AgentName, team: TeamName, office: Office, person: Desk, withdrawn: Callable[[str], None]
    ) -> None:
        self._name = name
        self._team = team
        self._office = office
        self._person = person
        self._withdrawn = withdrawn
        self._open: dict[str, _Waiting] = {}
        self._asking = 0
        self._late: set[str] = set()
        self._granted: list[tuple[str, dict[str, Any]]] = []
        self.changed: Callable[[], None] = lambda: None
        """Called when a question was asked or answered."""

    @property
    def waits(self) -> bool:
        """True if any question is unanswered."""
        return self._asking > 0

    async def ask(self, question: Question) -> Answer:
        self._asking += 1
        self.changed()
        try:
            return await self._answered(question)
        finally:
            self._asking -= 1
            self.changed()

    async def _answered(self, question: Question) -> Answer:
        match question:
            case MayRun(tool=tool, input=given) if (tool, given) in self._granted:
                self._granted.remove((tool, given))
                return Allowed()
            case MayRun():
                request: PermissionRequest | PlanApprovalRequest = self._permission(question)
            case ApprovePlan():
                request = self._plan(question)
            case _:
                return await self._person.ask(question)
        waiting = _Waiting(question, asyncio.get_running_loop().create_future())
        self._open[request.request_id] = waiting
        try:
            await self._office.post_body(self._name, LEAD_NAME, request)
            return await waiting.answer
        finally:
            del self._open[request.request_id]
            # Also after an answer: it may have bypassed the lead, which still asks.
            self._withdrawn(request.request_id)

    def waits_for(self, request: str) -> bool:
        return request in self._open

    def answer(self, body: PermissionResponse | PlanApprovalResponse) -> bool:
        """Resolve a waiting question; False if none waits. The first answer counts."""
        waiting = self._open.get(body.request_id)
        if waiting is None or waiting.answer.done():
            return False
        match waiting.question, body:
            case MayRun(), PermissionResponse():
                waiting.answer.set_result(_permitted(body))
            case ApprovePlan(digest=digest), PlanApprovalResponse():
                waiting.answer.set_result(_approved(body, digest))
            case _:
                return False
        return True

    def late(self, body: PermissionResponse, call: ToolUse) -> Allowed | None:
        """Accept a late permission for a call that was cut off in an earlier process; it counts once."""
        answer = _permitted(body)
        if not isinstance(answer, Allowed) or body.request_id in self._late:
            return None
        self._late.add(body.request_id)
        self._granted.append((call.name, call.input if answer.input is None else answer.input))
        return answer

    def _permission(self, question: MayRun) -> PermissionRequest:
        return PermissionRequest(
            request_id=permission_request_id(self._office.milliseconds, self._office.ids.random),
            agent_id=self._name,
            tool_name=question.tool,
            tool_use_id=question.tool_use_id,
            description=question.reason,
            input=question.input,
            permission_suggestions=bodies_of(question.suggestions),
        )

    def _plan(self, question: ApprovePlan) -> PlanApprovalRequest:
        return PlanApprovalRequest(
            sender=self._name,
            timestamp=self._office.now,
            plan_file_path=question.path,
            plan_content=question.plan,
            request_id=plan_request_id(self._office.milliseconds, self._name, self._team),
        )


def permission_answer(request: PermissionRequest, answer: Answer) -> PermissionResponse:
    """Build the response to a member from a person's answer."""
    match answer:
        case Allowed(input=changed, updates=updates, remember=remember):
            if not updates and remember != "once":
                wanted = "session" if remember == "session" else "localSettings"
                suggested = suggestions_of(request.permission_suggestions)
                updates = tuple(each for each in suggested if each.destination == wanted)[:1]
            return PermissionResponse(
                request_id=request.request_id,
                subtype="success",
                response=Granted(
                    updated_input=UNSET if changed is None else changed, permission_updates=bodies_of(updates)
                ),
            )
        case Denied(reason=reason):
            return PermissionResponse(request_id=request.request_id, subtype="error", error=reason)
        case _:
            return PermissionResponse(
                request_id=request.request_id, subtype="error", error="the answer was not about permission"
            )


def bodies_of(suggestions: tuple[Suggestion, ...]) -> tuple[PermissionUpdate, ...]:
    return tuple(msgspec.convert(msgspec.to_builtins(each), PermissionUpdate) for each in suggestions)


def suggestions_of(updates: tuple[PermissionUpdate, ...]) -> tuple[Suggestion, ...]:
    """Convert updates with a known destination; skipping one grants less, never more."""
    known: list[Suggestion] = []
    for update in updates:
        try:
            known.append(msgspec.convert(msgspec.to_builtins(update), Suggestion))
        except msgspec.ValidationError:
            continue
    return tuple(known)


def _permitted(body: PermissionResponse) -> Answer:
    if body.response is None:
        return Denied(reason=body.error or "it was refused.")
    changed = body.response.updated_input
    return Allowed(
        input=None if changed is UNSET else changed,
        updates=suggestions_of(body.response.permission_updates),
    )


def _approved(body: PlanApprovalResponse, digest: str) -> Answer:
    if body.approved:
        return Approved(digest=digest, mode=body.permission_mode)
    return Denied(reason=body.feedback or "No reason was given.")
