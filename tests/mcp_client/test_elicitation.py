"""Questions of MCP servers: what the person sees, and what the server gets for each answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp_helpers import list_result_texts, make_rogue_config, open_session

import shoal
from agent_scripts import call_tool, run_all_turns, script_agents
from shoal.core.permissions.questions import Answer, ChoiceAnswer, ChoiceQuestion, DenyAnswer

pytestmark = pytest.mark.needs("mcp")
SIZES = {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]}


def build_form(required: Any = (), **fields: Any) -> dict[str, Any]:
    return {
        "mode": "form",
        "message": "How?",
        "requestedSchema": {"type": "object", "properties": fields, "required": required},
    }


class Person:
    """Answers the questions of a session in order, each with one text per field."""

    def __init__(self, session: shoal.Session, *answers: Sequence[str] | DenyAnswer) -> None:
        self._broker = session.runtime.question_broker
        self._answers = list(answers)
        self.asked: list[ChoiceQuestion] = []

    async def answer_all(self) -> None:
        async for question in self._broker.watch_questions():
            assert isinstance(question, ChoiceQuestion)
            self.asked.append(question)
            given = self._answers.pop(0)
            answer: Answer
            if isinstance(given, DenyAnswer):
                answer = given
            else:
                pairs = zip(question.choices, given, strict=True)
                answer = ChoiceAnswer(answers={choice.question: text for choice, text in pairs})
            self._broker.submit_answer(question.id, answer)

    def list_labels(self) -> list[list[str]]:
        return [
            [option.label for option in choice.options]
            for question in self.asked
            for choice in question.choices
        ]


async def ask_person(
    tmp_path: Path, forms: Sequence[dict[str, Any]], answers: Sequence[Sequence[str] | DenyAnswer]
) -> tuple[list[Any], Person]:
    """Let a server ask for each form; return what it got, and the person who was asked."""
    calls = [
        call_tool("mcp__ask__echo", f"c{number}", text=json.dumps(form)) for number, form in enumerate(forms)
    ]
    model = script_agents(lead=[*calls, "done"])
    async with open_session(tmp_path, model, {"ask": make_rogue_config("asks")}, attended=True) as session:
        person = Person(session, *answers)
        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            answering = group.create_task(person.answer_all())
            await run_all_turns(session)
            answering.cancel()
        return [json.loads(text) for text in list_result_texts(session)], person


async def test_each_kind_of_field_has_its_options_and_its_values(tmp_path: Path) -> None:
    forms = [
        build_form(["size"], size=SIZES),
        build_form(size=SIZES),
        build_form(["sure"], sure={"type": "boolean"}),
        build_form(["count"], count={"type": "integer", "default": 3}),
        build_form(["share"], share={"type": "number"}),
        build_form(
            ["kind"],
            kind={"type": "string", "oneOf": [{"const": "a", "title": "First"}, {"const": "b"}, "broken"]},
        ),
        build_form(["tags"], tags={"type": "array", "items": SIZES}),
        build_form(["name"], name={"type": "string", "title": "Your name", "description": "as printed"}),
    ]
    answers = [["Medium"], ["Leave it out"], ["no"], ["7"], ["1.5"], ["First"], ["Small, other"], ["Ann"]]
    got, person = await ask_person(tmp_path, forms, answers)
    assert [each["action"] for each in got] == ["accept"] * len(forms)
    assert [each["content"] for each in got] == [
        {"size": "m"},
        {},
        {"sure": False},
        {"count": 7},
        {"share": 1.5},
        {"kind": "a"},
        {"tags": ["s", "other"]},
        {"name": "Ann"},
    ]
    assert person.list_labels() == [
        ["Small", "Medium", "Decline"],
        ["Small", "Medium", "Leave it out", "Decline"],
        ["Yes", "No", "Decline"],
        ["3", "Decline"],
        ["Decline"],
        ["First", "b", "Decline"],
        ["Small", "Medium", "Decline"],
        ["Decline"],
    ]
    choices = [question.choices[0] for question in person.asked]
    assert [choice.multi_select for choice in choices] == [False] * 6 + [True, False]
    assert choices[-1].question == "The MCP server ask asks: How? – Your name (as printed)"
    assert choices[-1].header == "name"


async def test_a_person_can_decline_and_an_answer_of_the_wrong_type_is_cancelled(tmp_path: Path) -> None:
    sure, count = build_form(["sure"], sure={"type": "boolean"}), build_form(count={"type": "integer"})
    forms = [sure, count, sure, count, sure, count]
    answers = [["Decline"], DenyAnswer(reason="no"), ["maybe"], ["many"], ["TRUE"], ["0"]]
    got, _ = await ask_person(tmp_path, forms, answers)
    assert [each["action"] for each in got] == ["decline", "decline", "cancel", "cancel", "accept", "accept"]
    assert [each.get("content") for each in got[4:]] == [{"sure": True}, {"count": 0}]


async def test_fields_with_the_same_title_are_told_apart(tmp_path: Path) -> None:
    fields = {name: {"type": "string", "title": "Day"} for name in ("first", "last")}
    got, person = await ask_person(tmp_path, [build_form(**fields)], [["Monday", "Friday"]])
    assert got == [{"action": "accept", "content": {"first": "Monday", "last": "Friday"}}]
    assert [choice.question.rpartition("Day")[2] for choice in person.asked[0].choices] == [
        " [first]",
        " [last]",
    ]


async def test_a_page_to_open_and_a_form_without_fields_are_confirmed(tmp_path: Path) -> None:
    page = {"mode": "url", "message": "Sign in.", "url": "https://a.example/in", "elicitationId": "1"}
    got, person = await ask_person(tmp_path, [page, build_form()], [["Continue"], ["Decline"]])
    assert [each["action"] for each in got] == ["accept", "decline"]
    assert person.list_labels() == [["Continue", "Decline"]] * 2
    assert "Open https://a.example/in yourself" in person.asked[0].choices[0].question


async def test_a_form_with_20_fields_is_asked_and_a_larger_one_is_cancelled(
    tmp_path: Path,
) -> None:
    fields = {f"f{number}": {"type": "string"} for number in range(21)}
    largest = dict(list(fields.items())[:20])
    got, person = await ask_person(tmp_path, [build_form(**fields), build_form(**largest)], [["x"] * 20])
    assert [each["action"] for each in got] == ["cancel", "accept"]
    assert len(got[1]["content"]) == 20
    assert len(person.asked) == 1


@pytest.mark.parametrize(
    "field",
    [
        {"type": "array", "items": "text"},
        {"type": "array", "items": [SIZES]},
        {"type": "string", "enum": 5},
        {"type": "string", "enum": ["a", "b"], "enumNames": [1, None]},
        {"type": "string", "oneOf": {"const": "a"}},
        {"type": ["string"], "title": 7, "description": 8, "default": {"a": 1}},
    ],
    ids=["items text", "items list", "enum number", "names of other types", "oneOf object", "other types"],
)
async def test_a_field_with_a_damaged_schema_is_asked_as_text(tmp_path: Path, field: dict[str, Any]) -> None:
    got, person = await ask_person(tmp_path, [build_form(odd=field)], [["a"]])
    assert len(person.asked) == 1
    assert got == [{"action": "accept", "content": {"odd": ["a"] if field["type"] == "array" else "a"}}]
