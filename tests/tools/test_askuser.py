"""Questions to the person."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from shell_workbench import ShellWorkbench, get_text, open_workbench

from shoal.core.ids import LEAD_ID
from shoal.core.questions import ChoiceAnswer, ChoiceQuestion, DenyAnswer
from shoal.tools.question_tool import get_question_tools

(ASK,) = get_question_tools()
COLOUR = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue"}],
    "multiSelect": True,
}


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[ShellWorkbench]:
    async with open_workbench(tmp_path) as made:
        yield made


async def test_the_question_reaches_the_broker_and_the_answer_the_model(bench: ShellWorkbench) -> None:
    bench.question_broker.answers.append(ChoiceAnswer(answers={"Which colour?": "Red, Blue"}))
    outcome = await ASK.run({"questions": [COLOUR]}, bench.create_context())
    assert outcome.content == "The person answered:\nWhich colour? → Red, Blue"
    assert outcome.data == {"answers": {"Which colour?": "Red, Blue"}}
    (asked,) = bench.question_broker.questions
    assert isinstance(asked, ChoiceQuestion)
    assert (asked.agent, asked.id) == (LEAD_ID, "call_1")
    (choice,) = asked.choices
    assert (choice.question, choice.header, choice.multi_select) == ("Which colour?", "Colour", True)
    assert [(o.label, o.description) for o in choice.options] == [("Red", "warm"), ("Blue", "")]


async def test_nobody_there_is_a_failure_with_the_reason(bench: ShellWorkbench) -> None:
    bench.question_broker.answers.append(DenyAnswer(reason="nobody is there to answer", by="policy"))
    outcome = await ASK.run({"questions": [COLOUR]}, bench.create_context())
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
async def test_questions_of_the_wrong_shape_are_not_asked(bench: ShellWorkbench, questions: Any) -> None:
    outcome = await ASK.run({"questions": questions}, bench.create_context())
    assert outcome.is_error
    assert not bench.question_broker.questions


def test_the_model_sees_the_names_of_the_wire() -> None:
    item = ASK.schema.input_schema["properties"]["questions"]["items"]
    assert set(item["properties"]) == {"question", "header", "options", "multiSelect"}
