"""Parser for skills and commands: `SKILL.md` of the open standard, and Markdown files of commands.

Deviations from recommendations of the standard are warnings; unusable content is an error with its line.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.definitions import INHERIT, Problem, Source
from shoal.core.errors import BadDefinition
from shoal.core.skills import Skill, SkillKind
from shoal.wire.field_values import Wrong, flag_in, shown, text_in, tool_entries, unknown_field
from shoal.wire.front_matter import Entry, Page, Unreadable, read_page

LONGEST_NAME = 64
LONGEST_DESCRIPTION = 1_024
_LONGEST_COMPATIBILITY = 500
_LONGEST_SHOWN_NAME = 200
_LONGEST_TITLE = 100


_HINT = re.compile(r"^(argument-hint:[ \t]+)(\[.*)$", re.MULTILINE)
"""Commonly written as `[file] [page]`, which is not valid YAML."""


class ParsedSkill(Struct, frozen=True, kw_only=True):
    """A skill and warnings about its source text."""

    skill: Skill
    warnings: tuple[str, ...] = ()


def read_skill(text: str, source: Source, *, name: str) -> ParsedSkill:
    """Parse a skill; `name` is its directory name.

    Raises `InvalidAgentDefinition` with file, line and field.
    """
    making = _Making(source, name)
    page = making.page(text)
    values = making.values(page.entries, "skill")
    if not values.get("description"):
        raise making.bad("it is missing: say what the skill does and when to use it", 1, "description")
    making.remark_name(values, name)
    making.remark_lengths(values)
    if not page.body:
        making.warn(None, None, "there is no text below the front matter: it says nothing")
    return making.made(text, page.body, values)


def read_command(text: str, source: Source, *, name: str) -> ParsedSkill:
    """Parse a command invoked by `name`; front matter is optional. Raises `InvalidAgentDefinition`."""
    making = _Making(source, name)
    first = next((line for line in text.removeprefix("\ufeff").splitlines() if line.strip()), "")
    if not first:
        raise making.bad("the file is empty", 1, None)
    page = making.page(text) if first.rstrip() == "---" else Page(entries=(), body=text.strip())
    if wrong := name_problem(name):
        raise making.bad(wrong, None, None)
    values = making.values(page.entries, "command")
    if not page.body:
        raise making.bad("there is no text below the front matter: it says nothing", None, None)
    if not values.get("description"):
        values["description"] = page.body.splitlines()[0].lstrip("# ").strip()[:_LONGEST_TITLE] or name
    return making.made(text, page.body, {**values, "name": name, "kind": "command"})


def name_problem(name: str) -> str | None:
    """Return why a text cannot be the name of a skill or command; None if it can."""
    if not name or len(name) > _LONGEST_SHOWN_NAME:
        return f"a name has from 1 to {_LONGEST_SHOWN_NAME} characters"
    bad = any(character.isspace() or character in "/\\,()<>`\"'$!@" for character in name)
    if bad or not name.isprintable() or name[0] in ".-*:":
        return f"{name!r} cannot be a name: letters, digits and '-' make one"
    return None


class _Making:
    """Builds one skill: locates problems and collects warnings."""

    def __init__(self, source: Source, name: str) -> None:
        self._source = source
        self._name = name
        self._lines: dict[str, int] = {}
        self.warnings: list[str] = []

    def page(self, text: str) -> Page:
        try:
            page = read_page(_HINT.sub(_quoted, text, count=1), tuple(_FIELDS))
        except Unreadable as error:
            raise self.bad(error.what, error.line, error.key) from error
        for remark in page.remarks:
            self.warn(remark.line, remark.key, remark.text)
        return page

    def bad(self, what: str, line: int | None, field: str | None) -> BadDefinition:
        return BadDefinition(self._problem(what, line, field))

    def warn(self, line: int | None, field: str | None, what: str) -> None:
        self.warnings.append(str(self._problem(what, line, field)))

    def values(self, entries: Iterable[Entry], kind: SkillKind) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for entry in entries:
            field = _FIELDS.get(entry.key)
            if field is None or (kind == "command" and entry.key == "name"):
                self.warn(entry.line, entry.key, unknown_field(entry.key, _FIELDS))
            elif entry.value is not None:
                attribute, read = field
                try:
                    values[attribute] = read(entry.value)
                except Wrong as wrong:
                    raise self.bad(str(wrong), entry.line, entry.key) from None
                self._lines[attribute] = entry.line
        return values

    def remark_name(self, values: dict[str, Any], directory: str) -> None:
        if "name" not in values:
            self.warn(1, "name", f"it is missing: the name of the directory, {directory!r}, is taken")
            values["name"] = directory
        name = values["name"]
        if wrong := name_problem(name):
            raise self.bad(wrong, self._lines.get("name"), "name")
        if ":" in name:
            raise self.bad(f"{name!r} cannot be a name: ':' parts a plug-in from it", 1, "name")
        plain = all(character.isalnum() or character == "-" for character in name)
        if not plain or name != name.lower() or len(name) > LONGEST_NAME:
            told = f"other programs may not take it: up to {LONGEST_NAME} small letters, digits and '-'"
            self.warn(self._lines.get("name"), "name", told)
        if name != unicodedata.normalize("NFKC", directory):
            told = f"other programs want it to be the name of the directory, {directory!r}"
            self.warn(self._lines.get("name"), "name", told)

    def remark_lengths(self, values: dict[str, Any]) -> None:
        limits = (("description", LONGEST_DESCRIPTION), ("compatibility", _LONGEST_COMPATIBILITY))
        for field, longest in limits:
            if len(values.get(field, "")) > longest:
                self.warn(self._lines.get(field), field, f"it has more than {longest:,} characters")

    def made(self, text: str, body: str, values: Mapping[str, Any]) -> ParsedSkill:
        skill = Skill(
            **values,
            body=body,
            source=replace(self._source, lines=self._lines),
            digest=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        )
        return ParsedSkill(skill=skill, warnings=tuple(self.warnings))

    def _problem(self, what: str, line: int | None, field: str | None) -> Problem:
        return Problem(what=what, name=self._name, source=self._source, line=line, field=field)


def _text(value: Any) -> str:
    return text_in(value).strip()


def _name(value: Any) -> str:
    return unicodedata.normalize("NFKC", _text(value))


def _quoted(hint: re.Match[str]) -> str:
    return hint[1] + json.dumps(hint[2].strip(), ensure_ascii=False)


def _mapping(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise Wrong(f"a mapping of keys to texts is expected, not {shown(value)}")
    return {str(key): each if isinstance(each, str) else str(each) for key, each in value.items()}


def _not(value: Any) -> bool:
    return not flag_in(value)


def _forks(value: Any) -> bool:
    if value in ("fork", "inline"):
        return bool(value == "fork")
    raise Wrong(f"fork is expected, not {shown(value)}")


def _model(value: Any) -> str | None:
    return None if value == INHERIT else _text(value) or None


_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "name": ("name", _name),
    "description": ("description", _text),
    "license": ("license", _text),
    "compatibility": ("compatibility", _text),
    "metadata": ("metadata", _mapping),
    "allowed-tools": ("allowed_tools", tool_entries),
    "context": ("forks", _forks),
    "agent": ("agent", _text),
    "model": ("model", _model),
    "argument-hint": ("argument_hint", _text),
    "disable-model-invocation": ("for_model", _not),
    "user-invocable": ("for_person", flag_in),
}
