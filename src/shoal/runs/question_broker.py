"""Question broker: every question of any agent for a person, shared by all surfaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Protocol, TypeAlias

from shoal.core.clock import Clock
from shoal.core.errors import StateFileError
from shoal.core.events import JournaledEvent, QuestionAnswered, QuestionAsked
from shoal.core.permissions.questions import (
    RUN_ENDED_REASON,
    AllowAnswer,
    Answer,
    DenyAnswer,
    PermissionQuestion,
    PlanApprovalQuestion,
    Question,
)
from shoal.core.store import QuestionStore
from shoal.core.teams.team_storage import ChangeWatch
from shoal.runs.late_answers import LatePermissionApprovalTracker
from shoal.runs.run_texts import format_run_notice

Emit: TypeAlias = Callable[[JournaledEvent], None]


class _PendingQuestion:
    """Question that is waiting for an answer. Others may await it too, so its future is never canceled."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()


class AnswerableQuestions(Protocol):
    """Questions of a session, as a surface that shows and answers them sees them."""

    @property
    def keeps_questions_open(self) -> bool:
        """True if questions wait for a person who is not here, as at another terminal."""

    def mark_unattended(self) -> None: ...

    def list_open_questions(self) -> tuple[Question, ...]: ...

    def watch_questions(self) -> AsyncIterator[Question]: ...

    async def wait_for_answer(self, question_id: str) -> Answer | None: ...

    def submit_answer(self, question_id: str, answer: Answer) -> bool: ...

    def find_permission_question(self, question_id: str) -> PermissionQuestion | None: ...

    def submit_late_answer(self, question_id: str, answer: Answer) -> None: ...


