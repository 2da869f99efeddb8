"""Parser for team templates: Markdown with front matter and a body for the lead, or TOML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from msgspec.structs import replace

from shoal.core.agents.agent_definitions import INHERIT_MODEL
from shoal.core.agents.subagents import IsolationMode, ResourceRequest
from shoal.core.errors import InvalidTeamTemplate
from shoal.core.teams.team_templates import (
    FieldPath,
    RoleMode,
    TeamTemplate,
    TeamTemplateProblem,
    TeamTemplateRole,
    TeamTemplateSource,
    TeamTemplateTask,
    find_team_template_problems,
)
from shoal.wire.field_parsers import InvalidFrontMatterFieldError
from shoal.wire.front_matter import (
    InvalidFrontMatterError,
    compose_yaml,
    parse_front_matter,
    split_front_matter,
)
from shoal.wire.resource_codec import parse_resource_request

if TYPE_CHECKING:
    import yaml

Choice = TypeVar("Choice")
_TOP_KEYS = ("name", "description", "roles", "tasks", "budget")
_TOML_KEYS = (*_TOP_KEYS, "prompt")
_ROLE_KEYS = ("name", "type", "model", "prompt", "mode", "isolation", "resources", "count")
_TASK_KEYS = ("key", "subject", "description", "activeForm", "blockedBy", "owner")
_BUDGET_KEYS = ("usd", "tokens")
_TOML_TABLE = re.compile(r"\s*(\[\[?)\s*([\w-]+)\s*\]\]?\s*(?:#.*)?")
_TOML_KEY = re.compile(r"\s*([\w-]+)\s*=")
_ERROR_LINE = re.compile(r"line (\d+)")


def parse_team_template(text: str, origin: TeamTemplateSource) -> TeamTemplate:
    """Parse a template; raise `InvalidTeamTemplate` with the file and the line."""
    if origin.path.suffix == ".toml":
        raw, origin = _parse_toml_template(text, origin)
    else:
        raw, origin = _parse_markdown_template(text, origin)
    template = _TeamTemplateBuilder(origin).build(raw)
    problem = next(find_team_template_problems(template), None)
    if problem is not None:
        raise InvalidTeamTemplate(problem)
    return template


def _parse_markdown_template(
    text: str, origin: TeamTemplateSource
) -> tuple[dict[str, Any], TeamTemplateSource]:
    try:
        page = parse_front_matter(text, _TOP_KEYS)
    except InvalidFrontMatterError as error:
        field_path: FieldPath = () if error.key is None else (error.key,)
        located_origin = replace(origin, lines={field_path: error.line})
        raise InvalidTeamTemplate(
            TeamTemplateProblem(what=error.what, source=located_origin, field_path=field_path)
        ) from error
    lines: dict[FieldPath, int] = {(): 1}
    lines |= {(entry.key,): entry.line for entry in page.entries}
    lines |= dict(_find_front_matter_key_lines(text))
    raw: dict[str, Any] = {entry.key: entry.value for entry in page.entries if entry.value is not None}
    if "prompt" in raw:
        problem = TeamTemplateProblem(
            what="write the lead's prompt after the front matter, not in it",
            source=replace(origin, lines=lines),
            field_path=("prompt",),
        )
        raise InvalidTeamTemplate(problem)
    return {**raw, "prompt": page.body}, replace(origin, lines=lines)


def _find_front_matter_key_lines(text: str) -> Iterator[tuple[FieldPath, int]]:
    """Yield the line of every key in the front matter if all of it is valid YAML."""
    try:
        header, start, _ = split_front_matter(text)
        node = compose_yaml("\n".join(header), start)
    except InvalidFrontMatterError:
        return
    if node is not None:
        yield from _walk_yaml_key_lines(node, (), start)


def _walk_yaml_key_lines(
    node: yaml.Node, field_path: FieldPath, start: int
) -> Iterator[tuple[FieldPath, int]]:
    import yaml

    # A template has only two levels of lists and mappings: deeper keys get the line of their parent.
    if len(field_path) > 3:
        return
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*field_path, str(key.value)), start + key.start_mark.line
            yield from _walk_yaml_key_lines(value, (*field_path, str(key.value)), start)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield (*field_path, number), start + item.start_mark.line
            yield from _walk_yaml_key_lines(item, (*field_path, number), start)


def _parse_toml_template(text: str, origin: TeamTemplateSource) -> tuple[dict[str, Any], TeamTemplateSource]:
    import tomllib

    lines: dict[FieldPath, int] = {(): 1}
    try:
        raw = tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except (ValueError, RecursionError) as error:
        line_match = _ERROR_LINE.search(str(error))
        located_origin = replace(origin, lines={(): int(line_match[1])} if line_match else lines)
        raise InvalidTeamTemplate(
            TeamTemplateProblem(what=f"it is not valid TOML: {error}", source=located_origin)
        ) from error
    return raw, replace(origin, lines=lines | dict(_find_toml_key_lines(text)))


def _find_toml_key_lines(text: str) -> Iterator[tuple[FieldPath, int]]:
    """Yield the lines of the tables and their keys; the content of multi-line strings is skipped."""
    field_path: FieldPath = ()
    table_counts: dict[str, int] = {}
    closing_quotes = ""
    for number, line in enumerate(text.splitlines(), 1):
        if closing_quotes:
            closing_quotes = "" if closing_quotes in line else closing_quotes
            continue
        if (table := _TOML_TABLE.fullmatch(line)) is not None:
            field_path = (table[2],)
            if table[1] == "[[":
                field_path = (table[2], table_counts.setdefault(table[2], 0))
                table_counts[table[2]] += 1
            yield field_path, number
        elif (key := _TOML_KEY.match(line)) is not None:
            yield (*field_path, key[1]), number
            value = line[key.end() :].strip()
            closing_quotes = next(
                (each for each in ('"""', "'''") if value.startswith(each) and each not in value[3:]), ""
            )


