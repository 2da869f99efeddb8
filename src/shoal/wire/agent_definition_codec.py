"""Parser for agent definitions: Markdown with front matter, and the JSON form of the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, get_args

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.agents.agent_definitions import (
    ALL_TOOLS,
    INHERIT_MODEL,
    AgentCapabilities,
    AgentDefinition,
    AgentRunRules,
    DefinitionProblem,
    DefinitionSource,
    MemoryScope,
)
from shoal.core.agents.subagents import IsolationMode
from shoal.core.errors import InvalidAgentDefinition
from shoal.core.permissions.permission_changes import AUTO_MODE, PERMISSION_MODES, find_similar_modes
from shoal.core.teams.roster import MEMBER_COLORS
from shoal.wire.field_parsers import (
    InvalidFrontMatterFieldError,
    check_hooks_mapping,
    describe_field_value,
    describe_unknown_field,
    parse_boolean_field,
    parse_effort_field,
    parse_positive_integer_field,
    parse_text_field,
    parse_text_list_field,
    parse_tool_list_field,
    refuse_misspelled_field,
    split_comma_separated_text,
)
from shoal.wire.front_matter import (
    FrontMatterEntry,
    InvalidFrontMatterError,
    MissingFrontMatterError,
    parse_front_matter,
)
from shoal.wire.json_codec import decode_json
from shoal.wire.json_line_numbers import find_json_key_line
from shoal.wire.resource_codec import parse_resource_request

_HEX = re.compile(r"#[0-9a-fA-F]{6}")
_MAX_NAME_LENGTH = 100


class ParsedAgentDefinition(Struct, frozen=True, kw_only=True):
    """A definition and warnings about its source text."""

    definition: AgentDefinition
    warnings: tuple[str, ...] = ()
    unused_parts: tuple[str, ...] = ()
    """Subset of the warnings, about parts without effect."""
    has_replaced_bytes: bool = False

    @property
    def source(self) -> DefinitionSource:
        return self.definition.source


class _AgentDefinitionFieldSpec(NamedTuple):
    attribute: str
    read: Callable[[Any], Any]


def parse_agent_definition(text: str, source: DefinitionSource, *, name: str) -> ParsedAgentDefinition:
    """Parse a definition; `name` is the file name, used in errors if the definition has no name.

    Raises `InvalidAgentDefinition` with the file, the line and the field.
    """
    try:
        page = parse_front_matter(text, tuple(_FIELDS))
    except InvalidFrontMatterError as error:
        problem = DefinitionProblem(
            what=error.what,
            name=name,
            source=source,
            line=error.line,
            field=error.key,
            is_plain_text=isinstance(error, MissingFrontMatterError),
        )
        raise InvalidAgentDefinition(problem) from error
    declared_name = next((entry.value for entry in page.entries if entry.key == "name"), None)
    builder = _AgentDefinitionBuilder(
        source, declared_name if isinstance(declared_name, str) and declared_name else name
    )
    builder.warnings += [
        builder.describe_problem(remark.line, remark.key, remark.text) for remark in page.warnings
    ]
    values = builder.parse_entries(page.entries, _FIELDS)
    if not page.body:
        builder.warnings.append(
            builder.describe_problem(None, None, "there is no prompt after the front matter")
        )
    return builder.build({**values, "prompt": page.body}, line=1)


def parse_json_agent_definitions(
    definitions: str | Mapping[str, Any], *, path: Path | None = None
) -> tuple[ParsedAgentDefinition, ...]:
    """Parse the JSON form, an object of names and their fields; raise `InvalidAgentDefinition`."""
    source = DefinitionSource(kind="flag", path=path)
    text = definitions if isinstance(definitions, str) else None
    try:
        raw = (
            decode_json(definitions.encode("utf-8", "surrogatepass"))
            if isinstance(definitions, str)
            else definitions
        )
    except ValueError as error:
        problem = f"not valid JSON: {getattr(error, 'msg', error)}"
        line = getattr(error, "lineno", None)
        raise InvalidAgentDefinition(
            DefinitionProblem(what=problem, name="", source=source, line=line)
        ) from error
    if not isinstance(raw, Mapping):
        problem = 'expected a JSON object such as {"reviewer": {"description": "…", "prompt": "…"}}'
        raise InvalidAgentDefinition(DefinitionProblem(what=problem, name="", source=source))
    return tuple(_parse_definition_mapping(source, name, fields, text) for name, fields in raw.items())


def _parse_definition_mapping(
    source: DefinitionSource, name: str, fields: Any, text: str | None
) -> ParsedAgentDefinition:
    def find_key_line(*keys: str) -> int | None:
        return None if text is None or "\n" not in text else find_json_key_line(text, keys)

    builder = _AgentDefinitionBuilder(source, name, prefix=f"{name}.")
    if not isinstance(fields, Mapping):
        raise builder.build_error("expected an object with its fields", line=find_key_line(name), field=name)
    values = [(key, value, find_key_line(name, key)) for key, value in fields.items()]
    found = builder.parse_fields(values, _JSON_FIELDS)
    try:
        found["name"] = _parse_agent_type_name(name)
    except InvalidFrontMatterFieldError as error:
        raise builder.build_error(str(error), line=find_key_line(name), field=name) from None
    return builder.build(found, line=find_key_line(name))


class _AgentDefinitionBuilder:
    """Builds one definition: locates problems and collects warnings."""

    def __init__(self, source: DefinitionSource, name: str, *, prefix: str = "") -> None:
        self._source = source
        self._name = name
        self._prefix = prefix
        self._lines: dict[str, int] = {}
        self.warnings: list[str] = []
        self._unused_parts: list[str] = []

    def build_error(self, what: str, *, line: int | None, field: str) -> InvalidAgentDefinition:
        problem = DefinitionProblem(what=what, name=self._name, source=self._source, line=line, field=field)
        return InvalidAgentDefinition(problem)

    def describe_problem(self, line: int | None, key: str | None, what: str) -> str:
        field = None if key is None else self._prefix + key
        return str(DefinitionProblem(what=what, name=self._name, source=self._source, line=line, field=field))

    def parse_entries(
        self, entries: Iterable[FrontMatterEntry], known_fields: Mapping[str, _AgentDefinitionFieldSpec]
    ) -> dict[str, Any]:
        return self.parse_fields([(entry.key, entry.value, entry.line) for entry in entries], known_fields)

    def parse_fields(
        self,
        given: Iterable[tuple[str, Any, int | None]],
        known_fields: Mapping[str, _AgentDefinitionFieldSpec],
    ) -> dict[str, Any]:
        """Parse the fields; a field without a value keeps its default."""
        values: dict[str, Any] = {}
        for key, value, line in given:
            field = known_fields.get(key)
            if field is None:
                try:
                    refuse_misspelled_field(key, _NARROWING_FIELDS)
                except InvalidFrontMatterFieldError as error:
                    raise self.build_error(str(error), line=line, field=self._prefix + key) from None
                self._add_unused_part(line, key, describe_unknown_field(key, known_fields))
            elif field.attribute == "color" and value is not None and _parse_agent_color(value) is None:
                # Nothing depends on a color: an unknown one must not make the agent unusable.
                warning = f"{value!r} is not a known color; use {', '.join(MEMBER_COLORS)} or #rrggbb"
                self._add_unused_part(line, key, warning)
            elif field.attribute == "permission_mode" and value == AUTO_MODE:
                self._add_unused_part(line, key, _AUTO_MODE_WARNING)
            elif value is not None:
                self._lines[field.attribute] = line or 0
                try:
                    values[field.attribute] = field.read(value)
                except InvalidFrontMatterFieldError as error:
                    raise self.build_error(str(error), line=line, field=self._prefix + key) from None
        return values

    def _add_unused_part(self, line: int | None, key: str, what: str) -> None:
        sentence = self.describe_problem(line, key, what)
        self.warnings.append(sentence)
        self._unused_parts.append(sentence)

    def build(self, values: Mapping[str, Any], *, line: int | None) -> ParsedAgentDefinition:
        for required in ("name", "description", "prompt"):
            if required not in values:
                raise self.build_error("it is missing", line=line, field=self._prefix + required)
        capabilities = _select_fields(values, AgentCapabilities)
        run = _select_fields(values, AgentRunRules)
        definition = AgentDefinition(
            **{name: value for name, value in values.items() if name not in capabilities | run},
            capabilities=AgentCapabilities(**capabilities),
            run=AgentRunRules(**run),
            source=replace(self._source, lines=self._lines),
        )
        return ParsedAgentDefinition(
            definition=definition,
            warnings=tuple(self.warnings),
            unused_parts=tuple(self._unused_parts),
        )


def _select_fields(values: Mapping[str, Any], kind: type[Struct]) -> dict[str, Any]:
    return {name: values[name] for name in kind.__struct_fields__ if name in values}


def _parse_required_text(value: Any) -> str:
    text = parse_text_field(value).strip()
    if not text:
        raise InvalidFrontMatterFieldError("it is empty")
    return text


def _parse_agent_type_name(value: Any) -> str:
    name = _parse_required_text(value)
    if len(name) > _MAX_NAME_LENGTH:
        raise InvalidFrontMatterFieldError(f"a name may have at most {_MAX_NAME_LENGTH} characters")
    if not name.isprintable() or any(character in "/\\:,()<>" for character in name) or name[0] in ".-*":
        raise InvalidFrontMatterFieldError(
            f"{name!r} is not a valid name; use letters, digits, '-', '_' and '.'"
        )
    return name


def find_agent_name_problem(name: str) -> str | None:
    """Return why a text cannot be an agent name; None if it can."""
    try:
        return (
            None
            if _parse_agent_type_name(name) == name
            else f"{name!r} is not a valid name because it starts or ends with a space"
        )
    except InvalidFrontMatterFieldError as error:
        return str(error)


def _parse_agent_description(value: Any) -> str:
    # People often write it on one line with escaped line breaks.
    return _parse_required_text(value).replace("\\n", "\n")


def _parse_agent_tools(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) and value.strip().casefold() in ("all", "all tools"):
        return (ALL_TOOLS,)
    return parse_tool_list_field(value)


def _parse_name_list(value: Any) -> tuple[str, ...]:
    return split_comma_separated_text(value) if isinstance(value, str) else parse_text_list_field(value)


def _parse_agent_model(value: Any) -> str | None:
    model = _parse_required_text(value)
    return None if model == INHERIT_MODEL else model


def _parse_dollars(value: Any) -> float:
    text = str(value)
    if isinstance(value, bool) or re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text) is None or float(text) <= 0:
        raise InvalidFrontMatterFieldError(f"expected a number of dollars greater than 0, got {value!r}")
    return float(text)


def _find_similar_choice(value: str, choices: tuple[str, ...]) -> list[str]:
    return get_close_matches(value, choices, n=1)


def _build_choice_parser(
    choices: tuple[str, ...],
    find_similar: Callable[[str, tuple[str, ...]], list[str]] = _find_similar_choice,
) -> Callable[[Any], str]:
    def parse_choice(value: Any) -> str:
        if value in choices and isinstance(value, str):
            return value
        matches = find_similar(str(value), choices)
        hint = f"; did you mean {matches[0]}?" if matches else ""
        raise InvalidFrontMatterFieldError(f"{value!r} is not one of {', '.join(choices)}{hint}")

    return parse_choice


_AUTO_MODE_WARNING = "auto mode is not available, so the agent has its parent's mode"


def _parse_agent_permission_mode(value: Any) -> str:
    return "default" if value == "manual" else _parse_permission_mode_choice(value)


_parse_permission_mode_choice = _build_choice_parser(PERMISSION_MODES, find_similar_modes)


def _parse_agent_color(value: Any) -> str | None:
    return value if isinstance(value, str) and (value in MEMBER_COLORS or _HEX.fullmatch(value)) else None


def _parse_agent_mcp_servers_field(value: Any) -> tuple[str | Mapping[str, Any], ...]:
    if isinstance(value, str):
        return split_comma_separated_text(value)
    if isinstance(value, Mapping):
        return tuple({name: config} for name, config in value.items())
    if not isinstance(value, list | tuple):
        raise InvalidFrontMatterFieldError(f"expected a list of servers, got {describe_field_value(value)}")
    for item in value:
        if not isinstance(item, str | Mapping) or not item:
            raise InvalidFrontMatterFieldError(
                f"expected the name of a server, or a name with its configuration, got {item!r}"
            )
    return tuple(value)


_FIELDS = {
    "name": _AgentDefinitionFieldSpec("name", _parse_agent_type_name),
    "description": _AgentDefinitionFieldSpec("description", _parse_agent_description),
    "tools": _AgentDefinitionFieldSpec("tools", _parse_agent_tools),
    "disallowedTools": _AgentDefinitionFieldSpec("disallowed_tools", _parse_agent_tools),
    "model": _AgentDefinitionFieldSpec("model", _parse_agent_model),
    "effort": _AgentDefinitionFieldSpec("effort", parse_effort_field),
    "permissionMode": _AgentDefinitionFieldSpec("permission_mode", _parse_agent_permission_mode),
    "background": _AgentDefinitionFieldSpec("background", parse_boolean_field),
    "isolation": _AgentDefinitionFieldSpec("isolation", _build_choice_parser(get_args(IsolationMode))),
    "resources": _AgentDefinitionFieldSpec("resources", parse_resource_request),
    "maxTurns": _AgentDefinitionFieldSpec("max_turns", parse_positive_integer_field),
    "color": _AgentDefinitionFieldSpec("color", parse_text_field),
    "memory": _AgentDefinitionFieldSpec("memory", _build_choice_parser(get_args(MemoryScope))),
    "requiredMcpServers": _AgentDefinitionFieldSpec("required_mcp_servers", _parse_name_list),
    "mcpServers": _AgentDefinitionFieldSpec("mcp_servers", _parse_agent_mcp_servers_field),
    "hooks": _AgentDefinitionFieldSpec("hooks", check_hooks_mapping),
    "skills": _AgentDefinitionFieldSpec("skills", _parse_name_list),
    "initialPrompt": _AgentDefinitionFieldSpec("initial_prompt", parse_text_field),
    "acceptance": _AgentDefinitionFieldSpec("acceptance", _parse_required_text),
    "maxBudgetUsd": _AgentDefinitionFieldSpec("max_budget_usd", _parse_dollars),
    "oneShot": _AgentDefinitionFieldSpec("one_shot", parse_boolean_field),
    "instructions": _AgentDefinitionFieldSpec("instructions", parse_boolean_field),
}
_NARROWING_FIELDS = ("disallowedTools", "permissionMode", "isolation", "resources")
"""Fields that must not be ignored because their names are misspelled."""
_JSON_FIELDS = {key: field for key, field in _FIELDS.items() if key != "name"} | {
    "prompt": _AgentDefinitionFieldSpec("prompt", parse_text_field)
}
DEFINITION_FIELDS = tuple(_FIELDS)
"""Field names in reading order."""
