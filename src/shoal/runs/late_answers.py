"""Late answers to permission questions whose asking process died in the meantime."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shoal.core.errors import StoreError
from shoal.core.ids import LEAD
from shoal.core.permissions import SetMode, Suggestion, lasting
from shoal.core.questions import Allowed, Answer, MayRun
from shoal.stores.files.questions import Questions, is_cut_off
from shoal.stores.files.watch import DirectoryWatch

_PREFIX = "late-"


def late_item(question_id: str) -> str:
    """Return the item id of a late approval: always the same, so that it is delivered once."""
    return f"{_PREFIX}{question_id}"


def question_of(item_id: str) -> str:
    """Return the question id of a late approval's item id; empty for other items."""
    return item_id.removeprefix(_PREFIX) if item_id.startswith(_PREFIX) else ""


def kept_updates(question: MayRun, answer: Allowed) -> tuple[Suggestion, ...]:
    """Return the permission changes beyond this call. Mode changes apply only if the lead asked."""
    updates = answer.updates
    if not updates and answer.remember != "once":
        wanted = lasting(question.suggestions, "session" if answer.remember == "session" else "localSettings")
        updates = () if wanted is None else (wanted,)
    return tuple(each for each in updates if question.agent == LEAD or not isinstance(each, SetMode))


class LateAnswers:
    """Late approvals. They run nothing: `on_answer` notifies the agent, and the same call is not asked again.

    This holds for one call and for the lifetime of this process.
    """

    def __init__(self, questions: Questions) -> None:
        self.heard: Callable[[MayRun, Allowed], None] = lambda _question, _answer: None
        self._questions = questions
        self._cut_off: dict[str, MayRun] = {}
        self._granted: list[tuple[MayRun, Allowed]] = []
        self._watch: DirectoryWatch | None = None

    def adopt(self, cut_off: Iterable[MayRun]) -> None:
        """Watch the questions of an earlier process whose calls have no result and were not reported."""
        self._cut_off |= {question.id: question for question in cut_off}
        if self._cut_off and self._watch is None:
            self._watch = DirectoryWatch(self._questions.directory, self._look)
        self._look()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def question(self, question_id: str) -> MayRun | None:
        """Return the permission question with that id; None if there is none."""
        question = self._questions.get(question_id)
        return question if isinstance(question, MayRun) else None

    def unheard(self, question: MayRun) -> Answer | None:
        """Return an answer given while the asking process lived, or may have lived."""
        answer = self._questions.answer_to(question)
        return None if is_cut_off(answer) else answer

    def give(self, question_id: str, answer: Answer) -> None:
        """Submit a late answer. Raises `StoreError` if not interrupted, already answered, or denied."""
        self._questions.answer_late(question_id, answer)
        self._look()

    def granted(self, question: MayRun) -> Allowed | None:
        """Return the late approval of this exact call; it is used only once."""
        for each in self._granted:
            asked, answer = each
            wanted = asked.input if answer.input is None else answer.input
            if (asked.agent, asked.tool, wanted) == (question.agent, question.tool, question.input):
                self._granted.remove(each)
                return Allowed()
        return None

    def _look(self) -> None:
        for question in tuple(self._cut_off.values()):
            answer = self._questions.late_answer_to(question)
            if answer is None:
                continue
            try:
                self.heard(question, answer)
            except StoreError:
                return  # it could not be stored: the next check reports it
            del self._cut_off[question.id]
            self._granted.append((question, answer))
        if not self._cut_off:
            self.close()
