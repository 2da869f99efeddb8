"""Forwarder of questions to the program that drives the run, which asks its user and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from shoal.app.session.session import Session
from shoal.core.errors import ShoalError
from shoal.core.ids import LEAD
from shoal.core.questions import (
    Allowed,
    Answer,
    Approved,
    ApprovePlan,
    Choose,
    Chosen,
    Denied,
    MayRun,
    Question,
)
from shoal.surfaces.cli.headless.output import StreamOutput
from shoal.wire.questions import suggestions_in
from shoal.wire.stream_incoming import Responded
from shoal.wire.stream_json import asked, cancelled


class AnsweredBefore(ShoalError):
    """Raised if another answer to this question came first; that answer stands."""

    def __init__(self, question: str) -> None:
        super().__init__(f"Somebody answered {question!r} first.")


class Prompting:
    """Sends one `can_use_tool` request for each open question. An answer from elsewhere cancels it."""

    def __init__(self, session: Session, output: StreamOutput) -> None:
        self._session = session
        self._desk = session.parts.desk
        self._output = output
        self._open: dict[str, Question] = {}

    async def ask(self) -> None:
        """Forward questions until cancelled."""
        async with asyncio.TaskGroup() as waiting:
            async for question in self._desk.incoming():
                self._open[question.id] = question
                await self._output.state("requires_action")
                asker = None if question.agent == LEAD else question.agent
                line = asked(question.id, *_as_call(question), suggested=_suggested(question), agent=asker)
                await self._output.send(line)
                waiting.create_task(self._settle(question))

    def answer(self, response: Responded) -> None:
        """Pass on an answer. Raises `AlreadyAnswered` or `StoreError` if it does not count."""
        question = self._open.pop(response.id, None)
        if question is None:
            gone = self._desk.late.question(response.id)
            answer = Denied(reason="") if gone is None else _answer(gone, response)
            self._desk.late.give(response.id, answer)
        elif not self._desk.answer(question.id, _answer(question, response)):
            raise AnsweredBefore(question.id)

    def hang_up(self) -> None:
        """Deny the open questions: nobody will answer any more, so policy does."""
        self._desk.attended = False
        for question in list(self._open.values()):
            gone = Denied(reason="The program that would have answered has hung up.", by="policy")
            self._desk.answer(question.id, gone)
        self._open.clear()

    async def _settle(self, question: Question) -> None:
        await self._desk.settled(question.id)
        if self._open.pop(question.id, None) is not None:
            await self._output.send(cancelled(question.id))
        if not self._open:
            at_work = self._session.busy or self._session.parts.crew.working
            await self._output.state("running" if at_work else "idle")


def _as_call(question: Question) -> tuple[str, str, dict[str, Any]]:
    match question:
        case MayRun(tool=tool, tool_use_id=call, input=given):
            return tool, call, given
        case Choose(choices=choices):
            return "AskUserQuestion", question.id, {"questions": msgspec.to_builtins(choices)}
        case ApprovePlan(plan=plan):
            return "ExitPlanMode", question.id, {"plan": plan}


def _suggested(question: Question) -> tuple[Any, ...]:
    return msgspec.to_builtins(question.suggestions) if isinstance(question, MayRun) else ()


def _answer(question: Question, response: Responded) -> Answer:
    body = response.body
    if response.error or body.get("behavior") != "allow":
        why = response.error or str(body.get("message") or "The person said no.")
        return Denied(reason=why, ends_turn=body.get("interrupt") is True)
    changed = body.get("updatedInput")
    match question:
        case MayRun(input=given):
            return Allowed(
                input=changed if isinstance(changed, dict) and changed != given else None,
                updates=suggestions_in(body.get("updatedPermissions")),
            )
        case ApprovePlan(digest=digest):
            return Approved(digest=digest)
        case Choose():
            answers = changed.get("answers") if isinstance(changed, Mapping) else None
            if not isinstance(answers, Mapping):
                return Denied(reason="The answer held no choice.")
            return Chosen(answers={str(key): str(value) for key, value in answers.items()})
