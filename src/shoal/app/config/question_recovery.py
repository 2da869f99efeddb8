"""Recovers from the journal the open permission questions of an earlier process."""

from __future__ import annotations

from shoal.core.events import JournaledEvent, QuestionAnswered, QuestionAsked, QueueItemAdded
from shoal.core.questions import PermissionQuestion
from shoal.runs.late_answers import parse_question_id_from_item_id
from shoal.stores.files.question_files import is_run_ended_denial


class PermissionQuestionRecovery:
    def __init__(self) -> None:
        self._asked: dict[str, PermissionQuestion] = {}

    def apply_event(self, event: JournaledEvent) -> None:
        match event:
            case QuestionAsked(question=PermissionQuestion() as question):
                self._asked[question.id] = question
            case QuestionAnswered(question=question_id, answer=answer) if not is_run_ended_denial(answer):
                self._asked.pop(question_id, None)
            case QueueItemAdded(item=item):
                self._asked.pop(parse_question_id_from_item_id(item), None)
            case _:
                pass

    def find_cut_off_questions(self, answered: frozenset[str]) -> tuple[PermissionQuestion, ...]:
        """Return the questions whose calls have no result and no delivered late answer."""
        return tuple(each for each in self._asked.values() if each.tool_use_id not in answered)