class _TeamTemplateBuilder:
    """Builds one template and locates its mistakes."""

    def __init__(self, origin: TeamTemplateSource) -> None:
        self._origin = origin

    def build(self, raw: Mapping[str, Any]) -> TeamTemplate:
        self._reject_unknown_keys(raw, _TOML_KEYS, ())
        budget = self._check_mapping(raw.get("budget", {}), ("budget",))
        self._reject_unknown_keys(budget, _BUDGET_KEYS, ("budget",))
        name = self._check_text(raw.get("name", self._origin.path.stem), ("name",))
        return TeamTemplate(
            name=name,
            description=self._require_text(raw, "description", ()),
            prompt=self._check_text(raw.get("prompt", ""), ("prompt",)).strip(),
            source=self._origin,
            roles=tuple(
                self._build_role(each, ("roles", number))
                for number, each in enumerate(self._check_list(raw.get("roles", []), ("roles",)))
            ),
            tasks=tuple(
                self._build_task(each, ("tasks", number))
                for number, each in enumerate(self._check_list(raw.get("tasks", []), ("tasks",)))
            ),
            budget_usd=self._check_dollars(budget.get("usd"), ("budget", "usd")),
            budget_tokens=self._check_count(budget.get("tokens"), ("budget", "tokens")),
        )

    def _build_role(self, value: Any, field_path: FieldPath) -> TeamTemplateRole:
        raw = self._check_mapping(value, field_path)
        self._reject_unknown_keys(raw, _ROLE_KEYS, field_path)
        model = self._get_optional_text(raw, "model", field_path)
        return TeamTemplateRole(
            name=self._require_text(raw, "name", field_path),
            prompt=self._require_text(raw, "prompt", field_path),
            kind=self._get_optional_text(raw, "type", field_path),
            model=None if model == INHERIT_MODEL else model,
            mode=self._check_choice(raw.get("mode"), get_args(RoleMode), (*field_path, "mode")),
            isolation=self._check_choice(
                raw.get("isolation"), get_args(IsolationMode), (*field_path, "isolation")
            ),
            resources=self._check_resources(raw.get("resources"), (*field_path, "resources")),
            count=self._check_count(raw.get("count"), (*field_path, "count")) or 1,
        )

    def _build_task(self, value: Any, field_path: FieldPath) -> TeamTemplateTask:
        raw = self._check_mapping(value, field_path)
        self._reject_unknown_keys(raw, _TASK_KEYS, field_path)
        waits_for = raw.get("blockedBy", [])
        if isinstance(waits_for, str):
            waits_for = [part.strip() for part in waits_for.split(",") if part.strip()]
        number = field_path[-1]
        assert isinstance(number, int)
        return TeamTemplateTask(
            key=self._get_optional_text(raw, "key", field_path) or str(number + 1),
            subject=" ".join(self._require_text(raw, "subject", field_path).split()),
            description=self._get_optional_text(raw, "description", field_path) or "",
            active_form=self._get_optional_text(raw, "activeForm", field_path) or "",
            blocked_by=tuple(
                dict.fromkeys(
                    self._check_text(str(key) if isinstance(key, int) else key, (*field_path, "blockedBy"))
                    for key in self._check_list(waits_for, (*field_path, "blockedBy"))
                )
            ),
            owner=self._get_optional_text(raw, "owner", field_path),
        )

    def _build_error(self, problem: str, field_path: FieldPath) -> InvalidTeamTemplate:
        return InvalidTeamTemplate(
            TeamTemplateProblem(what=problem, source=self._origin, field_path=field_path)
        )

    def _reject_unknown_keys(
        self, raw: Mapping[str, Any], known_keys: Sequence[str], field_path: FieldPath
    ) -> None:
        for key in raw:
            if key not in known_keys:
                matches = get_close_matches(str(key), known_keys, n=1)
                hint = f"did you mean {matches[0]}?" if matches else f"known keys: {', '.join(known_keys)}"
                raise self._build_error(f"unknown key; {hint}", (*field_path, str(key)))

    def _require_text(self, raw: Mapping[str, Any], key: str, field_path: FieldPath) -> str:
        text = self._get_optional_text(raw, key, field_path)
        if text is None:
            raise self._build_error(f"`{key}` is missing", field_path)
        return text

    def _get_optional_text(self, raw: Mapping[str, Any], key: str, field_path: FieldPath) -> str | None:
        value = raw.get(key)
        if key == "key" and isinstance(value, int):
            value = str(value)
        if value is None:
            return None
        text = self._check_text(value, (*field_path, key)).strip()
        if not text:
            raise self._build_error("it is empty", (*field_path, key))
        return text

    def _check_text(self, value: Any, field_path: FieldPath) -> str:
        if not isinstance(value, str):
            raise self._build_error(f"expected a string, got {value!r}", field_path)
        return value

    def _check_mapping(self, value: Any, field_path: FieldPath) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise self._build_error(f"expected a mapping, got {value!r}", field_path)
        return value

    def _check_list(self, value: Any, field_path: FieldPath) -> Sequence[Any]:
        if not isinstance(value, list):
            raise self._build_error(f"expected a list, got {value!r}", field_path)
        return value

    def _check_choice(self, value: Any, choices: tuple[Choice, ...], field_path: FieldPath) -> Choice | None:
        if value is None:
            return None
        for choice in choices:
            if choice == value:
                return choice
        raise self._build_error(f"{value!r} is not one of {', '.join(map(str, choices))}", field_path)

    def _check_resources(self, value: Any, field_path: FieldPath) -> ResourceRequest | None:
        if value is None:
            return None
        try:
            return parse_resource_request(value)
        except InvalidFrontMatterFieldError as error:
            raise self._build_error(str(error), field_path) from None

    def _check_count(self, value: Any, field_path: FieldPath) -> int | None:
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 10**12:
            raise self._build_error(f"expected an integer greater than 0, got {value!r}", field_path)
        return value

    def _check_dollars(self, value: Any, field_path: FieldPath) -> float | None:
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 10**9:
            raise self._build_error(f"expected a dollar amount greater than 0, got {value!r}", field_path)
        return float(value)
