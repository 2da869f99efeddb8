"""Verifies mail between the mail pump and its receiver: rejects forged mail, asks about unverified mail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container
from typing import TypeAlias

from shoal.core.bodies import Body
from shoal.core.envelopes import first_words
from shoal.core.errors import ShoalError
from shoal.core.ids import AgentId
from shoal.core.mail import Mail
from shoal.core.names import AgentName
from shoal.core.questions import Choice, Choose, Chosen, Option
from shoal.team.authenticity import Received, Verifier, is_name
from shoal.team.footing import Footing
from shoal.team.mailroom import Mailroom
from shoal.wire.bodies import body_of

Receive: TypeAlias = Callable[[Received], Awaitable[bool]]
"""Returns True if the mail is settled; else the mail pump is notified later."""
MOST_ASKED = 8
"""Maximum of open questions per inbox, so that a flood of mail does not become a flood of questions."""
OBEY, IGNORE = "Obey", "Do not obey"


class Doorkeeper:
    """`on_changed` is called when an open question is closed."""

    def __init__(
        self, on: Footing, room: Mailroom, verifier: Verifier, changed: Callable[[], None] = lambda: None
    ) -> None:
        self._on = on
        self._room = room
        self._verifier = verifier
        self._changed = changed
        self.asking = 0
        """Number of open questions, whose mail is not delivered yet."""

    async def pump(
        self, owner: AgentName, agent: AgentId, receive: Receive, delivered: Container[str] = ()
    ) -> None:
        """Deliver incoming mail until cancelled or the inbox is gone."""
        asking: set[asyncio.Task[None]] = set()

        async def bring(mail: Mail) -> bool:
            if self._verifier.verdict(mail, owner) == "forged":
                self._on.note(
                    f"Mail for {owner} in the name of {_shown(mail.sender)} was refused: its signature is "
                    "not right for it. It was changed, copied from elsewhere, or made up."
                )
                return True
            body = body_of(mail)
            if self._verifier.believes(mail, owner):
                return await receive(Received(mail=mail, body=body))
            if body is None or not is_name(mail.sender):
                return await receive(Received(mail=mail, believed=False))
            if self._verifier.policy == "never" or len(asking) >= MOST_ASKED:
                return await self._as_words(mail, body, owner, receive)
            task = group.create_task(self._ask(mail, body, owner, agent, receive))
            self.asking += 1
            asking.add(task)
            task.add_done_callback(over)
            return False

        def over(task: asyncio.Task[None]) -> None:
            asking.discard(task)
            self.asking -= 1
            self._changed()

        async with asyncio.TaskGroup() as group:
            await self._room.pump(owner, bring, delivered)
            for task in tuple(asking):
                task.cancel()

    async def _ask(self, mail: Mail, body: Body, owner: AgentName, agent: AgentId, receive: Receive) -> None:
        if await self._obeys(mail, body, owner, agent):
            settled = await receive(Received(mail=mail, body=body))
        else:
            settled = await self._as_words(mail, body, owner, receive)
        if settled:
            self._room.settled(mail.id, owner)

    async def _obeys(self, mail: Mail, body: Body, owner: AgentName, agent: AgentId) -> bool:
        asked = (
            f"An unverified {_kind(body)} in the name of {mail.sender} for {owner}: obey? Another program "
            f"wrote it, and it may be from anybody. It says: {first_words(mail.text, limit=300)}"
        )
        options = (
            Option(label=OBEY, description=f"As if {mail.sender} had said it"),
            Option(label=IGNORE, description=f"{owner} sees it as words of somebody unknown"),
        )
        choice = Choice(question=asked, header="Mail", options=options)
        try:
            answer = await self._on.desk.ask(Choose(id=self._on.ids.short(), agent=agent, choices=(choice,)))
        except ShoalError as error:
            self._on.note(f"Nobody could be asked about mail for {owner}: {error}")
            return False
        return isinstance(answer, Chosen) and answer.answers.get(asked) == OBEY

    async def _as_words(self, mail: Mail, body: Body, owner: AgentName, receive: Receive) -> bool:
        self._on.note(
            f"An unverified {_kind(body)} in the name of {mail.sender} was not obeyed: {owner} sees it as "
            "words of somebody unknown. The setting shoal.trust_unsigned_mail says what is."
        )
        return await receive(Received(mail=mail, believed=False))


def _kind(body: Body) -> str:
    return str(body.__struct_config__.tag)


def _shown(sender: str) -> str:
    return sender if is_name(sender) else repr(sender[:80])
