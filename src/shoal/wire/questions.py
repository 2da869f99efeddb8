"""Codec between questions, answers and their JSON files."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.core.permissions import AddDirectories, AddRules, SetMode, Suggestion
from shoal.core.questions import (
    Allowed,
    Answer,
    Approved,
    ApprovePlan,
    Choose,
    Chosen,
    Denied,
    MayRun,
    Question,
)
from shoal.wire.content import dump
from shoal.wire.foreign import converted, decoded

_decode_question = msgspec.json.Decoder(MayRun | Choose | ApprovePlan).decode
_decode_answer = msgspec.json.Decoder(Allowed | Denied | Chosen | Approved).decode


def question_file(question: Question) -> bytes:
    return dump(question) + b"\n"


def answer_file(answer: Answer) -> bytes:
    return dump(answer) + b"\n"


def read_question(content: bytes) -> Question:
    """Parse a question; raise ValueError if the content is not one."""
    question: Question = decoded(content, _decode_question, Question)
    return question


def read_answer(content: bytes) -> Answer:
    """Parse an answer; raise ValueError if the content is not one."""
    answer: Answer = decoded(content, _decode_answer, Answer)
    return answer


def suggestions_in(raw: object) -> tuple[Suggestion, ...]:
    """Return the permission changes that a program sends with an answer; skip invalid ones."""
    found: list[Suggestion] = []
    for each in raw if isinstance(raw, list) else ():
        try:
            found.append(_decode_suggestion(each))
        except msgspec.ValidationError:
            continue
    return tuple(found)


def _decode_suggestion(raw: object) -> Suggestion:
    kind: Any = AddRules | AddDirectories | SetMode
    suggestion: Suggestion = converted(raw, kind)
    return suggestion


def fits(answer: Answer, question: Question) -> bool:
    """Return True if the type of the answer fits the question."""
    if isinstance(question, ApprovePlan):
        # An approval of a different plan text does not count.
        approves = isinstance(answer, Approved) and answer.digest == question.digest
        return approves or isinstance(answer, Denied)
    return isinstance(answer, (Denied, Chosen if isinstance(question, Choose) else Allowed))
