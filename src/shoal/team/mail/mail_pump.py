"""Delivers each inbox's mail to its owner, verifies who sent it, and marks it as read.

Mail is marked only once it is in its owner's transcript or was acted on. A process that dies before that
finds it unread again; mail that the transcript already contains is marked without a second delivery.
So is mail that arrives again after it was marked, because somebody copied it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container
from typing import TypeAlias

from shoal.core.clock import Clock
from shoal.core.compact_event import CompactEvent
from shoal.core.errors import (
    InboxNotFound,
    LockUnavailable,
    ShoalError,
    StateFileError,
    TeamNotFound,
    TeamStoreError,
)
from shoal.core.ids import AgentId
from shoal.core.names import AgentName
from shoal.core.permissions.questions import ChoiceAnswer, ChoiceOption, ChoiceQuestion, MultipleChoice
from shoal.core.teams.compact_id_set import CompactIdSet
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.mail_bodies import MailBody
from shoal.core.teams.mail_envelopes import abbreviate_text_to_one_line
from shoal.core.teams.team_storage import MailboxStore
from shoal.team.mail.mail_authentication import InboundMail, MailSenderAuthenticator, is_valid_agent_name
from shoal.team.team_services import TeamServices
from shoal.wire.mail_body_codec import get_authorized_mail_body

MailHandler: TypeAlias = Callable[[MailMessage], Awaitable[bool]]
"""Returns True if the mail is settled; else it is marked as settled later."""
_BATCH = 64
_LARGE_BATCH = 500
_RETRY_DELAY = 1.0
"""Seconds before a failed read or write is retried."""
_MANY_HELD = 100
_PAUSE_OF_MANY_HELD = 0.05
"""Seconds between two reads of an inbox with more delivered and unread mail than this: the lead of a large
team gets an idle notice after each task, and would read each of them alone."""
MailReceiver: TypeAlias = Callable[[InboundMail], Awaitable[bool]]
"""Returns True if the mail is settled; else the mail pump is notified later."""
MAX_OPEN_QUESTIONS = 8
"""Maximum number of open questions per inbox, so that a flood of mail does not become a flood of
questions."""
OBEY, IGNORE = "Accept it", "Ignore it"


class MailVerifier:
    """`on_changed` is called when an open question is closed."""

    def __init__(
        self,
        services: TeamServices,
        mail_pump: MailPump,
        authenticator: MailSenderAuthenticator,
        on_changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._services = services
        self._mail_pump = mail_pump
        self._authenticator = authenticator
        self._on_changed = on_changed
        self.open_questions = 0
        """Number of open questions, whose mail is not delivered yet."""

    async def pump_and_verify_inbox(
        self, owner: AgentName, agent: AgentId, receiver: MailReceiver, delivered: Container[str] = ()
    ) -> None:
        """Deliver incoming mail until canceled or the inbox is gone."""
        question_tasks: set[asyncio.Task[None]] = set()

        async def verify_and_deliver_mail(mail: MailMessage) -> bool:
            verdict = self._authenticator.check_signature(mail, owner)
            if verdict == "forged":
                self._services.note(
                    f"Shoal refused mail for {owner} that claims to be from "
                    f"{_format_mail_sender(mail.sender)}: its signature is invalid. It was changed, copied "
                    f"from elsewhere, or forged."
                )
                return True
            body = get_authorized_mail_body(mail)
            if self._authenticator.is_trusted(mail, owner, verdict):
                return await receiver(InboundMail(mail=mail, body=body))
            if body is None or not is_valid_agent_name(mail.sender):
                return await receiver(InboundMail(mail=mail, trusted=False))
            if self._authenticator.policy == "never" or len(question_tasks) >= MAX_OPEN_QUESTIONS:
                return await self._deliver_as_untrusted_text(mail, body, owner, receiver)
            task = group.create_task(self._ask_and_deliver_unverified(mail, body, owner, agent, receiver))
            self.open_questions += 1
            question_tasks.add(task)
            task.add_done_callback(on_question_done)
            return False

        def on_question_done(task: asyncio.Task[None]) -> None:
            question_tasks.discard(task)
            self.open_questions -= 1
            self._on_changed()

        async with asyncio.TaskGroup() as group:
            await self._mail_pump.pump_inbox(owner, verify_and_deliver_mail, delivered)
            for task in tuple(question_tasks):
                task.cancel()

    async def _ask_and_deliver_unverified(
        self, mail: MailMessage, body: MailBody, owner: AgentName, agent: AgentId, receiver: MailReceiver
    ) -> None:
        if await self._ask_whether_to_obey_mail(mail, body, owner, agent):
            settled = await receiver(InboundMail(mail=mail, body=body))
        else:
            settled = await self._deliver_as_untrusted_text(mail, body, owner, receiver)
        if settled:
            self._mail_pump.note_mail_settled(mail.id, owner)

    async def _ask_whether_to_obey_mail(
        self, mail: MailMessage, body: MailBody, owner: AgentName, agent: AgentId
    ) -> bool:
        question = (
            f"{owner} got an unverified {_get_mail_body_tag(body)} that claims to be from {mail.sender}. "
            f"Accept it? Another program wrote it, so anyone may have sent it. It says: "
            f"{abbreviate_text_to_one_line(mail.text, limit=300)}"
        )
        options = (
            ChoiceOption(label=OBEY, description=f"Act on it as if {mail.sender} had sent it"),
            ChoiceOption(label=IGNORE, description=f"{owner} sees it as text from an unknown sender"),
        )
        choice = MultipleChoice(question=question, header="Mail", options=options)
        try:
            answer = await self._services.question_broker.ask_person_or_deny(
                ChoiceQuestion(id=self._services.ids.new_short_id(), agent=agent, choices=(choice,))
            )
        except ShoalError as error:
            self._services.note(f"Could not ask whether to accept mail for {owner}: {error}")
            return False
        return isinstance(answer, ChoiceAnswer) and answer.answers.get(question) == OBEY

    async def _deliver_as_untrusted_text(
        self, mail: MailMessage, body: MailBody, owner: AgentName, receiver: MailReceiver
    ) -> bool:
        self._services.note(
            f"Shoal ignored an unverified {_get_mail_body_tag(body)} that claims to be from {mail.sender}: "
            f"{owner} sees it as text from an unknown sender. The setting shoal.trust_unsigned_mail "
            f"controls this."
        )
        return await receiver(InboundMail(mail=mail, trusted=False))


def _get_mail_body_tag(body: MailBody) -> str:
    return str(body.__struct_config__.tag)


def _format_mail_sender(sender: str) -> str:
    return sender if is_valid_agent_name(sender) else repr(sender[:80])


class MailPump:
    """`on_settled` is called for mail that is settled at once, so that nobody keeps waiting for it."""

    def __init__(
        self,
        boxes: MailboxStore,
        clock: Clock,
        report: Callable[[str], None],
        on_settled: Callable[[], None] = lambda: None,
    ) -> None:
        self._mailboxes = boxes
        self._clock = clock
        self._report = report
        self._on_settled = on_settled
        self._unmarked: dict[AgentName, set[str]] = {}
        """Ids of mail that was delivered and is not marked yet."""
        self._marked: dict[AgentName, CompactIdSet] = {}
        """Ids of all mail ever read from an inbox, including by a former owner of the name."""
        self._settled: dict[AgentName, set[str]] = {}
        self._wake = CompactEvent()

    async def pump_inbox(
        self, owner: AgentName, deliver: MailHandler, delivered: Container[str] = ()
    ) -> None:
        """Deliver incoming mail until canceled or the inbox is gone."""
        self._unmarked[owner] = set()
        try:
            while True:
                try:
                    await self._deliver_new_mail(owner, deliver, self._unmarked[owner], delivered)
                except (LockUnavailable, StateFileError) as error:
                    self._report(f"Mail for {owner} is delayed: {error}")
                    await self._clock.sleep(_RETRY_DELAY)
        except (TeamNotFound, InboxNotFound):
            return
        finally:
            del self._unmarked[owner]

    async def _deliver_new_mail(
        self, owner: AgentName, deliver: MailHandler, unmarked: set[str], delivered: Container[str]
    ) -> None:
        """Deliver new mail; wait if there is none."""
        if owner not in self._marked:
            history = await self._mailboxes.read_history(owner)
            self._marked[owner] = CompactIdSet(mail.id for mail in history if mail.read)
        await self._mailboxes.wait_for_mail(owner, beyond=unmarked)
        limit = _BATCH
        if len(unmarked) > _MANY_HELD:
            limit = _LARGE_BATCH
            await self._clock.sleep(_PAUSE_OF_MANY_HELD)
        for mail in await self._mailboxes.take_unread(owner, limit=limit, beyond=unmarked):
            unmarked.add(mail.id)
            try:
                settled = (
                    mail.id in delivered or self._report_if_duplicate_mail(mail, owner) or await deliver(mail)
                )
            except (TeamStoreError, StateFileError):
                self._unmarked[owner] = unmarked - {mail.id}
                raise
            if settled:
                self.note_mail_settled(mail.id, owner)
                # It changes nothing else, and a check that saw it as undelivered waits for a change.
                self._on_settled()

    async def has_undelivered_mail(self) -> bool:
        """Return True if an inbox has undelivered mail."""
        for owner in self._mailboxes.find_changed_inboxes(tuple(self._unmarked)):
            unmarked = self._unmarked.get(owner, set())
            try:
                if await self._mailboxes.take_unread(owner, limit=1, beyond=unmarked):
                    return True
            except (TeamStoreError, StateFileError):
                continue
        return False

    def note_mail_settled(self, mail: str, owner: AgentName) -> None:
        """Mark mail that is in its owner's transcript or was acted on. Other ids are ignored."""
        if mail in self._unmarked.get(owner, ()):
            self._settled.setdefault(owner, set()).add(mail)
            self._wake.set()

    async def run_mark_settled_mail_read_loop(self) -> None:
        """Mark settled mail until canceled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await self.mark_settled_mail_read():
                await self._clock.sleep(_RETRY_DELAY)
                self._wake.set()

    async def mark_settled_mail_read(self) -> bool:
        """Mark all settled mail; return False if some could not be marked now."""
        all_marked = True
        for owner in list(self._settled):
            ids = self._settled.pop(owner)
            try:
                await self._mailboxes.mark_read(owner, ids)
            except (LockUnavailable, StateFileError):
                self._settled.setdefault(owner, set()).update(ids)
                all_marked = False
            except TeamStoreError:
                continue
            else:
                self._unmarked.get(owner, set()).difference_update(ids)
                if (marked := self._marked.get(owner)) is not None:
                    marked.add_ids(ids)
        return all_marked

    def _report_if_duplicate_mail(self, mail: MailMessage, owner: AgentName) -> bool:
        if mail.id not in self._marked.get(owner, ()):
            return False
        self._report(f"Mail for {owner} arrived a second time and was skipped ({mail.id[:80]!r}).")
        return True
