"""Parser for skills and commands: `SKILL.md` of the open standard, and Markdown files of commands.

Deviations from recommendations of the standard are warnings; unusable content is an error with its line.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.agents.agent_definitions import INHERIT_MODEL, DefinitionProblem, DefinitionSource
from shoal.core.errors import InvalidAgentDefinition
from shoal.core.extensions.skills import Skill, SkillExecution, SkillInformation, SkillKind
from shoal.core.text.lazy_patterns import compile_on_first_use
from shoal.wire.field_parsers import (
    InvalidFrontMatterFieldError,
    check_hooks_mapping,
    describe_field_value,
    describe_unknown_field,
    parse_boolean_field,
    parse_effort_field,
    parse_text_field,
    parse_text_list_field,
    parse_tool_list_field,
    refuse_misspelled_field,
)
from shoal.wire.front_matter import (
    FrontMatterDocument,
    FrontMatterEntry,
    InvalidFrontMatterError,
    parse_front_matter,
)

MAX_NAME_LENGTH = 64
MAX_DESCRIPTION_LENGTH = 1_024
_MAX_COMPATIBILITY_LENGTH = 500
_MAX_INVOKED_NAME_LENGTH = 200
_MAX_TITLE_LENGTH = 100


_NUMBERED_ARGUMENT = compile_on_first_use(r"\$(?:ARGUMENTS\[(\d{1,2})\]|(\d{1,2}))(?!\w)")
_ARGUMENT_HINT = re.compile(r"^(argument-hint:[ \t]+)(\[.*)$", re.MULTILINE)
"""Commonly written as `[file] [page]`, which is not valid YAML."""


class ParsedSkill(Struct, frozen=True, kw_only=True):
    """A skill and warnings about its source text."""

    skill: Skill
    warnings: tuple[str, ...] = ()
    unused_parts: tuple[str, ...] = ()
    """Subset of the warnings, about parts without effect."""
    has_replaced_bytes: bool = False

    @property
    def source(self) -> DefinitionSource:
        return self.skill.source


def parse_skill(text: str, source: DefinitionSource, *, name: str) -> ParsedSkill:
    """Parse a skill; `name` is its directory name. Front matter is optional.

    Raises `InvalidAgentDefinition` with file, line and field.
    """
    builder = _SkillBuilder(source, name)
    page = builder.parse_optional_front_matter(text)
    values = builder.parse_field_values(page.entries, "skill")
    if not values.get("description"):
        values["description"] = _find_first_paragraph(page.body)
        if not values["description"]:
            raise builder.build_error(
                "missing; describe what the skill does and when to use it", 1, "description"
            )
        builder.add_warning(1, "description", "missing; the first paragraph of the text is used")
    builder.check_or_default_name(values, name)
    builder.warn_about_long_fields(values)
    if not page.body:
        builder.add_warning(None, None, "there is no text after the front matter")
    return builder.build(text, page.body, values)


def parse_slash_command_file(text: str, source: DefinitionSource, *, name: str) -> ParsedSkill:
    """Parse a command invoked by `name`; front matter is optional. Raises `InvalidAgentDefinition`."""
    builder = _SkillBuilder(source, name)
    page = builder.parse_optional_front_matter(text)
    if problem := find_skill_name_problem(name):
        raise builder.build_error(problem, None, None)
    values = builder.parse_field_values(page.entries, "command")
    if not page.body:
        raise builder.build_error("there is no text after the front matter", None, None)
    if not values.get("description"):
        values["description"] = page.body.splitlines()[0].lstrip("# ").strip()[:_MAX_TITLE_LENGTH] or name
    return builder.build(text, page.body, {**values, "name": name, "kind": "command"})


def find_skill_name_problem(name: str) -> str | None:
    """Return why a text cannot be the name of a skill or command; None if it can."""
    if not name or len(name) > _MAX_INVOKED_NAME_LENGTH:
        return f"a name may have 1 to {_MAX_INVOKED_NAME_LENGTH} characters"
    has_forbidden = any(character.isspace() or character in "/\\,()<>`\"'$!@" for character in name)
    if has_forbidden or not name.isprintable() or name[0] in ".-*:":
        return f"{name!r} is not a valid name; use letters, digits and '-'"
    return None


def skips_first_argument(body: str, argument_names: Sequence[str] = ()) -> bool:
    """Return True if a body with `$1` but without the first argument may count its arguments from 1.

    `$ARGUMENTS[1]` and `argument_names` always count from 0.
    """
    matches = [*_NUMBERED_ARGUMENT.finditer(body)]
    uses_first = any(int(match[1] or match[2]) == 0 for match in matches)
    return not argument_names and not uses_first and any(match[2] for match in matches)


def _find_first_paragraph(body: str) -> str:
    """Return the first paragraph on one line; a heading counts only if there is nothing else."""
    lines = [line.strip() for line in body.splitlines()]
    start = next((number for number, line in enumerate(lines) if line and not line.startswith("#")), None)
    if start is None:
        return body.strip().partition("\n")[0].lstrip("# ")[:MAX_DESCRIPTION_LENGTH]
    end = next((number for number in range(start, len(lines)) if not lines[number]), len(lines))
    return " ".join(lines[start:end])[:MAX_DESCRIPTION_LENGTH]


class _SkillBuilder:
    """Builds one skill: locates problems and collects warnings."""

    def __init__(self, source: DefinitionSource, name: str) -> None:
        self._source = source
        self._name = name
        self._lines: dict[str, int] = {}
        self.warnings: list[str] = []
        self._unused_parts: list[str] = []

    def parse_optional_front_matter(self, text: str) -> FrontMatterDocument:
        text = text.removeprefix("\ufeff")
        first_line = next((line for line in text.splitlines() if line.strip()), "")
        if not first_line:
            raise self.build_error("the file is empty", 1, None)
        if first_line.rstrip() == "---":
            return self._parse_front_matter_page(text)
        return FrontMatterDocument(entries=(), body=text.strip())

    def _parse_front_matter_page(self, text: str) -> FrontMatterDocument:
        try:
            page = parse_front_matter(_ARGUMENT_HINT.sub(_quote_argument_hint, text, count=1), tuple(_FIELDS))
        except InvalidFrontMatterError as error:
            raise self.build_error(error.what, error.line, error.key) from error
        for warning in page.warnings:
            self.add_warning(warning.line, warning.key, warning.text)
        return page

    def build_error(self, what: str, line: int | None, field: str | None) -> InvalidAgentDefinition:
        return InvalidAgentDefinition(self._build_problem(what, line, field))

    def add_warning(self, line: int | None, field: str | None, what: str) -> None:
        self.warnings.append(str(self._build_problem(what, line, field)))

    def _add_unused_part(self, entry: FrontMatterEntry, what: str) -> None:
        self.add_warning(entry.line, entry.key, what)
        self._unused_parts.append(self.warnings[-1])

    def parse_field_values(self, entries: Iterable[FrontMatterEntry], kind: SkillKind) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for entry in entries:
            field = _FIELDS.get(entry.key)
            if entry.key in UNUSED_SKILL_FIELDS:
                continue
            if field is None:
                try:
                    refuse_misspelled_field(entry.key, _NARROWING_FIELDS)
                except InvalidFrontMatterFieldError as error:
                    raise self.build_error(str(error), entry.line, entry.key) from None
            if field is None or (kind == "command" and entry.key == "name"):
                self._add_unused_part(entry, describe_unknown_field(entry.key, _FIELDS))
            elif entry.value is not None:
                attribute, parse = field
                try:
                    values[attribute] = parse(entry.value)
                except InvalidFrontMatterFieldError as error:
                    if entry.key == "effort":
                        self._add_unused_part(entry, f"{error}; it is ignored")
                        continue
                    raise self.build_error(str(error), entry.line, entry.key) from None
                self._lines[attribute] = entry.line
        return values

    def check_or_default_name(self, values: dict[str, Any], directory: str) -> None:
        if "name" not in values:
            self.add_warning(1, "name", f"missing; the name of the directory, {directory!r}, is used")
            values["name"] = directory
        name = values["name"]
        if problem := find_skill_name_problem(name):
            raise self.build_error(problem, self._lines.get("name"), "name")
        if ":" in name:
            raise self.build_error(
                f"{name!r} is not a valid name because ':' separates a plug-in from its skill", 1, "name"
            )
        is_plain = all(character.isalnum() or character == "-" for character in name)
        if not is_plain or name != name.lower() or len(name) > MAX_NAME_LENGTH:
            warning = (
                f"other programs may reject it; use up to {MAX_NAME_LENGTH} lowercase letters, digits and '-'"
            )
            self.add_warning(self._lines.get("name"), "name", warning)
        if name != unicodedata.normalize("NFKC", directory):
            warning = f"other programs expect the name of the directory, {directory!r}"
            self.add_warning(self._lines.get("name"), "name", warning)

    def warn_about_long_fields(self, values: dict[str, Any]) -> None:
        limits = (("description", MAX_DESCRIPTION_LENGTH), ("compatibility", _MAX_COMPATIBILITY_LENGTH))
        for field, max_length in limits:
            if len(values.get(field, "")) > max_length:
                self.add_warning(self._lines.get(field), field, f"it has more than {max_length:,} characters")

    def build(self, text: str, body: str, values: Mapping[str, Any]) -> ParsedSkill:
        information = {key: values[key] for key in _INFORMATION_FIELDS if key in values}
        execution = {key: values[key] for key in _EXECUTION_FIELDS if key in values}
        fields = {
            key: value
            for key, value in values.items()
            if key not in (*_INFORMATION_FIELDS, *_EXECUTION_FIELDS)
        }
        if when_to_use := fields.pop("when_to_use", ""):
            fields["description"] = f"{fields['description']} {when_to_use}"
        if skips_first_argument(body, values.get("argument_names", ())):
            self.add_warning(None, None, "it uses $1 but not $0, which is the first argument")
        skill = Skill(
            **fields,
            information=SkillInformation(**information),
            execution=SkillExecution(**execution),
            body=body,
            source=replace(self._source, lines=self._lines),
            digest=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        )
        return ParsedSkill(skill=skill, warnings=tuple(self.warnings), unused_parts=tuple(self._unused_parts))

    def _build_problem(self, problem: str, line: int | None, field: str | None) -> DefinitionProblem:
        return DefinitionProblem(what=problem, name=self._name, source=self._source, line=line, field=field)


def _parse_stripped_text(value: Any) -> str:
    return parse_text_field(value).strip()


def _parse_skill_name(value: Any) -> str:
    return unicodedata.normalize("NFKC", _parse_stripped_text(value))


def _quote_argument_hint(hint: re.Match[str]) -> str:
    return hint[1] + json.dumps(hint[2].strip(), ensure_ascii=False)


def _parse_string_mapping_field(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidFrontMatterFieldError(
            f"expected a mapping of strings to strings, got {describe_field_value(value)}"
        )
    return {str(key): _format_scalar(each) for key, each in value.items()}


def _format_scalar(value: object) -> str:
    """Return the text of a scalar; words of YAML stay as they are usually written."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def _parse_negated_flag(value: Any) -> bool:
    return not parse_boolean_field(value)


