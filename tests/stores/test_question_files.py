"""Questions on disk: an answer applies once, to the call it was given for."""

from __future__ import annotations

import os
import time

import pytest

from shoal.core.errors import StateFileError
from shoal.core.ids import AgentId
from shoal.core.permissions.questions import (
    RUN_ENDED_REASON,
    AllowAnswer,
    ChoiceAnswer,
    DenyAnswer,
    PermissionQuestion,
)
from shoal.stores.files.sessions.question_files import QuestionFiles
from shoal.wire.question_codec import encode_answer


def make_question(command, question_id="q"):
    return PermissionQuestion(
        id=question_id,
        agent=AgentId("a"),
        tool_use_id="c",
        tool="Bash",
        input={"command": command},
        reason="asks",
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


def set_age(path, seconds):
    os.utime(path, (time.time() - seconds,) * 2)


def test_open_questions_are_listed_oldest_first_without_other_files(tmp_path):
    questions = QuestionFiles(tmp_path)
    assert questions.list_open_questions() == ()
    assert QuestionFiles(tmp_path / "missing").list_open_questions() == ()
    for number, name in enumerate(("b", "a", "answered", "late")):
        questions.store_question(make_question(name, name))
        set_age(tmp_path / f"{name}.json", 100 - 10 * number)
    assert questions.create_answer("answered", AllowAnswer())
    assert questions.create_late_answer("late", AllowAnswer())
    (tmp_path / ".hidden.json").write_bytes((tmp_path / "a.json").read_bytes())
    (tmp_path / "notes.txt").write_bytes((tmp_path / "a.json").read_bytes())
    (tmp_path / "damaged.json").write_bytes(b"{")
    assert [each.id for each in questions.list_open_questions()] == ["b", "a", "late"]
    set_age(tmp_path / "a.json", 1000)
    assert [each.id for each in questions.list_open_questions()] == ["a", "b", "late"]


def test_questions_are_found_by_their_start_whatever_was_answered(tmp_path):
    questions = QuestionFiles(tmp_path)
    for name in ("one", "on", "two", "o*"):
        questions.store_question(make_question(name, name))
    questions.create_answer("on", AllowAnswer())
    questions.create_late_answer("two", AllowAnswer())
    assert [each.id for each in questions.find_questions("on")] == ["on", "one"]
    assert [each.id for each in questions.find_questions("")] == ["o*", "on", "one", "two"]
    assert [each.id for each in questions.find_questions("*")] == []
    assert questions.get("on") == make_question("on", "on")
    assert questions.get("missing") is None


def test_the_first_answer_is_kept_until_the_question_is_asked_again(tmp_path):
    questions, question = QuestionFiles(tmp_path), make_question("ls")
    assert questions.get_asked_time(question) is None
    questions.store_question(question)
    assert abs(questions.get_asked_time(question) - time.time() * 1000) < 60_000
    assert questions.read_answer(question) is None
    assert questions.read_late_answer("q") is None
    for create, read in (
        (questions.create_answer, lambda: questions.read_answer(question)),
        (questions.create_late_answer, lambda: questions.read_late_answer("q")),
    ):
        assert create("q", AllowAnswer())
        assert not create("q", DenyAnswer(reason="no", by="person"))
        assert read() == AllowAnswer()
    questions.store_question(question)
    assert questions.read_answer(question) is None
    assert questions.read_late_answer("q") is None


@pytest.mark.parametrize("content", [b"{", b"[]", encode_answer(ChoiceAnswer(answers={}))])
@pytest.mark.parametrize("age", [0, 10])
def test_an_invalid_answer_is_moved_away_once_nobody_can_be_writing_it(tmp_path, content, age):
    questions, question = QuestionFiles(tmp_path), make_question("ls")
    questions.store_question(question)
    answer = tmp_path / "q.answer.json"
    answer.write_bytes(content)
    set_age(answer, age)
    assert questions.read_answer(question) is None
    assert answer.exists() is (age == 0)
    assert (tmp_path / "q.answer.refused").exists() is (age > 0)
    assert questions.create_answer("q", AllowAnswer()) is (age > 0)


def test_a_question_that_cannot_be_stored_is_an_error_with_its_path(tmp_path):
    (tmp_path / "q.answer.json").mkdir()
    with pytest.raises(StateFileError, match="Cannot store a question in"):
        QuestionFiles(tmp_path).store_question(make_question("ls"))
    assert QuestionFiles(tmp_path).read_answer(make_question("ls")) is None
