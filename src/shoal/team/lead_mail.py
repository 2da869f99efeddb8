"""Inbox of the lead: mail that wakes it, mail that is held, and requests that the runtime answers."""

from __future__ import annotations

import asyncio
from typing import Protocol

from shoal.core.arrivals import Item
from shoal.core.bodies import (
    IdleNotification,
    PermissionRequest,
    PermissionResponse,
    PlanApprovalRequest,
    PlanApprovalResponse,
    ShutdownApproved,
    ShutdownRejected,
    ShutdownRequest,
)
from shoal.core.decisions import Mode
from shoal.core.errors import LockUnavailable, ShoalError, StoreError
from shoal.core.ids import AgentId
from shoal.core.mail import Mail
from shoal.core.names import LEAD_NAME, AgentName
from shoal.core.permissions import for_session
from shoal.core.questions import Answer, Approved, ApprovePlan, Denied, MayRun
from shoal.team.authenticity import Received
from shoal.team.footing import Footing
from shoal.team.letters import idle_letter, plain, shown
from shoal.team.mail_desk import permission_answer, suggestions_of
from shoal.team.office import Office
from shoal.tools.plan import digest_of

_PAUSE = 1.0
"""Seconds before a failed write of an answer is retried."""


class Company(Protocol):
    """Parts of the team that the lead's inbox needs."""

    def waits_for(self, name: AgentName, request: str, mail: str) -> bool:
        """Return True if the member still waits for the answer to this mail."""
        ...

    def agent_of(self, name: AgentName) -> AgentId: ...

    def is_ours(self, name: AgentName) -> bool:
        """Return True if it is a member and not a foreign program."""
        ...

    def answered_to_end(self, name: AgentName, answer: ShutdownApproved | ShutdownRejected) -> None: ...

    def is_idle(self, name: AgentName) -> None:
        """Handle an idle notice, the only status that a foreign program reports."""
        ...

    def settled(self, mail: str) -> None:
        """Mark mail to the lead as settled."""
        ...

    def changed(self) -> None: ...


