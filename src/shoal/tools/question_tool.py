"""The AskUserQuestion tool, which asks the user."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput, create_tool_error_output
from shoal.core.permissions.questions import (
    ChoiceAnswer,
    ChoiceOption,
    ChoiceQuestion,
    DenyAnswer,
    MultipleChoice,
)
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.tool_texts import format_tool_text


class UserQuestionOptionInput(Struct, frozen=True, kw_only=True):
    label: Annotated[str, Meta(min_length=1)]
    description: str = ""


class UserQuestionInput(Struct, frozen=True, kw_only=True, rename="camel"):
    question: Annotated[str, Meta(min_length=1)]
    header: str
    options: Annotated[list[UserQuestionOptionInput], Meta(min_length=2, max_length=4)]
    multi_select: bool = False


def get_question_tools() -> tuple[Tool, ...]:
    return (ask_user_question,)


@builtin_tool(name="AskUserQuestion", deadline=None)
async def ask_user_question(
    questions: Annotated[list[UserQuestionInput], Meta(min_length=1, max_length=4)], context: ToolContext
) -> ToolOutput:
    duplicate = _find_duplicate_question([question.question for question in questions])
    if duplicate is not None:
        return create_tool_error_output(
            format_tool_text("AskUserQuestion", "duplicate", question=repr(duplicate))
        )
    answer = await context.question_broker.ask_person_or_deny(
        ChoiceQuestion(
            id=context.call_id,
            agent=context.agent.agent,
            choices=tuple(
                MultipleChoice(
                    question=question.question,
                    header=question.header,
                    options=tuple(
                        ChoiceOption(label=o.label, description=o.description) for o in question.options
                    ),
                    multi_select=question.multi_select,
                )
                for question in questions
            ),
        )
    )
    match answer:
        case ChoiceAnswer(answers=answers):
            lines = [
                f"{question.question} → {answers.get(question.question, '(no answer)')}"
                for question in questions
            ]
            return ToolOutput(
                content=format_tool_text("AskUserQuestion", "answers", answers="\n".join(lines)),
                data={"answers": dict(answers)},
            )
        case DenyAnswer(reason=reason):
            return create_tool_error_output(format_tool_text("AskUserQuestion", "no_answer", reason=reason))
        case _:
            return create_tool_error_output(format_tool_text("AskUserQuestion", "no_choice"))


def _find_duplicate_question(questions: list[str]) -> str | None:
    return next((question for question in questions if questions.count(question) > 1), None)
