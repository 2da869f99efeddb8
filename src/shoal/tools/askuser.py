"""The AskUserQuestion tool, which asks the user."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from shoal.core.questions import Choice, Choose, Chosen, Denied, Option
from shoal.core.tools import Outcome, Site, Tool, failed
from shoal.tools.define import tool


class Answerable(Struct, frozen=True, kw_only=True):
    label: Annotated[str, Meta(min_length=1, description="The choice, in one to five words.")]
    description: Annotated[str, Meta(description="What choosing it means.")] = ""


class Asked(Struct, frozen=True, kw_only=True, rename="camel"):
    question: Annotated[str, Meta(min_length=1, description="The whole question.")]
    header: Annotated[str, Meta(description="One or two words above it.")]
    options: Annotated[list[Answerable], Meta(min_length=2, max_length=4)]
    multi_select: Annotated[bool, Meta(description="Several options may be chosen.")] = False


def ask_tools() -> tuple[Tool, ...]:
    return (ask_user_question,)


@tool(name="AskUserQuestion", deadline=None)
async def ask_user_question(
    questions: Annotated[list[Asked], Meta(min_length=1, max_length=4)], site: Site
) -> Outcome:
    """Ask the person up to four questions, each with two to four choices, and wait for the answers.

    For decisions that are theirs and that you cannot settle by looking. They may answer in their own words.
    """
    doubled = _doubled([asked.question for asked in questions])
    if doubled is not None:
        return failed(f"The question {doubled!r} is there twice: answers are given by question.")
    answer = await site.desk.ask(
        Choose(
            id=site.call_id,
            agent=site.agent.agent,
            choices=tuple(
                Choice(
                    question=asked.question,
                    header=asked.header,
                    options=tuple(Option(label=o.label, description=o.description) for o in asked.options),
                    multi_select=asked.multi_select,
                )
                for asked in questions
            ),
        )
    )
    match answer:
        case Chosen(answers=answers):
            lines = [
                f"{asked.question} → {answers.get(asked.question, '(no answer)')}" for asked in questions
            ]
            return Outcome(
                content="The person answered:\n" + "\n".join(lines), data={"answers": dict(answers)}
            )
        case Denied(reason=reason):
            return failed(f"There is no answer: {reason}. Go on without it, or say what you need to know.")
        case _:
            return failed("The question was not answered with a choice.")


def _doubled(questions: list[str]) -> str | None:
    return next((question for question in questions if questions.count(question) > 1), None)
