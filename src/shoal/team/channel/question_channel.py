"""Questions for a person that a teammate's process sends over its channel: both ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shoal.core.permissions.questions import Answer, Question
from shoal.team.team_services import TeamServices
from shoal.wire.member_channel_codec import (
    MemberQuestionAnsweredMessage,
    MemberQuestionAskedMessage,
    MemberQuestionWithdrawnMessage,
    MessageFromLead,
    MessageFromMember,
)


class MemberQuestionServer:
    """The lead's end: passes questions of the process to the lead's question broker."""

    def __init__(self, services: TeamServices, send: Callable[[MessageFromLead], None]) -> None:
        self._services = services
        self._send = send
        self._open_questions: dict[str, asyncio.Task[None]] = {}

    def handle_question_message(
        self, message: MemberQuestionAskedMessage | MemberQuestionWithdrawnMessage, tasks: asyncio.TaskGroup
    ) -> None:
        if isinstance(message, MemberQuestionWithdrawnMessage):
            self._withdraw_question(message.question)
        else:
            self._open_questions[message.question.id] = tasks.create_task(
                self._ask_person_and_reply(message.question)
            )

    def _withdraw_question(self, question: str) -> None:
        if (task := self._open_questions.pop(question, None)) is not None:
            task.cancel()

    def close(self) -> None:
        for question in list(self._open_questions):
            self._withdraw_question(question)

    async def _ask_person_and_reply(self, question: Question) -> None:
        answer = await self._services.ask_person_or_deny(question)
        self._open_questions.pop(question.id, None)
        self._send(MemberQuestionAnsweredMessage(question=question.id, answer=answer))


class RemoteQuestionBroker:
    """The teammate's end: sends questions to the lead and waits for the answers."""

    def __init__(self, send: Callable[[MessageFromMember], None]) -> None:
        self._send = send
        self._pending: dict[str, asyncio.Future[Answer]] = {}

    async def ask_person_or_deny(self, question: Question) -> Answer:
        future = self._pending[question.id] = asyncio.get_running_loop().create_future()
        self._send(MemberQuestionAskedMessage(question=question))
        try:
            answer: Answer = await future
        except asyncio.CancelledError:
            self._send(MemberQuestionWithdrawnMessage(question=question.id))
            raise
        finally:
            del self._pending[question.id]
        return answer

    def resolve_pending_question(self, message: MemberQuestionAnsweredMessage) -> None:
        future = self._pending.get(message.question)
        if future is not None and not future.done():
            future.set_result(message.answer)
