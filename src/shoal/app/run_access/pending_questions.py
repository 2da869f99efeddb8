"""Open questions of every run in a home, for answers from outside."""

from __future__ import annotations

from collections.abc import Iterator
from glob import escape
from pathlib import Path

from msgspec import Struct

from shoal.core.clock import Clock
from shoal.core.errors import StateFileError
from shoal.core.ids import SessionId
from shoal.core.permissions.questions import Answer, PermissionQuestion, Question
from shoal.stores.files.locks.pid_locks import is_session_running
from shoal.stores.files.sessions.question_files import QuestionFiles


class PendingQuestion(Struct, frozen=True, kw_only=True):
    """Open question with its session and age."""

    session: SessionId
    question: Question
    seconds: int
    live: bool
    """True if the run that asked still waits; otherwise nobody receives an answer."""
    directory: Path


def list_pending_questions(home: Path, clock: Clock) -> tuple[PendingQuestion, ...]:
    """Return the open questions, the oldest first."""
    runs = (home / "shoal" / "runs").glob("*/questions")
    rows = [row for directory in runs for row in _iter_run_questions(home, directory, clock)]
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _iter_run_questions(home: Path, directory: Path, clock: Clock) -> Iterator[PendingQuestion]:
    session = SessionId(directory.parent.name)
    live = is_session_running(home, session)
    store = QuestionFiles(directory)
    for question in store.list_open_questions():
        seconds = max(0, (clock.now() - store.get_asked_time(question)) // 1000)
        yield PendingQuestion(
            session=session, question=question, seconds=seconds, live=live, directory=directory
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


def find_interrupted_question(home: Path, start: str, clock: Clock) -> PendingQuestion | None:
    """Return the only question with this id prefix that was interrupted by a dead process, if any."""
    found: list[PendingQuestion] = []
    for path in (home / "shoal" / "runs").glob(f"*/questions/{escape(start)}*.json"):
        store, session = QuestionFiles(path.parent), SessionId(path.parent.parent.name)
        question = None if "." in path.stem else store.get(path.stem)
        if isinstance(question, PermissionQuestion) and store.is_question_orphaned(question):
            seconds = max(0, (clock.now() - store.get_asked_time(question)) // 1000)
            live = is_session_running(home, session)
            found.append(
                PendingQuestion(
                    session=session, question=question, seconds=seconds, live=live, directory=path.parent
                )
            )
    return found[0] if len(found) == 1 else None


def submit_late_answer(pending: PendingQuestion, answer: Answer) -> None:
    """Submit a late answer. Raises `StateFileError` if the run has ended, for a no, or after a yes."""
    if not pending.live:
        raise create_run_ended_error(pending.session, pending.directory)
    QuestionFiles(pending.directory).store_late_permission(pending.question.id, answer)


def submit_question_answer(pending: PendingQuestion, answer: Answer) -> bool:
    """Submit an answer; return False if it is not the first. Raises `StateFileError` if nobody waits."""
    if not pending.live:
        raise create_run_ended_error(pending.session, pending.directory)
    return QuestionFiles(pending.directory).answer(pending.question.id, answer)


def create_run_ended_error(session: SessionId, directory: Path) -> StateFileError:
    return StateFileError(
        f"The run {session} asked this question but has ended, so it cannot receive the answer. Resume it: "
        f"shoal "
        f"--resume {session}",
        path=directory,
    )
