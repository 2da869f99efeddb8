"""Answers agents' questions with a function in the program."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import msgspec

from shoal.app.model_notices import format_session_notice
from shoal.core.permissions.questions import (
    AllowAnswer,
    Answer,
    ChoiceAnswer,
    ChoiceQuestion,
    DenyAnswer,
    PermissionQuestion,
    PlanApprovalQuestion,
    PlanApprovedAnswer,
    Question,
)
from shoal.core.program_calls import CONTAIN_EXITS
from shoal.core.text.name_suggestions import suggest_name

if TYPE_CHECKING:
    from shoal.app.options import QuestionHandler
    from shoal.app.session.session import Session

_ANSWER_TYPES: dict[type[Any], type[Any]] = {
    PermissionQuestion: AllowAnswer,
    ChoiceQuestion: ChoiceAnswer,
    PlanApprovalQuestion: PlanApprovedAnswer,
}


async def answer_questions(session: Session, handler: QuestionHandler) -> None:
    """Answer every question of the session until canceled; each has its own task."""
    async with asyncio.TaskGroup() as tasks:
        async for question in session.questions.watch_questions():
            tasks.create_task(_answer_question(session, handler, question))


async def _answer_question(session: Session, handler: QuestionHandler, question: Question) -> None:
    answer = await _call_handler(session, handler, question)
    if answer is not None:
        session.questions.submit_answer(question.id, answer)


async def _call_handler(session: Session, handler: QuestionHandler, question: Question) -> Answer | None:
    """Return the program's answer, or a denial; None leaves the question to a person."""
    try:
        with CONTAIN_EXITS:
            returned: Any = handler(question)
            if inspect.isawaitable(returned):
                returned = await returned
    except Exception as error:  # noqa: BLE001 - the function of the program may raise anything
        return _deny(session, f"on_question failed: {type(error).__name__}: {error}")
    if returned is None:
        if session.expects_input:
            return None
        return DenyAnswer(reason=format_session_notice("program_silent"), by="policy")
    if isinstance(returned, DenyAnswer | _ANSWER_TYPES[type(question)]):
        problem = _find_invalid_field(returned)
        return _deny(session, f"on_question returned an answer with {problem}") if problem else returned
    expected = _ANSWER_TYPES[type(question)].__name__
    return _deny(session, f"on_question returned {returned!r} instead of {expected}, DenyAnswer or None")


def _find_invalid_field(answer: Answer) -> str:
    """Return which field of the answer is wrong, since Python accepts any value in it; empty if none is."""
    for field in msgspec.structs.fields(type(answer)):
        value = getattr(answer, field.name)
        try:
            msgspec.convert(msgspec.to_builtins(value), field.type)
        except (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError) as error:
            names = _list_allowed_names(field.type)
            advice = suggest_name(value, names).strip() if names and isinstance(value, str) else error
            return f"{field.name}={value!r:.80} ({advice})"
    return ""


def _list_allowed_names(field_type: Any) -> tuple[str, ...]:
    if get_origin(field_type) is Literal:
        return get_args(field_type)
    return tuple(name for member in get_args(field_type) for name in _list_allowed_names(member))


def _deny(session: Session, problem: str) -> DenyAnswer:
    session.note(f"A question was denied because {problem}.")
    return DenyAnswer(reason=format_session_notice("program_denied", problem=problem), by="policy")
