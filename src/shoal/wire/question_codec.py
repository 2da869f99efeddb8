"""Codec between questions, answers and their JSON files."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.core.permissions.permission_changes import (
    AddDirectoriesPermissionSuggestion,
    AddPermissionRulesSuggestion,
    PermissionSuggestion,
    SetPermissionModeSuggestion,
)
from shoal.core.permissions.questions import (
    AllowAnswer,
    Answer,
    ChoiceAnswer,
    ChoiceQuestion,
    DenyAnswer,
    PlanApprovalQuestion,
    PlanApprovedAnswer,
    Question,
)
from shoal.wire.foreign_json import convert_to_schema, decode_to_schema
from shoal.wire.json_codec import encode_json


def encode_question(question: Question) -> bytes:
    return encode_json(question) + b"\n"


def encode_answer(answer: Answer) -> bytes:
    return encode_json(answer) + b"\n"


def parse_question(content: bytes) -> Question:
    """Parse a question; raise ValueError if the content is not one."""
    question: Question = decode_to_schema(content, Question)
    return question


def parse_answer(content: bytes) -> Answer:
    """Parse an answer; raise ValueError if the content is not one."""
    answer: Answer = decode_to_schema(content, Answer)
    return answer


def parse_permission_suggestions(raw: object) -> tuple[PermissionSuggestion, ...]:
    """Return the permission changes that a program sends with an answer; skip invalid ones."""
    found: list[PermissionSuggestion] = []
    for each in raw if isinstance(raw, list) else ():
        try:
            found.append(_parse_permission_suggestion(each))
        except msgspec.ValidationError:
            continue
    return tuple(found)


def _parse_permission_suggestion(raw: object) -> PermissionSuggestion:
    kind: Any = (
        AddPermissionRulesSuggestion | AddDirectoriesPermissionSuggestion | SetPermissionModeSuggestion
    )
    suggestion: PermissionSuggestion = convert_to_schema(raw, kind)
    return suggestion


def is_matching_answer_type(answer: Answer, question: Question) -> bool:
    """Return True if the type of the answer fits the question."""
    if isinstance(question, PlanApprovalQuestion):
        # An approval of a different plan text does not count.
        approves = isinstance(answer, PlanApprovedAnswer) and answer.digest == question.digest
        return approves or isinstance(answer, DenyAnswer)
    return isinstance(
        answer, (DenyAnswer, ChoiceAnswer if isinstance(question, ChoiceQuestion) else AllowAnswer)
    )
