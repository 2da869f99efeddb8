"""Rules of stored questions, whatever they are stored in: the first answer wins, and it must fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from shoal.core.errors import StateFileError
from shoal.core.permissions.questions import (
    AllowAnswer,
    Answer,
    PermissionQuestion,
    Question,
    is_run_ended_denial,
)
from shoal.wire.question_codec import is_matching_answer_type

_QUESTION_TEXT = {
    "permission": "for permission.",
    "choice": "for a choice.",
    "plan": "for approval of the plan with that digest.",
}


class StoredQuestions(ABC):
    directory: Path
    """Directory of the run that asks, for error messages."""

    @abstractmethod
    def get(self, question_id: str) -> Question | None: ...

    @abstractmethod
    def create_answer(self, question_id: str, answer: Answer) -> bool:
        """Store the answer and return True; return False if there is one."""

    @abstractmethod
    def read_answer(self, question: Question) -> Answer | None: ...

    @abstractmethod
    def create_late_answer(self, question_id: str, answer: Answer) -> bool:
        """Store the answer to a question of a dead process; return False if there is one."""

    @abstractmethod
    def read_late_answer(self, question_id: str) -> Answer | None: ...

    def answer(self, question_id: str, answer: Answer) -> bool:
        """Store the answer and return True; return False if another answer came first."""
        question = self._require_question(question_id)
        if not is_matching_answer_type(answer, question):
            raise StateFileError(
                f"This answer does not match the question {question_id!r}, which asks "
                + _QUESTION_TEXT[str(question.__struct_config__.tag)],
                path=self.directory,
            )
        return self.create_answer(question_id, answer)

    def settle_answer(self, question: Question, answer: Answer) -> Answer:
        """Store the answer and return the final one: this one, unless another came first."""
        if self.create_answer(question.id, answer):
            return answer
        return self.read_answer(question) or answer

    def store_late_permission(self, question_id: str, answer: Answer) -> None:
        """Allow a call that was interrupted; the first answer wins. Raises `StateFileError`."""
        question = self._require_question(question_id)
        if not isinstance(question, PermissionQuestion) or not self.is_question_orphaned(question):
            raise StateFileError(
                f"The question {question_id!r} was already answered or withdrawn, so this answer is too "
                f"late.",
                path=self.directory,
            )
        if not isinstance(answer, AllowAnswer):
            raise StateFileError(
                f"The question {question_id!r} was withdrawn when the run that asked it ended. The call "
                f"did not run, so there is nothing to deny.",
                path=self.directory,
            )
        if not self.create_late_answer(question_id, answer):
            raise StateFileError(
                f"Somebody has already allowed {question_id!r}. The answer counts only once.",
                path=self.directory,
            )

    def is_question_orphaned(self, question: PermissionQuestion) -> bool:
        """Return True if the process that asked died before anybody answered."""
        return is_run_ended_denial(self.read_answer(question))

    def read_late_permission(self, question: PermissionQuestion) -> AllowAnswer | None:
        """Return the permission that came after the asking process died, or that it did not receive."""
        answer = self.read_answer(question)
        if is_run_ended_denial(answer):
            answer = self.read_late_answer(question.id)
        return answer if isinstance(answer, AllowAnswer) else None

    def _require_question(self, question_id: str) -> Question:
        question = self.get(question_id)
        if question is None:
            message = f"There is no question {question_id!r} in {self.directory}."
            raise StateFileError(message, path=self.directory)
        return question
