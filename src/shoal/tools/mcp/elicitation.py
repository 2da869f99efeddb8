"""Elicitation requests of MCP servers, put to the user through the question broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import mcp_types as types
from msgspec.structs import replace

from shoal.core.questions import Answer, Choice, Choose, Chosen, Option

if TYPE_CHECKING:
    from shoal.tools.mcp.life import ServerLife

MOST_FIELDS = 20
_YES, _NO = "Yes", "No"
_GO_ON, _DECLINE = "Go on", "Decline"
_LEFT_OUT = "Leave it out"
_Value: TypeAlias = str | int | float | bool | list[str] | None


async def elicited(life: ServerLife, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Ask the user; decline if no call is active or nobody can answer."""
    caller = life.caller
    if caller is None:
        return types.ElicitResult(action="decline")
    asks = f"The MCP server {life.server.name} asks: {params.message}"
    fields: dict[str, Mapping[str, Any]] = {}
    if isinstance(params, types.ElicitRequestURLParams):
        choices = [_plain(f"{asks} Open {params.url} yourself, and say when that is done.")]
    else:
        given = params.requested_schema
        properties = given.get("properties", {})
        if not isinstance(properties, Mapping) or len(properties) > MOST_FIELDS:
            return types.ElicitResult(action="cancel")
        fields = {name: field for name, field in properties.items() if isinstance(field, Mapping)}
        required = given.get("required") or ()
        choices = [_choice(asks, name, field, needed=name in required) for name, field in fields.items()]
        choices = _told_apart(choices, fields) or [_plain(asks)]
    caller.waits_for_a_person()
    try:
        answer = await caller.site.desk.ask(
            Choose(id=caller.question_id(), agent=caller.site.agent.agent, choices=tuple(choices))
        )
    finally:
        caller.goes_on()
    return _result(answer, choices, fields)


def _plain(question: str) -> Choice:
    options = (Option(label=_GO_ON), Option(label=_DECLINE))
    return Choice(question=question, header="MCP", options=options)


def _choice(asks: str, name: str, field: Mapping[str, Any], *, needed: bool) -> Choice:
    title = str(field.get("title") or name)
    about = f" ({field['description']})" if isinstance(field.get("description"), str) else ""
    options = [Option(label=label) for label in _labels(field)]
    if not options and field.get("default") is not None:
        options.append(Option(label=str(field["default"])))
    if not needed:
        options.append(Option(label=_LEFT_OUT))
    options.append(Option(label=_DECLINE, description="Answer nothing at all."))
    return Choice(
        question=f"{asks} – {title}{about}",
        header=name[:20],
        options=tuple(options),
        multi_select=field.get("type") == "array",
    )


def _told_apart(choices: list[Choice], names: Iterable[str]) -> list[Choice]:
    """Append the field name to duplicate questions, because answers are keyed by question."""
    times = Counter(choice.question for choice in choices)
    return [
        replace(choice, question=f"{choice.question} [{name}]") if times[choice.question] > 1 else choice
        for choice, name in zip(choices, names, strict=True)
    ]


def _labels(field: Mapping[str, Any]) -> Iterator[str]:
    if field.get("type") == "boolean":
        yield from (_YES, _NO)
    of = field.get("items") if field.get("type") == "array" else field
    yield from _named(of).keys() if isinstance(of, Mapping) else ()


def _named(field: Mapping[str, Any]) -> dict[str, str]:
    """Return the allowed values by label."""
    for key in ("oneOf", "anyOf"):
        if isinstance(field.get(key), list):
            entries = [each for each in field[key] if isinstance(each, Mapping) and "const" in each]
            return {str(each.get("title", each["const"])): str(each["const"]) for each in entries}
    values = [str(value) for value in field.get("enum") or ()]
    names = field.get("enumNames")
    return dict(zip(names if isinstance(names, list) else values, values, strict=False))


def _result(
    answer: Answer, choices: list[Choice], fields: Mapping[str, Mapping[str, Any]]
) -> types.ElicitResult:
    if not isinstance(answer, Chosen):
        return types.ElicitResult(action="decline")
    said = [answer.answers.get(choice.question, "") for choice in choices]
    if _DECLINE in said:
        return types.ElicitResult(action="decline")
    content: dict[str, _Value] = {}
    for (name, field), text in zip(fields.items(), said, strict=False):
        if text in ("", _LEFT_OUT):
            continue
        try:
            content[name] = _value(text, field)
        except ValueError:
            return types.ElicitResult(action="cancel")
    return types.ElicitResult(action="accept", content=content)


def _value(text: str, field: Mapping[str, Any]) -> _Value:
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
            named = _named(field.get("items") or {})
            return [named.get(part.strip(), part.strip()) for part in text.split(",")]
        case _:
            return _named(field).get(text, text)
