"""Question broker: every question of any agent for a person, shared by all surfaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from shoal.core.clock import Clock
from shoal.core.errors import StoreError
from shoal.core.events import Answered, Asked, Journaled
from shoal.core.questions import Allowed, Answer, ApprovePlan, Denied, MayRun, Question
from shoal.runs.late_answers import LateAnswers
from shoal.stores.files.questions import ENDED, Questions
from shoal.stores.files.watch import DirectoryWatch

Emit: TypeAlias = Callable[[Journaled], None]


class _Waiting:
    """Question that is waiting for an answer. Others may await it too, so its future is never cancelled."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()


class FileDesk:
    """Broker that gets answers from surfaces of this process by `submit_answer`, and from others as files.

    `attended` is True if a person may answer; `answer_timeout` is how many seconds to wait for one. With
    `attended` and no timeout it waits forever; with neither it answers by policy at once: it allows what
    `is_preapproved` and denies the rest.
    """

    def __init__(
        self, directory: Path, *, clock: Clock, emit: Emit, attended: bool, patience: float | None = None
    ) -> None:
        self.listed: Callable[[Question], bool] = lambda _: False
        self.attended = attended
        self.patience = patience
        self._questions = Questions(directory)
        self.late = LateAnswers(self._questions)
        self._clock = clock
        self._emit = emit
        self._waiting: dict[str, _Waiting] = {}
        self._watch: DirectoryWatch | None = None
        self._news: asyncio.Event | None = None

    @property
    def waits(self) -> bool:
        """True if a question waits for a person, here or at another terminal."""
        return self.attended or self.patience is not None

    async def ask(self, question: Question) -> Answer:
        self._questions.put(question)
        self._emit(Asked(agent=question.agent, question=question))
        waiting = self._open(question)
        if isinstance(question, MayRun) and (given := self.late.granted(question)) is not None:
            self._standing(waiting, given)
        try:
            answer = await self._awaited(waiting)
        except asyncio.CancelledError:
            withdrawn = Denied(reason="The question was withdrawn: its call was interrupted.", by="policy")
            # A full disk must not turn the interruption into another error.
            with suppress(StoreError):
                self._tell(self._standing(waiting, withdrawn), question)
            raise
        finally:
            self._close(waiting)
        self._tell(answer, question)
        return answer

    def answer(self, question_id: str, answer: Answer) -> bool:
        """Submit an answer; return False if another one came first. Raises `StoreError`."""
        stands = self._questions.answer(question_id, answer)
        self._look()
        return stands

    def open_questions(self) -> tuple[Question, ...]:
        return tuple(waiting.question for waiting in self._waiting.values())

    async def incoming(self) -> AsyncIterator[Question]:
        """Yield every question, the currently open ones first, for a surface that shows them."""
        shown: set[str] = set()
        while True:
            news = self._news = self._news or asyncio.Event()
            for question in self.open_questions():
                if question.id not in shown:
                    shown.add(question.id)
                    yield question
            shown &= self._waiting.keys()
            await news.wait()

    async def settled(self, question_id: str) -> Answer | None:
        """Wait for the answer, whoever gives it; return None if no such question is open."""
        waiting = self._waiting.get(question_id)
        return None if waiting is None else await asyncio.shield(waiting.answer)

    def withdraw_left_over(self) -> tuple[Question, ...]:
        """Close the questions that an earlier process of this run left open: their calls are gone."""
        left_over = tuple(question for question in self._questions.open() if question.id not in self._waiting)
        for question in left_over:
            withdrawn = Denied(reason=ENDED, by="policy")
            self._tell(self._questions.settle(question, withdrawn), question)
        return left_over

    async def _awaited(self, waiting: _Waiting) -> Answer:
        if self.attended and self.patience is None:
            return await asyncio.shield(waiting.answer)
        if self.patience is None:
            return self._standing(waiting, self._by_policy(waiting.question, _unattended(waiting.question)))
        try:
            async with self._clock.deadline(self.patience):
                return await asyncio.shield(waiting.answer)
        except TimeoutError:
            late = _unanswered(waiting.question, self.patience)
            return self._standing(waiting, self._by_policy(waiting.question, late))

    def _by_policy(self, question: Question, otherwise: Denied) -> Answer:
        return Allowed() if isinstance(question, MayRun) and self.listed(question) else otherwise

    def _standing(self, waiting: _Waiting, answer: Answer) -> Answer:
        """Settle with an answer; return the valid one, which may be another that came first."""
        if not waiting.answer.done():
            with suppress(StoreError):
                answer = self._questions.settle(waiting.question, answer)
            waiting.answer.set_result(answer)
        return waiting.answer.result()

    def _look(self) -> None:
        """Pass answers found in files to the pending questions."""
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                answer = self._questions.answer_to(waiting.question)
                if answer is not None:
                    waiting.answer.set_result(answer)

    def _open(self, question: Question) -> _Waiting:
        waiting = self._waiting[question.id] = _Waiting(question)
        if self._watch is None:
            self._watch = DirectoryWatch(self._questions.directory, self._look)
        self._look()
        news, self._news = self._news, None
        if news is not None:
            news.set()
        return waiting

    def _close(self, waiting: _Waiting) -> None:
        del self._waiting[waiting.question.id]
        if not self._waiting and self._watch is not None:
            self._watch.close()
            self._watch = None

    def _tell(self, answer: Answer, question: Question) -> None:
        self._emit(Answered(agent=question.agent, question=question.id, answer=answer))


def _unattended(question: Question) -> Denied:
    return _denied(question, "Nobody is there to answer: this run is not attended.")


def _unanswered(question: Question, seconds: float) -> Denied:
    return _denied(question, f"Nobody answered within {seconds:g} seconds.")


def _denied(question: Question, why: str) -> Denied:
    if isinstance(question, MayRun):
        advice = f"Go on without {question.tool}, or say what you would need it for."
    elif isinstance(question, ApprovePlan):
        advice = "Nothing may be changed: end with the plan as your answer."
    else:
        advice = "Decide yourself, and say what you assumed."
    return Denied(reason=f"{why} {advice}", by="policy")
