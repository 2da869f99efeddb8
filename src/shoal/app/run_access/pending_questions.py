"""Open questions of every run in a home, for answers from outside."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from shoal.core.clock import Clock
from shoal.core.errors import StateFileError
from shoal.core.ids import SessionId
from shoal.core.permissions.questions import Answer, PermissionQuestion, Question
from shoal.core.store import SessionQuestions, Store


class PendingQuestion(Struct, frozen=True, kw_only=True):
    """Open question with its session and age."""

    session: SessionId
    question: Question
    seconds: int | None
    """Seconds since it was asked; None if that is unknown."""
    live: bool
    """True if the run that asked still waits; otherwise nobody receives an answer."""
    asked_by: SessionQuestions
    """Questions of the session that asks."""


def list_pending_questions(store: Store, clock: Clock) -> tuple[PendingQuestion, ...]:
    """Return the open questions, the oldest first."""
    rows = [
        _build_pending_question(asked_by, question, clock)
        for asked_by in store.list_session_questions()
        for question in asked_by.questions.list_open_questions()
    ]
    return tuple(sorted(rows, key=lambda row: -(row.seconds or 0)))


def _build_pending_question(asked_by: SessionQuestions, question: Question, clock: Clock) -> PendingQuestion:
    asked_at = asked_by.questions.get_asked_time(question)
    return PendingQuestion(
        session=asked_by.session,
        question=question,
        seconds=None if asked_at is None else max(0, (clock.now() - asked_at) // 1000),
        live=asked_by.is_live,
        asked_by=asked_by,
    )


def find_pending_question(questions: tuple[PendingQuestion, ...], start: str, home: Path) -> PendingQuestion:
    """Return the question with this id or unique id prefix. Raises `StateFileError`."""
    found = [row for row in questions if row.question.id.startswith(start)]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(row.question.id for row in found)
        raise StateFileError(
            f"{len(found)} questions have an id that starts with {start!r}: {ids}.", path=home
        )
    raise StateFileError(
        f"There is no open question {start!r}. It may have been answered or withdrawn. List open "
        f"questions: shoal ask",
        path=home,
    )


def find_interrupted_question(store: Store, start: str, clock: Clock) -> PendingQuestion | None:
    """Return the only question with this id prefix that was interrupted by a dead process, if any."""
    found = [
        _build_pending_question(asked_by, question, clock)
        for asked_by in store.list_session_questions()
        for question in asked_by.questions.find_questions(start)
        if isinstance(question, PermissionQuestion) and asked_by.questions.is_question_orphaned(question)
    ]
    return found[0] if len(found) == 1 else None


def submit_late_answer(pending: PendingQuestion, answer: Answer) -> None:
    """Submit a late answer. Raises `StateFileError` if the run has ended, for a no, or after a yes."""
    if not pending.live:
        raise create_run_ended_error(pending.session, pending.asked_by.directory)
    pending.asked_by.questions.store_late_permission(pending.question.id, answer)


def submit_question_answer(pending: PendingQuestion, answer: Answer) -> bool:
    """Submit an answer; return False if it is not the first. Raises `StateFileError` if nobody waits."""
    if not pending.live:
        raise create_run_ended_error(pending.session, pending.asked_by.directory)
    return pending.asked_by.questions.answer(pending.question.id, answer)


def create_run_ended_error(session: SessionId, directory: Path) -> StateFileError:
    return StateFileError(
        f"The run {session} asked this question but has ended, so it cannot receive the answer. Resume it: "
        f"shoal "
        f"--resume {session}",
        path=directory,
    )
