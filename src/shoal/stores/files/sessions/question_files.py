"""Questions for a person as files, so that any process can answer and a crash loses none."""

from __future__ import annotations

import time
from collections.abc import Callable
from glob import escape
from pathlib import Path

from shoal.core.errors import StateFileError
from shoal.core.permissions.questions import Answer, Question
from shoal.stores.files.access.file_watch import DirectoryWatch
from shoal.stores.files.home.home_paths import (
    create_file_atomically,
    read_state_file,
    to_safe_file_name,
    write_file_atomically,
)
from shoal.stores.stored_questions import StoredQuestions
from shoal.wire.question_codec import (
    encode_answer,
    encode_question,
    is_matching_answer_type,
    parse_answer,
    parse_question,
)

_WRITE_GRACE = 2.0
"""Seconds during which a file may still be partially written by hand."""


class QuestionFiles(StoredQuestions):
    """Questions in `{id}.json` with answers in `{id}.answer.json`: the first answer wins."""

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        self.directory = directory
        self._durable = durable

    def store_question(self, question: Question) -> None:
        # An earlier answer under this id belonged to another call.
        for path in (self._answer_path(question.id), self._late_permission_path(question.id)):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise StateFileError(
                    f"Cannot store a question in {self.directory}: {error.strerror}.", path=path
                ) from error
        write_file_atomically(
            self._question_path(question.id), encode_question(question), durable=self._durable
        )

    def create_answer(self, question_id: str, answer: Answer) -> bool:
        # Always durable: a person gave it and is not asked again.
        return create_file_atomically(self._answer_path(question_id), encode_answer(answer), durable=True)

    def create_late_answer(self, question_id: str, answer: Answer) -> bool:
        return create_file_atomically(
            self._late_permission_path(question_id), encode_answer(answer), durable=True
        )

    def read_late_answer(self, question_id: str) -> Answer | None:
        try:
            return parse_answer(read_state_file(self._late_permission_path(question_id)))
        except (OSError, ValueError):
            return None

    def get(self, question_id: str) -> Question | None:
        try:
            return parse_question(read_state_file(self._question_path(question_id)))
        except (OSError, ValueError):
            return None

    def get_asked_time(self, question: Question) -> int | None:
        """Return when the question was stored, in Unix milliseconds; None if it is gone."""
        try:
            return self._question_path(question.id).stat().st_mtime_ns // 1_000_000
        except OSError:
            return None

    def read_answer(self, question: Question) -> Answer | None:
        """Return the stored answer. An invalid one is moved away, so that another can be given."""
        path = self._answer_path(question.id)
        try:
            answer = parse_answer(read_state_file(path))
        except OSError:
            return None
        except ValueError:
            answer = None
        if answer is not None and is_matching_answer_type(answer, question):
            return answer
        try:
            if time.time() - path.stat().st_mtime > _WRITE_GRACE:
                path.replace(path.with_suffix(".refused"))
        except OSError:
            pass  # gone already
        return None

    def find_questions(self, start: str) -> tuple[Question, ...]:
        names = [path.stem for path in self.directory.glob(f"{escape(start)}*.json") if "." not in path.stem]
        return tuple(found for name in sorted(names) if (found := self.get(name)) is not None)

    def list_open_questions(self) -> tuple[Question, ...]:
        """Return the questions without an answer, oldest first."""
        try:
            files = [path for path in self.directory.iterdir() if path.suffix == ".json"]
        except OSError:
            return ()
        answer_names = {path.name for path in files if path.name.endswith(".answer.json")}
        unanswered = [
            path
            for path in files
            if path.name not in answer_names
            and not path.name.startswith(".")
            and not path.name.endswith(".late.json")
            and f"{path.stem}.answer.json" not in answer_names
        ]
        questions: list[tuple[int, str, Question]] = []
        for path in unanswered:
            try:
                questions.append((path.stat().st_mtime_ns, path.name, parse_question(read_state_file(path))))
            except (OSError, ValueError):
                continue  # withdrawn meanwhile, or not a question file
        return tuple(question for _, _, question in sorted(questions, key=lambda row: row[:2]))

    def watch_answers(self, on_change: Callable[[], None]) -> DirectoryWatch:
        return DirectoryWatch(self.directory, on_change)

    def _question_path(self, question_id: str) -> Path:
        return self.directory / f"{to_safe_file_name(question_id)}.json"

    def _answer_path(self, question_id: str) -> Path:
        return self.directory / f"{to_safe_file_name(question_id)}.answer.json"

    def _late_permission_path(self, question_id: str) -> Path:
        return self.directory / f"{to_safe_file_name(question_id)}.late.json"
