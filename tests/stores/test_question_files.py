"""Questions on disk: an answer applies once, to the call it was given for."""

from __future__ import annotations

import pytest

from shoal.core.errors import StateFileError
from shoal.core.ids import AgentId
from shoal.core.permissions.questions import RUN_ENDED_REASON, AllowAnswer, DenyAnswer, PermissionQuestion
from shoal.stores.files.sessions.question_files import QuestionFiles


def make_question(command):
    return PermissionQuestion(
        id="q", agent=AgentId("a"), tool_use_id="c", tool="Bash", input={"command": command}, reason="asks"
    )


def test_a_late_answer_does_not_apply_to_a_later_question_with_the_same_id(tmp_path):
    questions, unanswered = QuestionFiles(tmp_path), DenyAnswer(reason=RUN_ENDED_REASON, by="policy")
    first, second = make_question("ls"), make_question("rm -r .")
    questions.store_question(first)
    questions.settle_answer(first, unanswered)
    questions.store_late_permission("q", AllowAnswer())
    assert questions.read_late_permission(first) == AllowAnswer()
    questions.store_question(second)
    questions.settle_answer(second, unanswered)
    assert questions.read_late_permission(second) is None


@pytest.mark.parametrize("method", ["answer", "store_late_permission"])
def test_an_answer_to_an_unknown_question_is_refused(tmp_path, method):
    with pytest.raises(StateFileError, match="no question 'q'"):
        getattr(QuestionFiles(tmp_path), method)("q", AllowAnswer())
