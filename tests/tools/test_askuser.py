"""Questions to the user."""

from __future__ import annotations

from typing import Any

import pytest
from shell_workbench import ShellWorkbench, get_text

from shoal.core.ids import LEAD_ID
from shoal.core.permissions.questions import ChoiceAnswer, ChoiceQuestion, DenyAnswer
from shoal.tools.question_tool import get_question_tools

(ASK,) = get_question_tools()
COLOUR = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue"}],
    "multiSelect": True,
}


async def test_a_question_reaches_the_broker_and_its_answer_reaches_the_model(
    workbench: ShellWorkbench,
) -> None:
    workbench.question_broker.answers.append(ChoiceAnswer(answers={"Which colour?": "Red, Blue"}))
    outcome = await ASK.run({"questions": [COLOUR]}, workbench.create_context())
    assert outcome.content == "The user answered:\nWhich colour? → Red, Blue"
    assert outcome.data == {"answers": {"Which colour?": "Red, Blue"}}
    (asked,) = workbench.question_broker.questions
    assert isinstance(asked, ChoiceQuestion)
    assert (asked.agent, asked.id) == (LEAD_ID, "call_1")
    (choice,) = asked.choices
    assert (choice.question, choice.header, choice.multi_select) == ("Which colour?", "Colour", True)
    assert [(o.label, o.description) for o in choice.options] == [("Red", "warm"), ("Blue", "")]


async def test_an_unattended_question_fails_with_the_reason(workbench: ShellWorkbench) -> None:
    workbench.question_broker.answers.append(DenyAnswer(reason="nobody is there to answer", by="policy"))
    outcome = await ASK.run({"questions": [COLOUR]}, workbench.create_context())
    assert outcome.is_error
    assert "nobody is there to answer" in get_text(outcome)


@pytest.mark.parametrize(
    "questions",
    [
        [],
        [{**COLOUR, "question": str(n)} for n in range(5)],
        [{**COLOUR, "options": COLOUR["options"][:1]}],  # type: ignore[index]
        [{**COLOUR, "options": [{"label": str(n)} for n in range(5)]}],
        [{**COLOUR, "question": ""}],
        [COLOUR, COLOUR],
        [{"question": "no options"}],
    ],
)
async def test_questions_of_the_wrong_shape_are_not_asked(workbench: ShellWorkbench, questions: Any) -> None:
    outcome = await ASK.run({"questions": questions}, workbench.create_context())
    assert outcome.is_error
    assert not workbench.question_broker.questions


def test_the_schema_has_the_field_names_of_the_protocol() -> None:
    item = ASK.schema.input_schema["properties"]["questions"]["items"]
    assert set(item["properties"]) == {"question", "header", "options", "multiSelect"}
