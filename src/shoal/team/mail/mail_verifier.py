"""Verifies mail between the mail pump and its receiver: rejects forged mail, asks about unverified mail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container
from typing import TypeAlias

from shoal.core.errors import ShoalError
from shoal.core.ids import AgentId
from shoal.core.names import AgentName
from shoal.core.permissions.questions import ChoiceAnswer, ChoiceOption, ChoiceQuestion, MultipleChoice
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.mail_bodies import MailBody
from shoal.core.teams.mail_envelopes import abbreviate_text_to_one_line
from shoal.team.mail.mail_authentication import InboundMail, MailSenderAuthenticator, is_valid_agent_name
from shoal.team.mail.mail_pump import MailPump
from shoal.team.team_services import TeamServices
from shoal.wire.mail_body_codec import get_authorized_mail_body

MailReceiver: TypeAlias = Callable[[InboundMail], Awaitable[bool]]
"""Returns True if the mail is settled; else the mail pump is notified later."""
MAX_OPEN_QUESTIONS = 8
"""Maximum of open questions per inbox, so that a flood of mail does not become a flood of questions."""
OBEY, IGNORE = "Obey", "Do not obey"


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
        """Deliver incoming mail until cancelled or the inbox is gone."""
        question_tasks: set[asyncio.Task[None]] = set()

        async def verify_and_deliver_mail(mail: MailMessage) -> bool:
            if self._authenticator.check_signature(mail, owner) == "forged":
                self._services.note(
                    f"Mail for {owner} in the name of {_format_mail_sender(mail.sender)} was refused: its "
                    "signature is not right for it. It was changed, copied from elsewhere, or made up."
                )
                return True
            body = get_authorized_mail_body(mail)
            if self._authenticator.is_trusted(mail, owner):
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
            f"An unverified {_get_mail_body_tag(body)} in the name of {mail.sender} for {owner}: obey? "
            f"Another program wrote it, and it may be from anybody. "
            f"It says: {abbreviate_text_to_one_line(mail.text, limit=300)}"
        )
        options = (
            ChoiceOption(label=OBEY, description=f"As if {mail.sender} had said it"),
            ChoiceOption(label=IGNORE, description=f"{owner} sees it as words of somebody unknown"),
        )
        choice = MultipleChoice(question=question, header="Mail", options=options)
        try:
            answer = await self._services.question_broker.ask_person_or_deny(
                ChoiceQuestion(id=self._services.ids.new_short_id(), agent=agent, choices=(choice,))
            )
        except ShoalError as error:
            self._services.note(f"Could not ask anybody about mail for {owner}: {error}")
            return False
        return isinstance(answer, ChoiceAnswer) and answer.answers.get(question) == OBEY

    async def _deliver_as_untrusted_text(
        self, mail: MailMessage, body: MailBody, owner: AgentName, receiver: MailReceiver
    ) -> bool:
        self._services.note(
            f"An unverified {_get_mail_body_tag(body)} in the name of {mail.sender} was not obeyed: "
            f"{owner} sees "
            "it as words of somebody unknown. The setting shoal.trust_unsigned_mail says what is."
        )
        return await receiver(InboundMail(mail=mail, trusted=False))


def _get_mail_body_tag(body: MailBody) -> str:
    return str(body.__struct_config__.tag)


def _format_mail_sender(sender: str) -> str:
    return sender if is_valid_agent_name(sender) else repr(sender[:80])
