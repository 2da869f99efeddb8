"""Late answers to permission questions whose asking process died in the meantime."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from shoal.core.errors import StateFileError
from shoal.core.ids import LEAD_ID
from shoal.core.permissions.permission_changes import (
    PermissionSuggestion,
    SetPermissionModeSuggestion,
    find_permission_suggestion,
)
from shoal.core.permissions.questions import AllowAnswer, Answer, PermissionQuestion, is_run_ended_denial
from shoal.core.store import QuestionStore
from shoal.core.teams.team_storage import ChangeWatch

LateAnswerListener: TypeAlias = Callable[[PermissionQuestion, AllowAnswer], None]
_PREFIX = "late-"


def format_late_answer_item_id(question_id: str) -> str:
    """Return the item id of a late approval: always the same, so that it is delivered once."""
    return f"{_PREFIX}{question_id}"


def parse_question_id_from_item_id(item_id: str) -> str:
    """Return the question id of a late approval's item id; empty for other items."""
    return item_id.removeprefix(_PREFIX) if item_id.startswith(_PREFIX) else ""


def resolve_answer_permission_updates(
    question: PermissionQuestion, answer: AllowAnswer
) -> tuple[PermissionSuggestion, ...]:
    """Return the permission changes beyond this call. Mode changes apply only if the lead asked."""
    updates = answer.updates
    if not updates and (destination := answer.destination) is not None:
        suggestion = find_permission_suggestion(question.suggestions, destination)
        updates = () if suggestion is None else (suggestion,)
    return tuple(
        each
        for each in updates
        if question.agent == LEAD_ID or not isinstance(each, SetPermissionModeSuggestion)
    )


class LatePermissionApprovalTracker:
    """Late approvals. They run nothing: the agent is notified, and the same call is not asked again.

    This holds for one call and for the lifetime of this process.
    """

    def __init__(self, questions: QuestionStore) -> None:
        self._questions = questions
        self._interrupted: dict[str, tuple[PermissionQuestion, LateAnswerListener]] = {}
        self._granted: list[tuple[PermissionQuestion, AllowAnswer]] = []
        self._watch: ChangeWatch | None = None

    def watch_interrupted_questions(
        self, interrupted: Iterable[PermissionQuestion], on_answer: LateAnswerListener
    ) -> None:
        """Watch the questions of an earlier process whose calls have no result and were not reported."""
        self._interrupted |= {question.id: (question, on_answer) for question in interrupted}
        if self._interrupted and self._watch is None:
            self._watch = self._questions.watch_answers(self._report_late_answers)
        self._report_late_answers()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def find_permission_question(self, question_id: str) -> PermissionQuestion | None:
        """Return the permission question with that id; None if there is none."""
        question = self._questions.get(question_id)
        return question if isinstance(question, PermissionQuestion) else None

    def find_unreported_answer(self, question: PermissionQuestion) -> Answer | None:
        """Return an answer given while the asking process lived, or may have lived."""
        answer = self._questions.read_answer(question)
        return None if is_run_ended_denial(answer) else answer

    def submit_late_answer(self, question_id: str, answer: Answer) -> None:
        """Submit a late answer. Raises `StateFileError` if not interrupted, already answered, or denied."""
        self._questions.store_late_permission(question_id, answer)
        self._report_late_answers()

    def take_late_approval(self, question: PermissionQuestion) -> AllowAnswer | None:
        """Return the late approval of this exact call; it is used only once."""
        for grant in self._granted:
            granted_question, answer = grant
            granted_input = granted_question.input if answer.input is None else answer.input
            if (granted_question.agent, granted_question.tool, granted_input) == (
                question.agent,
                question.tool,
                question.input,
            ):
                self._granted.remove(grant)
                return AllowAnswer()
        return None

    def _report_late_answers(self) -> None:
        for question, on_answer in tuple(self._interrupted.values()):
            answer = self._questions.read_late_permission(question)
            if answer is None:
                continue
            try:
                on_answer(question, answer)
            except StateFileError:
                return  # it could not be stored: the next check reports it
            del self._interrupted[question.id]
            self._granted.append((question, answer))
        if not self._interrupted:
            self.close()
