"""Elicitation requests of MCP servers, put to the user through the question broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import mcp_types
from msgspec.structs import replace

from shoal.core.permissions.questions import (
    Answer,
    ChoiceAnswer,
    ChoiceOption,
    ChoiceQuestion,
    MultipleChoice,
)

if TYPE_CHECKING:
    from shoal.tools.mcp.managed_server import ManagedMcpServer

MAX_FIELDS = 20
_YES, _NO = "Yes", "No"
_GO_ON, _DECLINE = "Continue", "Decline"
_SKIP_FIELD = "Leave it out"
_FieldValue: TypeAlias = str | int | float | bool | list[str] | None


async def handle_mcp_elicitation(
    managed: ManagedMcpServer, params: mcp_types.ElicitRequestParams
) -> mcp_types.ElicitResult:
    """Ask the user; decline if no call is active or nobody can answer."""
    call = managed.current_call
    if call is None:
        return mcp_types.ElicitResult(action="decline")
    prompt = f"The MCP server {managed.server.name} asks: {params.message}"
    fields: dict[str, Mapping[str, Any]] = {}
    if isinstance(params, mcp_types.ElicitRequestURLParams):
        choices = [
            _build_confirmation_choice(f"{prompt} Open {params.url} yourself, and confirm when you are done.")
        ]
    else:
        schema = params.requested_schema
        properties = schema.get("properties", {})
        if not isinstance(properties, Mapping) or len(properties) > MAX_FIELDS:
            return mcp_types.ElicitResult(action="cancel")
        fields = {name: field for name, field in properties.items() if isinstance(field, Mapping)}
        required = schema.get("required") or ()
        choices = [
            _build_field_choice(prompt, name, field, required=name in required)
            for name, field in fields.items()
        ]
        choices = _disambiguate_choices(choices, fields) or [_build_confirmation_choice(prompt)]
    call.suspend_deadline()
    try:
        answer = await call.context.question_broker.ask_person_or_deny(
            ChoiceQuestion(id=call.next_question_id(), agent=call.context.agent.agent, choices=tuple(choices))
        )
    finally:
        call.extend_deadline()
    return _build_elicit_result(answer, choices, fields)


def _build_confirmation_choice(question: str) -> MultipleChoice:
    options = (ChoiceOption(label=_GO_ON), ChoiceOption(label=_DECLINE))
    return MultipleChoice(question=question, header="MCP", options=options)


def _build_field_choice(
    prompt: str, name: str, field: Mapping[str, Any], *, required: bool
) -> MultipleChoice:
    title = str(field.get("title") or name)
    description = f" ({field['description']})" if isinstance(field.get("description"), str) else ""
    options = [ChoiceOption(label=label) for label in _list_field_choice_labels(field)]
    if not options and field.get("default") is not None:
        options.append(ChoiceOption(label=str(field["default"])))
    if not required:
        options.append(ChoiceOption(label=_SKIP_FIELD))
    options.append(ChoiceOption(label=_DECLINE, description="Do not send an answer."))
    return MultipleChoice(
        question=f"{prompt} – {title}{description}",
        header=name[:20],
        options=tuple(options),
        multi_select=field.get("type") == "array",
    )


def _disambiguate_choices(choices: list[MultipleChoice], names: Iterable[str]) -> list[MultipleChoice]:
    """Append the field name to duplicate questions, because answers are keyed by question."""
    counts = Counter(choice.question for choice in choices)
    return [
        replace(choice, question=f"{choice.question} [{name}]") if counts[choice.question] > 1 else choice
        for choice, name in zip(choices, names, strict=True)
    ]


def _list_field_choice_labels(field: Mapping[str, Any]) -> Iterator[str]:
    if field.get("type") == "boolean":
        yield from (_YES, _NO)
    yield from _map_choice_labels_to_values(field.get("items") if field.get("type") == "array" else field)


def _map_choice_labels_to_values(field: object) -> dict[str, str]:
    """Return the allowed values by label; none for a schema that does not list them as it should."""
    if not isinstance(field, Mapping):
        return {}
    for key in ("oneOf", "anyOf"):
        if isinstance(field.get(key), list):
            entries = [each for each in field[key] if isinstance(each, Mapping) and "const" in each]
            return {str(each.get("title", each["const"])): str(each["const"]) for each in entries}
    listed, names = field.get("enum"), field.get("enumNames")
    values = [str(value) for value in listed] if isinstance(listed, list) else []
    return dict(zip(map(str, names) if isinstance(names, list) else values, values, strict=False))


def _build_elicit_result(
    answer: Answer, choices: list[MultipleChoice], fields: Mapping[str, Mapping[str, Any]]
) -> mcp_types.ElicitResult:
    if not isinstance(answer, ChoiceAnswer):
        return mcp_types.ElicitResult(action="decline")
    texts = [answer.answers.get(choice.question, "") for choice in choices]
    if _DECLINE in texts:
        return mcp_types.ElicitResult(action="decline")
    content: dict[str, _FieldValue] = {}
    for (name, field), text in zip(fields.items(), texts, strict=False):
        if text in ("", _SKIP_FIELD):
            continue
        try:
            content[name] = _parse_field_value(text, field)
        except ValueError:
            return mcp_types.ElicitResult(action="cancel")
    return mcp_types.ElicitResult(action="accept", content=content)


def _parse_field_value(text: str, field: Mapping[str, Any]) -> _FieldValue:
    """Parse an answer. Raises `ValueError` if the text does not fit the field's type."""
    match field.get("type"):
        case "boolean":
            if text.lower() in ("yes", "y", "true", "1"):
                return True
            if text.lower() in ("no", "n", "false", "0"):
                return False
            raise ValueError(text)
        case "integer":
            return int(text)
        case "number":
            return float(text)
        case "array":
            values_by_label = _map_choice_labels_to_values(field.get("items"))
            return [values_by_label.get(part.strip(), part.strip()) for part in text.split(",")]
        case _:
            return _map_choice_labels_to_values(field).get(text, text)
