"""Questions on disk: a yes is for the call it was said of, and counts once."""

from __future__ import annotations

import pytest

from shoal.core.errors import StoreError
from shoal.core.ids import AgentId
from shoal.core.questions import Allowed, Denied, MayRun
from shoal.stores.files.questions import ENDED, Questions


def question(command):
    return MayRun(
        id="q", agent=AgentId("a"), tool_use_id="c", tool="Bash", input={"command": command}, reason="asks"
    )


def test_a_late_yes_is_not_one_to_another_question_of_the_same_id(tmp_path):
    questions, left = Questions(tmp_path), Denied(reason=ENDED, by="policy")
    first, second = question("ls"), question("rm -r .")
    questions.put(first)
    questions.settle(first, left)
    questions.answer_late("q", Allowed())
    assert questions.late_answer_to(first) == Allowed()
    questions.put(second)
    questions.settle(second, left)
    assert questions.late_answer_to(second) is None


@pytest.mark.parametrize("how", ["answer", "answer_late"])
def test_an_answer_to_a_question_that_nobody_asked_is_refused(tmp_path, how):
    with pytest.raises(StoreError, match="no question 'q'"):
        getattr(Questions(tmp_path), how)("q", Allowed())
