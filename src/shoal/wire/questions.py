"""Questions and answers ⇄ JSON files."""

from __future__ import annotations

import msgspec

from shoal.core.questions import Allowed, Answer, Choose, Chosen, Denied, MayRun, Question
from shoal.wire.content import dump

_decode_question = msgspec.json.Decoder(MayRun | Choose).decode
_decode_answer = msgspec.json.Decoder(Allowed | Denied | Chosen).decode


def question_file(question: Question) -> bytes:
    return dump(question) + b"\n"


def answer_file(answer: Answer) -> bytes:
    return dump(answer) + b"\n"


def read_question(content: bytes) -> Question:
    """Raises ValueError for what is none."""
    question: Question = _decode_question(content)
    return question


def read_answer(content: bytes) -> Answer:
    """Raises ValueError for what is none."""
    answer: Answer = _decode_answer(content)
    return answer


def fits(answer: Answer, question: Question) -> bool:
    """Whether this is an answer to that question at all."""
    return isinstance(answer, Denied) or isinstance(answer, Chosen) == isinstance(question, Choose)
