"""Questions for a person as files, so that any process can answer and a crash loses none."""

from __future__ import annotations

import time
from pathlib import Path

from shoal.core.errors import StoreError
from shoal.core.questions import Allowed, Answer, Denied, MayRun, Question
from shoal.stores.files.places import create_whole, safe_name, write_whole
from shoal.wire.questions import answer_file, fits, question_file, read_answer, read_question

_STILL_WRITTEN = 2.0
"""Seconds during which a file may still be partially written by hand."""


ENDED = "The question was withdrawn: the run that asked it ended."
"""Reason of the policy denial for questions of a process that died."""
_WANTED = {
    "permission": "for permission.",
    "choice": "for a choice.",
    "plan": "for the approval of the plan with that digest.",
}


class Questions:
    """Questions in `{id}.json` with answers in `{id}.answer.json`: the first answer wins."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def put(self, question: Question) -> None:
        # An earlier answer under this id belonged to another call.
        for path in (self._answer_path(question.id), self._late_path(question.id)):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise StoreError(
                    f"A question cannot be kept in {self.directory}: {error.strerror}.", path=path
                ) from error
        write_whole(self._question_path(question.id), question_file(question))

    def answer(self, question_id: str, answer: Answer) -> bool:
        """Store the answer and return True; return False if another answer came first."""
        question = self._known(question_id)
        if not fits(answer, question):
            raise StoreError(
                f"The question {question_id!r} cannot be answered so: it asks "
                + _WANTED[str(question.__struct_config__.tag)],
                path=self._question_path(question_id),
            )
        return create_whole(self._answer_path(question_id), answer_file(answer))

    def settle(self, question: Question, answer: Answer) -> Answer:
        """Store the answer and return the final one: this one, unless another came first."""
        if create_whole(self._answer_path(question.id), answer_file(answer)):
            return answer
        return self.answer_to(question) or answer

    def answer_late(self, question_id: str, answer: Answer) -> None:
        """Allow a call that was interrupted with its process. Raises `StoreError`; the first answer wins."""
        question = self._known(question_id)
        path = self._question_path(question_id)
        if not isinstance(question, MayRun) or not self.was_cut_off(question):
            raise StoreError(
                f"The question {question_id!r} was answered, or withdrawn: this answer comes too late.",
                path=path,
            )
        if not isinstance(answer, Allowed):
            raise StoreError(
                f"The question {question_id!r} was withdrawn when the run that asked it ended: its call was "
                "not run, and there is nothing left to deny.",
                path=path,
            )
        if not create_whole(self._late_path(question_id), answer_file(answer)):
            raise StoreError(f"Somebody allowed {question_id!r} before; that counts once.", path=path)

    def was_cut_off(self, question: MayRun) -> bool:
        """Return True if the process that asked died before anybody answered."""
        return is_cut_off(self.answer_to(question))

    def late_answer_to(self, question: MayRun) -> Allowed | None:
        """Return the permission that came after the asking process died, or that it did not receive."""
        answer = self.answer_to(question)
        if is_cut_off(answer):
            try:
                answer = read_answer(self._late_path(question.id).read_bytes())
            except (OSError, ValueError):
                return None
        return answer if isinstance(answer, Allowed) else None

    def get(self, question_id: str) -> Question | None:
        try:
            return read_question(self._question_path(question_id).read_bytes())
        except (OSError, ValueError):
            return None

    def _known(self, question_id: str) -> Question:
        question = self.get(question_id)
        if question is None:
            told = f"There is no question {question_id!r} in {self.directory}."
            raise StoreError(told, path=self.directory)
        return question

    def asked_at(self, question: Question) -> int:
        """Return when the question was stored, in Unix milliseconds; the current time if it is gone."""
        try:
            return self._question_path(question.id).stat().st_mtime_ns // 1_000_000
        except OSError:
            return time.time_ns() // 1_000_000

    def answer_to(self, question: Question) -> Answer | None:
        """Return the stored answer. An invalid one is moved away, so that another can be given."""
        path = self._answer_path(question.id)
        try:
            answer = read_answer(path.read_bytes())
        except OSError:
            return None
        except ValueError:
            answer = None
        if answer is not None and fits(answer, question):
            return answer
        try:
            if time.time() - path.stat().st_mtime > _STILL_WRITTEN:
                path.replace(path.with_suffix(".refused"))
        except OSError:
            pass  # gone already
        return None

    def open(self) -> tuple[Question, ...]:
        """Return the questions without an answer, oldest first."""
        try:
            files = [path for path in self.directory.iterdir() if path.suffix == ".json"]
        except OSError:
            return ()
        answered = {path.name for path in files if path.name.endswith(".answer.json")}
        asked = [
            path
            for path in files
            if path.name not in answered
            and not path.name.startswith(".")
            and not path.name.endswith(".late.json")
            and f"{path.stem}.answer.json" not in answered
        ]
        questions: list[tuple[int, str, Question]] = []
        for path in asked:
            try:
                questions.append((path.stat().st_mtime_ns, path.name, read_question(path.read_bytes())))
            except (OSError, ValueError):
                continue  # withdrawn meanwhile, or not a question file
        return tuple(question for _, _, question in sorted(questions, key=lambda row: row[:2]))

    def _question_path(self, question_id: str) -> Path:
        return self.directory / f"{safe_name(question_id)}.json"

    def _answer_path(self, question_id: str) -> Path:
        return self.directory / f"{safe_name(question_id)}.answer.json"

    def _late_path(self, question_id: str) -> Path:
        return self.directory / f"{safe_name(question_id)}.late.json"


def is_cut_off(answer: Answer | None) -> bool:
    """Return True if this is the policy denial for a process that died."""
    return isinstance(answer, Denied) and answer.by == "policy" and answer.reason == ENDED