class SessionQuestionBroker:
    """Broker that gets answers from surfaces of this process by `submit_answer`, from others by the store.

    `attended` is True if a person may answer; `answer_timeout` is how many seconds to wait for one. With
    `attended` and no timeout it waits forever; with neither it answers by policy at once: it allows what
    `is_preapproved` and denies the rest.
    """

    def __init__(
        self,
        questions: QuestionStore,
        *,
        clock: Clock,
        emit: Emit,
        attended: bool,
        answer_timeout: float | None = None,
        is_preapproved: Callable[[Question], bool] | None = None,
    ) -> None:
        self._is_preapproved = is_preapproved
        self._attended = attended
        self.answer_timeout = answer_timeout
        self._questions = questions
        self.late_answers = LatePermissionApprovalTracker(questions)
        self._clock = clock
        self._emit = emit
        self._pending: dict[str, _PendingQuestion] = {}
        self._watch: ChangeWatch | None = None
        self._question_added: asyncio.Event | None = None

    @property
    def attended(self) -> bool:
        """True if a person may answer in this process."""
        return self._attended

    @property
    def keeps_questions_open(self) -> bool:
        """True if questions wait for a person who is not here, as at another terminal."""
        return self.answer_timeout is not None and not self._attended

    def mark_unattended(self) -> None:
        """Note that nobody in this process can answer further questions."""
        self._attended = False

    @property
    def can_wait_for_person(self) -> bool:
        """True if a question waits for a person, here or at another terminal."""
        return self._attended or self.answer_timeout is not None

    async def ask_person_or_deny(self, question: Question) -> Answer:
        self._questions.store_question(question)
        self._emit(QuestionAsked(agent=question.agent, question=question))
        pending = self._open_question(question)
        if (
            isinstance(question, PermissionQuestion)
            and (granted := self.late_answers.take_late_approval(question)) is not None
        ):
            self._settle_answer(pending, granted)
        try:
            answer = await self._await_answer(pending)
        except asyncio.CancelledError:
            withdrawn = DenyAnswer(reason=format_run_notice("question_withdrawn"), by="policy")
            # A full disk must not turn the interruption into another error.
            with suppress(StateFileError):
                self._emit_question_answered(self._settle_answer(pending, withdrawn), question)
            raise
        finally:
            self._close_question(pending)
        self._emit_question_answered(answer, question)
        return answer

    def submit_answer(self, question_id: str, answer: Answer) -> bool:
        """Submit an answer; return False if another one came first. Raises `StateFileError`."""
        is_first = self._questions.answer(question_id, answer)
        self._check_stored_answers()
        return is_first

    def find_permission_question(self, question_id: str) -> PermissionQuestion | None:
        """Return the permission question with that id, open or not; None if there is none."""
        return self.late_answers.find_permission_question(question_id)

    def submit_late_answer(self, question_id: str, answer: Answer) -> None:
        """Answer a question whose call was interrupted. Raises `StateFileError` if it is not used."""
        self.late_answers.submit_late_answer(question_id, answer)

    def list_open_questions(self) -> tuple[Question, ...]:
        return tuple(waiting.question for waiting in self._pending.values())

    async def watch_questions(self) -> AsyncIterator[Question]:
        """Yield every question, the currently open ones first, for a surface that shows them."""
        shown: set[str] = set()
        while True:
            question_added = self._question_added = self._question_added or asyncio.Event()
            for question in self.list_open_questions():
                if question.id not in shown:
                    shown.add(question.id)
                    yield question
            shown &= self._pending.keys()
            await question_added.wait()

    async def wait_for_answer(self, question_id: str) -> Answer | None:
        """Wait for the answer from any surface; return None if no such question is open."""
        pending = self._pending.get(question_id)
        return None if pending is None else await asyncio.shield(pending.answer)

    def withdraw_leftover_questions(self) -> tuple[Question, ...]:
        """Close the questions that an earlier process of this run left open: their calls are gone."""
        leftovers = tuple(
            question for question in self._questions.list_open_questions() if question.id not in self._pending
        )
        for question in leftovers:
            denial = DenyAnswer(reason=RUN_ENDED_REASON, by="policy")
            self._emit_question_answered(self._questions.settle_answer(question, denial), question)
        return leftovers

    async def _await_answer(self, pending: _PendingQuestion) -> Answer:
        if self._attended and self.answer_timeout is None:
            return await asyncio.shield(pending.answer)
        if self.answer_timeout is None:
            return self._settle_answer(
                pending, self._answer_by_policy(pending.question, _build_unattended_denial(pending.question))
            )
        try:
            async with self._clock.deadline(self.answer_timeout):
                return await asyncio.shield(pending.answer)
        except TimeoutError:
            denial = _build_timed_out_denial(pending.question, self.answer_timeout)
            return self._settle_answer(pending, self._answer_by_policy(pending.question, denial))

    def _answer_by_policy(self, question: Question, otherwise: DenyAnswer) -> Answer:
        return (
            AllowAnswer()
            if isinstance(question, PermissionQuestion)
            and self._is_preapproved is not None
            and self._is_preapproved(question)
            else otherwise
        )

    def _settle_answer(self, pending: _PendingQuestion, answer: Answer) -> Answer:
        """Settle with an answer; return the valid one, which may be another that came first."""
        if not pending.answer.done():
            with suppress(StateFileError):
                answer = self._questions.settle_answer(pending.question, answer)
            pending.answer.set_result(answer)
        return pending.answer.result()

    def _check_stored_answers(self) -> None:
        """Pass answers found in the store to the pending questions."""
        for pending in self._pending.values():
            if not pending.answer.done():
                answer = self._questions.read_answer(pending.question)
                if answer is not None:
                    pending.answer.set_result(answer)

    def _open_question(self, question: Question) -> _PendingQuestion:
        pending = self._pending[question.id] = _PendingQuestion(question)
        if self._watch is None:
            self._watch = self._questions.watch_answers(self._check_stored_answers)
        self._check_stored_answers()
        question_added, self._question_added = self._question_added, None
        if question_added is not None:
            question_added.set()
        return pending

    def _close_question(self, pending: _PendingQuestion) -> None:
        del self._pending[pending.question.id]
        if not self._pending and self._watch is not None:
            self._watch.close()
            self._watch = None

    def _emit_question_answered(self, answer: Answer, question: Question) -> None:
        self._emit(QuestionAnswered(agent=question.agent, question=question.id, answer=answer))


def _build_unattended_denial(question: Question) -> DenyAnswer:
    return _build_question_denial(question, format_run_notice("unattended"))


def _build_timed_out_denial(question: Question, seconds: float) -> DenyAnswer:
    return _build_question_denial(question, format_run_notice("unanswered", seconds=f"{seconds:g}"))


def _build_question_denial(question: Question, cause: str) -> DenyAnswer:
    if isinstance(question, PermissionQuestion):
        reason = question.reason.rstrip(".")
        advice = format_run_notice("denied_permission", tool=question.tool, reason=reason)
    elif isinstance(question, PlanApprovalQuestion):
        advice = format_run_notice("denied_plan")
    else:
        advice = format_run_notice("denied_choice")
    return DenyAnswer(reason=f"{cause} {advice}", by="policy")