class LeadMail:
    """Holds idle notices until other mail wakes the lead or the team is quiet."""

    def __init__(self, on: Footing, office: Office, company: Company, tasks: asyncio.TaskGroup) -> None:
        self._on = on
        self._office = office
        self._company = company
        self._tasks = tasks
        self._held: list[Item] = []
        self._reported: set[AgentName] = set()
        """Members that wrote to the lead since they were last idle."""
        self._asking: dict[str, asyncio.Task[None]] = {}
        """Tasks by request id."""
        self._askers: dict[str, AgentName] = {}
        """Senders by request id."""

    @property
    def holds(self) -> bool:
        return bool(self._held)

    async def bring(self, received: Received) -> bool:
        """Handle received mail; return True if it is settled."""
        mail, body = received.mail, received.body
        match body:
            case IdleNotification():
                self._idle(mail, body)
            case PermissionRequest() if self._is_waited_for(mail, body):
                self._ask(mail, body)
            case PlanApprovalRequest() if self._is_waited_for(mail, body):
                if self._on.approver() == "lead":
                    self._wake(shown(mail, body).item(mail.id, self._on.leader))
                else:
                    self._ask(mail, body)
            case PermissionRequest() | PlanApprovalRequest():
                self._on.note(f"A request of {mail.sender} is dropped: nobody waits for its answer any more.")
                return True
            case PermissionResponse() | PlanApprovalResponse() | ShutdownRequest():
                return True
            case ShutdownApproved() | ShutdownRejected():
                self._company.answered_to_end(mail.sender, body)
                self._wake(shown(mail, body).item(mail.id, self._on.leader))
            case None:
                if received.believed and not mail.fyi:
                    self._reported.add(mail.sender)
                self._wake(plain(mail, believed=received.believed).item(mail.id, self._on.leader))
            case _:
                self._wake(shown(mail, body).item(mail.id, self._on.leader))
        return False

    def _is_waited_for(self, mail: Mail, body: PermissionRequest | PlanApprovalRequest) -> bool:
        return self._company.waits_for(mail.sender, body.request_id, mail.id)

    def release(self) -> bool:
        """Queue the held items for the lead; return True if there were any."""
        held, self._held = self._held, []
        for item in held:
            self._on.queue.put(item)
        return bool(held)

    def withdraw(self, request: str) -> None:
        """Cancel a request whose sender no longer waits."""
        asking = self._asking.get(request)
        if asking is not None:
            asking.cancel()

    def withdraw_all_of(self, name: AgentName) -> None:
        """Cancel all requests of a member whose process is gone."""
        for request, sender in tuple(self._askers.items()):
            if sender == name:
                self.withdraw(request)

    def close(self) -> None:
        """Cancel all open requests; they stay unread."""
        for request in tuple(self._asking):
            self._asking.pop(request).cancel()

    def _idle(self, mail: Mail, body: IdleNotification) -> None:
        item = idle_letter(mail, body, reported=mail.sender in self._reported).item(mail.id, self._on.leader)
        self._reported.discard(mail.sender)
        self._company.is_idle(mail.sender)
        if body.idle_reason == "failed":
            self._wake(item)
        else:
            self._held.append(item)
            self._company.changed()

    def _wake(self, item: Item) -> None:
        if item.wakes:
            self.release()
        self._on.queue.put(item)
        self._company.changed()

    def _ask(self, mail: Mail, body: PermissionRequest | PlanApprovalRequest) -> None:
        self._askers[body.request_id] = mail.sender
        self._asking[body.request_id] = self._tasks.create_task(self._asked(mail, body))

    async def _asked(self, mail: Mail, body: PermissionRequest | PlanApprovalRequest) -> None:
        try:
            if isinstance(body, PermissionRequest):
                answer: PermissionResponse | PlanApprovalResponse = await self._permission(body)
            else:
                answer = await self._plan(body)
            await self._answer(mail.sender, answer)
        except ShoalError as error:
            self._on.note(f"A request of {mail.sender} could not be answered: {error}")
        except asyncio.CancelledError:
            # Withdrawn: the sender no longer waits, and this task ends.
            if body.request_id in self._asking:
                self._company.settled(mail.id)
            raise
        finally:
            self._asking.pop(body.request_id, None)
            self._askers.pop(body.request_id, None)
        self._company.settled(mail.id)

    async def _answer(self, to: AgentName, answer: PermissionResponse | PlanApprovalResponse) -> None:
        """Retry until the answer is written: a person gave it, and the sender waits for it."""
        told = False
        while True:
            try:
                await self._office.post_body(LEAD_NAME, to, answer)
            except (LockUnavailable, StoreError) as error:
                if not told:
                    told = True
                    self._on.note(f"The answer to {to} waits: {error}")
                await self._on.clock.sleep(_PAUSE)
            else:
                return

    async def _permission(self, body: PermissionRequest) -> PermissionResponse:
        suggested = suggestions_of(body.permission_suggestions)
        question = MayRun(
            id=self._on.ids.short(),
            agent=self._company.agent_of(body.agent_id),
            tool_use_id=body.tool_use_id,
            tool=body.tool_name,
            input=body.input,
            reason=body.description,
            rule=for_session(suggested),
            suggestions=suggested,
        )
        answer = permission_answer(body, await self._on.ask(question))
        if answer.response is not None and self._company.is_ours(body.agent_id):
            # Before the member gets the answer, so that members it then writes to need not ask again.
            for update in suggestions_of(answer.response.permission_updates):
                if update.destination == "session":
                    self._on.permit(update)
        return answer

    async def _plan(self, body: PlanApprovalRequest) -> PlanApprovalResponse:
        digest = digest_of(body.plan_content)
        answer: Answer = Approved(digest=digest, by="policy")
        if self._on.approver() != "auto":
            question = ApprovePlan(
                id=self._on.ids.short(),
                agent=self._company.agent_of(body.sender),
                plan=body.plan_content,
                path=body.plan_file_path,
                digest=digest,
            )
            answer = await self._on.ask(question)
        match answer:
            case Approved(digest=approved, mode=mode) if approved == digest:
                return self._plan_answer(body, approved=True, mode=mode)
            case Denied(reason=reason):
                return self._plan_answer(body, approved=False, feedback=reason)
            case _:
                return self._plan_answer(body, approved=False, feedback="The answer was about another plan.")

    def _plan_answer(
        self,
        body: PlanApprovalRequest,
        *,
        approved: bool,
        mode: Mode | None = None,
        feedback: str | None = None,
    ) -> PlanApprovalResponse:
        return PlanApprovalResponse(
            request_id=body.request_id,
            approved=approved,
            timestamp=self._office.now,
            permission_mode=(mode or self._on.mode()) if approved else None,
            feedback=feedback,
        )
