"""Parser for agent definitions: Markdown with front matter, and the JSON form of the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, get_args

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.agents import Isolation
from shoal.core.definitions import (
    EFFORTS,
    EVERY,
    INHERIT,
    Definition,
    MemoryScope,
    Problem,
    Source,
)
from shoal.core.errors import BadDefinition
from shoal.core.permissions import Mode
from shoal.core.roster import COLORS
from shoal.wire.content import load
from shoal.wire.field_values import (
    Wrong,
    flag_in,
    pieces,
    shown,
    text_in,
    texts_in,
    tool_entries,
    unknown_field,
)
from shoal.wire.front_matter import Entry, Unreadable, read_page
from shoal.wire.json_lines import line_of

_HEX = re.compile(r"#[0-9a-fA-F]{6}")
_LONGEST_NAME = 100


class Parsed(Struct, frozen=True, kw_only=True):
    """A definition and warnings about its source text."""

    definition: Definition
    warnings: tuple[str, ...] = ()


class _Field(NamedTuple):
    attribute: str
    read: Callable[[Any], Any]


def read_definition(text: str, source: Source, *, name: str) -> Parsed:
    """Parse a definition; `name` is the file name, used in errors if the definition has no name.

    Raises `InvalidAgentDefinition` with the file, the line and the field.
    """
    try:
        page = read_page(text, tuple(_FIELDS))
    except Unreadable as error:
        problem = Problem(what=error.what, name=name, source=source, line=error.line, field=error.key)
        raise BadDefinition(problem) from error
    told = next((entry.value for entry in page.entries if entry.key == "name"), None)
    maker = _Maker(source, told if isinstance(told, str) and told else name)
    maker.warnings += [maker.place(remark.line, remark.key, remark.text) for remark in page.remarks]
    values = maker.values(page.entries, _FIELDS)
    if not page.body:
        maker.warnings.append(maker.place(None, None, "there is no text below the front matter: no prompt"))
    return maker.made({**values, "prompt": page.body}, line=1)


def read_given(given: str | Mapping[str, Any], *, path: Path | None = None) -> tuple[Parsed, ...]:
    """Parse the JSON form, an object of names and their fields; raise `InvalidAgentDefinition`."""
    source = Source(kind="flag", path=path)
    text = given if isinstance(given, str) else None
    try:
        raw = load(given.encode("utf-8", "surrogatepass")) if isinstance(given, str) else given
    except ValueError as error:
        what = f"not valid JSON: {getattr(error, 'msg', error)}"
        line = getattr(error, "lineno", None)
        raise BadDefinition(Problem(what=what, name="", source=source, line=line)) from error
    if not isinstance(raw, Mapping):
        what = 'a JSON object is expected, as {"reviewer": {"description": "…", "prompt": "…"}}'
        raise BadDefinition(Problem(what=what, name="", source=source))
    return tuple(_from_mapping(source, name, fields, text) for name, fields in raw.items())


def _from_mapping(source: Source, name: str, fields: Any, text: str | None) -> Parsed:
    def line(*keys: str) -> int | None:
        return None if text is None or "\n" not in text else line_of(text, keys)

    maker = _Maker(source, name, prefix=f"{name}.")
    if not isinstance(fields, Mapping):
        raise maker.bad("an object with its fields is expected", line=line(name), field=name)
    values = [(key, value, line(name, key)) for key, value in fields.items()]
    found = maker.values_of(values, _JSON_FIELDS)
    try:
        found["name"] = _name(name)
    except Wrong as wrong:
        raise maker.bad(str(wrong), line=line(name), field=name) from None
    return maker.made(found, line=line(name))


class _Maker:
    """Builds one definition: locates problems and collects warnings."""

    def __init__(self, source: Source, name: str, *, prefix: str = "") -> None:
        self._source = source
        self._name = name
        self._prefix = prefix
        self._lines: dict[str, int] = {}
        self.warnings: list[str] = []

    def bad(self, what: str, *, line: int | None, field: str) -> BadDefinition:
        problem = Problem(what=what, name=self._name, source=self._source, line=line, field=field)
        return BadDefinition(problem)

    def place(self, line: int | None, key: str | None, what: str) -> str:
        field = None if key is None else self._prefix + key
        return str(Problem(what=what, name=self._name, source=self._source, line=line, field=field))

    def values(self, entries: Iterable[Entry], known: Mapping[str, _Field]) -> dict[str, Any]:
        return self.values_of([(entry.key, entry.value, entry.line) for entry in entries], known)

    def values_of(
        self, given: Iterable[tuple[str, Any, int | None]], known: Mapping[str, _Field]
    ) -> dict[str, Any]:
        """Parse the fields; a field without a value keeps its default."""
        values: dict[str, Any] = {}
        for key, value, line in given:
            field = known.get(key)
            if field is None:
                self.warnings.append(self.place(line, key, unknown_field(key, known)))
            elif field.attribute == "color" and value is not None and _colour(value) is None:
                # Nothing depends on a colour: an unknown one must not make the agent unusable.
                told = f"{value!r} is no colour that can be shown; there are {', '.join(COLORS)}, #rrggbb"
                self.warnings.append(self.place(line, key, told))
            elif value is not None:
                self._lines[field.attribute] = line or 0
                try:
                    values[field.attribute] = field.read(value)
                except Wrong as wrong:
                    raise self.bad(str(wrong), line=line, field=self._prefix + key) from None
        return values

    def made(self, values: Mapping[str, Any], *, line: int | None) -> Parsed:
        for needed in ("name", "description", "prompt"):
            if needed not in values:
                raise self.bad("it is missing", line=line, field=self._prefix + needed)
        source = replace(self._source, lines=self._lines)
        return Parsed(definition=Definition(**values, source=source), warnings=tuple(self.warnings))


def _words(value: Any) -> str:
    text = text_in(value).strip()
    if not text:
        raise Wrong("it is empty")
    return text


def _name(value: Any) -> str:
    name = _words(value)
    if len(name) > _LONGEST_NAME:
        raise Wrong(f"a name has at most {_LONGEST_NAME} characters")
    if not name.isprintable() or any(character in "/\\:,()<>" for character in name) or name[0] in ".-*":
        raise Wrong(f"{name!r} cannot be a name: letters, digits, '-', '_' and '.' make one")
    return name


def name_problem(name: str) -> str | None:
    """Return why a text cannot be an agent name; None if it can."""
    try:
        return None if _name(name) == name else f"{name!r} cannot be a name: blanks stand around it"
    except Wrong as wrong:
        return str(wrong)


def _description(value: Any) -> str:
    # People often write it on one line with escaped line breaks.
    return _words(value).replace("\\n", "\n")


def _tools(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) and value.strip().casefold() in ("all", "all tools"):
        return (EVERY,)
    return tool_entries(value)


def _names(value: Any) -> tuple[str, ...]:
    return pieces(value) if isinstance(value, str) else texts_in(value)


def _model(value: Any) -> str | None:
    model = _words(value)
    return None if model == INHERIT else model


def _effort(value: Any) -> str | int:
    if isinstance(value, str) and value in EFFORTS:
        return value
    try:
        return _count(value)
    except Wrong:
        raise Wrong(f"{value!r} is neither one of {', '.join(EFFORTS)} nor a number of tokens") from None


def _count(value: Any) -> int:
    text = str(value)
    if isinstance(value, bool) or re.fullmatch(r"[0-9]{1,12}", text) is None or int(text) == 0:
        raise Wrong(f"a whole number from 1 on is expected, not {value!r}")
    return int(text)


def _dollars(value: Any) -> float:
    text = str(value)
    if isinstance(value, bool) or re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text) is None or float(text) <= 0:
        raise Wrong(f"a number of dollars above 0 is expected, not {value!r}")
    return float(text)


def _one_of(choices: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value in choices and isinstance(value, str):
            return value
        near = get_close_matches(str(value), choices, n=1)
        meant = f"; is {near[0]} meant?" if near else ""
        raise Wrong(f"{value!r} is not one of {', '.join(choices)}{meant}")

    return read


def _colour(value: Any) -> str | None:
    return value if isinstance(value, str) and (value in COLORS or _HEX.fullmatch(value)) else None


def _servers(value: Any) -> tuple[str | Mapping[str, Any], ...]:
    if isinstance(value, str):
        return pieces(value)
    if isinstance(value, Mapping):
        return tuple({name: config} for name, config in value.items())
    if not isinstance(value, list | tuple):
        raise Wrong(f"a list of servers is expected, not {shown(value)}")
    for item in value:
        if not isinstance(item, str | Mapping) or not item:
            raise Wrong(f"a server is a name, or a name with its configuration; {item!r} is neither")
    return tuple(value)


def _hooks(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Wrong(f"a mapping of events to hooks is expected, not {shown(value)}")
    for event, hooks in value.items():
        if not isinstance(hooks, list | tuple):
            raise Wrong(f"a list of hooks is expected for {event}, not {shown(hooks)}")
    return value


_FIELDS = {
    "name": _Field("name", _name),
    "description": _Field("description", _description),
    "tools": _Field("tools", _tools),
    "disallowedTools": _Field("disallowed_tools", _tools),
    "model": _Field("model", _model),
    "effort": _Field("effort", _effort),
    "permissionMode": _Field("permission_mode", _one_of(get_args(Mode))),
    "background": _Field("background", flag_in),
    "isolation": _Field("isolation", _one_of(get_args(Isolation))),
    "maxTurns": _Field("max_turns", _count),
    "color": _Field("color", text_in),
    "memory": _Field("memory", _one_of(get_args(MemoryScope))),
    "requiredMcpServers": _Field("required_mcp_servers", _names),
    "mcpServers": _Field("mcp_servers", _servers),
    "hooks": _Field("hooks", _hooks),
    "skills": _Field("skills", _names),
    "initialPrompt": _Field("initial_prompt", text_in),
    "acceptance": _Field("acceptance", _words),
    "maxBudgetUsd": _Field("max_budget_usd", _dollars),
    "oneShot": _Field("one_shot", flag_in),
    "instructions": _Field("instructions", flag_in),
}
_JSON_FIELDS = {key: field for key, field in _FIELDS.items() if key != "name"} | {
    "prompt": _Field("prompt", text_in)
}
FIELDS = tuple(_FIELDS)
"""Field names in reading order."""