def _parse_fork_context(value: Any) -> bool:
    if value in ("fork", "inline"):
        return bool(value == "fork")
    raise InvalidFrontMatterFieldError(f"expected fork, got {describe_field_value(value)}")


def _parse_skill_model(value: Any) -> str | None:
    return None if value == INHERIT_MODEL else _parse_stripped_text(value) or None


def _parse_argument_names(value: Any) -> tuple[str, ...]:
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else parse_text_list_field(value)


_NARROWING_FIELDS = ("disallowed-tools", "disable-model-invocation")
"""Fields that must not be ignored because their names are misspelled."""
UNUSED_SKILL_FIELDS = ("paths", "background", "shell", "version")
"""Fields of other programs that have no effect here and need no warning."""
_INFORMATION_FIELDS = SkillInformation.__struct_fields__
_EXECUTION_FIELDS = SkillExecution.__struct_fields__
_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "name": ("name", _parse_skill_name),
    "description": ("description", _parse_stripped_text),
    "license": ("license", _parse_stripped_text),
    "compatibility": ("compatibility", _parse_stripped_text),
    "metadata": ("metadata", _parse_string_mapping_field),
    "allowed-tools": ("allowed_tools", parse_tool_list_field),
    "disallowed-tools": ("denied_tools", parse_tool_list_field),
    "context": ("forks", _parse_fork_context),
    "agent": ("agent", _parse_stripped_text),
    "model": ("model", _parse_skill_model),
    "effort": ("effort", parse_effort_field),
    "hooks": ("hooks", check_hooks_mapping),
    "when_to_use": ("when_to_use", _parse_stripped_text),
    "arguments": ("argument_names", _parse_argument_names),
    "argument-hint": ("argument_hint", _parse_stripped_text),
    "disable-model-invocation": ("for_model", _parse_negated_flag),
    "user-invocable": ("for_person", parse_boolean_field),
}
