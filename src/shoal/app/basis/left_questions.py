"""Recovers from the journal the open permission questions of an earlier process."""

from __future__ import annotations

from shoal.core.events import Answered, Asked, Journaled, Queued
from shoal.core.questions import MayRun
from shoal.runs.late_answers import question_of
from shoal.stores.files.questions import is_cut_off


class LeftQuestions:
    def __init__(self) -> None:
        self._asked: dict[str, MayRun] = {}

    def take(self, event: Journaled) -> None:
        match event:
            case Asked(question=MayRun() as question):
                self._asked[question.id] = question
            case Answered(question=question_id, answer=answer) if not is_cut_off(answer):
                self._asked.pop(question_id, None)
            case Queued(item=item):
                self._asked.pop(question_of(item), None)
            case _:
                pass

    def cut_off(self, answered: frozenset[str]) -> tuple[MayRun, ...]:
        """Return the questions whose calls have no result and no delivered late answer."""
        return tuple(each for each in self._asked.values() if each.tool_use_id not in answered)
