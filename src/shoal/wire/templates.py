"""Parser for team templates: Markdown with front matter and a body for the lead, or TOML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from msgspec.structs import replace

from shoal.core.agents import Isolation
from shoal.core.definitions import INHERIT
from shoal.core.errors import BadTemplate
from shoal.core.templates import Flaw, Origin, Place, PlannedTask, Role, RoleMode, Template, flaws
from shoal.wire.front_matter import Unreadable, composed, parts_of, read_page

if TYPE_CHECKING:
    import yaml

Choice = TypeVar("Choice")
_TOP = ("name", "description", "roles", "tasks", "budget")
_IN_TOML = (*_TOP, "prompt")
_ROLE = ("name", "type", "model", "prompt", "mode", "isolation", "count")
_TASK = ("key", "subject", "description", "activeForm", "blockedBy", "owner")
_BUDGET = ("usd", "tokens")
_TABLE = re.compile(r"\s*(\[\[?)\s*([\w-]+)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"\s*([\w-]+)\s*=")
_AT_LINE = re.compile(r"line (\d+)")


def read_template(text: str, origin: Origin) -> Template:
    """Parse a template; raise `InvalidTeamTemplate` with the file and the line."""
    if origin.path.suffix == ".toml":
        raw, origin = _from_toml(text, origin)
    else:
        raw, origin = _from_page(text, origin)
    template = _Maker(origin).template(raw)
    wrong = next(flaws(template), None)
    if wrong is not None:
        raise BadTemplate(wrong)
    return template


def _from_page(text: str, origin: Origin) -> tuple[dict[str, Any], Origin]:
    try:
        page = read_page(text, _TOP)
    except Unreadable as error:
        place: Place = () if error.key is None else (error.key,)
        lined = replace(origin, lines={place: error.line})
        raise BadTemplate(Flaw(what=error.what, origin=lined, place=place)) from error
    lines: dict[Place, int] = {(): 1}
    lines |= {(entry.key,): entry.line for entry in page.entries}
    lines |= dict(_nested_lines(text))
    raw: dict[str, Any] = {entry.key: entry.value for entry in page.entries if entry.value is not None}
    if "prompt" in raw:
        flaw = Flaw(
            what="what the lead is told stands below the front matter, not in it",
            origin=replace(origin, lines=lines),
            place=("prompt",),
        )
        raise BadTemplate(flaw)
    return {**raw, "prompt": page.body}, replace(origin, lines=lines)


def _nested_lines(text: str) -> Iterator[tuple[Place, int]]:
    """Yield the line of every key in the front matter if all of it is valid YAML."""
    try:
        header, start, _ = parts_of(text)
        node = composed("\n".join(header), start)
    except Unreadable:
        return
    if node is not None:
        yield from _lines_below(node, (), start)


def _lines_below(node: yaml.Node, place: Place, start: int) -> Iterator[tuple[Place, int]]:
    import yaml

    # A template has only two levels of lists and mappings: deeper keys get the line of their parent.
    if len(place) > 3:
        return
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*place, str(key.value)), start + key.start_mark.line
            yield from _lines_below(value, (*place, str(key.value)), start)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield (*place, number), start + item.start_mark.line
            yield from _lines_below(item, (*place, number), start)


def _from_toml(text: str, origin: Origin) -> tuple[dict[str, Any], Origin]:
    import tomllib

    lines: dict[Place, int] = {(): 1}
    try:
        raw = tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except (ValueError, RecursionError) as error:
        at = _AT_LINE.search(str(error))
        lined = replace(origin, lines={(): int(at[1])} if at else lines)
        raise BadTemplate(Flaw(what=f"it is not TOML: {error}", origin=lined)) from error
    return raw, replace(origin, lines=lines | dict(_toml_lines(text)))


def _toml_lines(text: str) -> Iterator[tuple[Place, int]]:
    """Yield the lines of the tables and their keys; the content of multi-line strings is skipped."""
    place: Place = ()
    seen: dict[str, int] = {}
    closing = ""
    for number, line in enumerate(text.splitlines(), 1):
        if closing:
            closing = "" if closing in line else closing
            continue
        if (table := _TABLE.fullmatch(line)) is not None:
            place = (table[2],)
            if table[1] == "[[":
                place = (table[2], seen.setdefault(table[2], 0))
                seen[table[2]] += 1
            yield place, number
        elif (key := _KEY.match(line)) is not None:
            yield (*place, key[1]), number
            value = line[key.end() :].strip()
            closing = next(
                (each for each in ('"""', "'''") if value.startswith(each) and each not in value[3:]), ""
            )


class _Maker:
    """Builds one template and locates its mistakes."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin

    def template(self, raw: Mapping[str, Any]) -> Template:
        self._only(raw, _IN_TOML, ())
        budget = self._mapping(raw.get("budget", {}), ("budget",))
        self._only(budget, _BUDGET, ("budget",))
        name = self._text(raw.get("name", self._origin.path.stem), ("name",))
        return Template(
            name=name,
            description=self._needed(raw, "description", ()),
            prompt=self._text(raw.get("prompt", ""), ("prompt",)).strip(),
            origin=self._origin,
            roles=tuple(
                self._role(each, ("roles", number))
                for number, each in enumerate(self._list(raw.get("roles", []), ("roles",)))
            ),
            tasks=tuple(
                self._task(each, ("tasks", number))
                for number, each in enumerate(self._list(raw.get("tasks", []), ("tasks",)))
            ),
            budget_usd=self._dollars(budget.get("usd"), ("budget", "usd")),
            budget_tokens=self._count(budget.get("tokens"), ("budget", "tokens")),
        )

    def _role(self, given: Any, place: Place) -> Role:
        raw = self._mapping(given, place)
        self._only(raw, _ROLE, place)
        model = self._maybe(raw, "model", place)
        return Role(
            name=self._needed(raw, "name", place),
            prompt=self._needed(raw, "prompt", place),
            kind=self._maybe(raw, "type", place),
            model=None if model == INHERIT else model,
            mode=self._one_of(raw.get("mode"), get_args(RoleMode), (*place, "mode")),
            isolation=self._one_of(raw.get("isolation"), get_args(Isolation), (*place, "isolation")),
            count=self._count(raw.get("count"), (*place, "count")) or 1,
        )

    def _task(self, given: Any, place: Place) -> PlannedTask:
        raw = self._mapping(given, place)
        self._only(raw, _TASK, place)
        waits_for = raw.get("blockedBy", [])
        if isinstance(waits_for, str):
            waits_for = [part.strip() for part in waits_for.split(",") if part.strip()]
        number = place[-1]
        assert isinstance(number, int)
        return PlannedTask(
            key=self._maybe(raw, "key", place) or str(number + 1),
            subject=" ".join(self._needed(raw, "subject", place).split()),
            description=self._maybe(raw, "description", place) or "",
            active_form=self._maybe(raw, "activeForm", place) or "",
            blocked_by=tuple(
                dict.fromkeys(
                    self._text(str(key) if isinstance(key, int) else key, (*place, "blockedBy"))
                    for key in self._list(waits_for, (*place, "blockedBy"))
                )
            ),
            owner=self._maybe(raw, "owner", place),
        )

    def _bad(self, what: str, place: Place) -> BadTemplate:
        return BadTemplate(Flaw(what=what, origin=self._origin, place=place))

    def _only(self, raw: Mapping[str, Any], known: Sequence[str], place: Place) -> None:
        for key in raw:
            if key not in known:
                near = get_close_matches(str(key), known, n=1)
                meant = f"is {near[0]} meant?" if near else f"there are: {', '.join(known)}"
                raise self._bad(f"this key is not known; {meant}", (*place, str(key)))

    def _needed(self, raw: Mapping[str, Any], key: str, place: Place) -> str:
        text = self._maybe(raw, key, place)
        if text is None:
            raise self._bad(f"`{key}` is missing", place)
        return text

    def _maybe(self, raw: Mapping[str, Any], key: str, place: Place) -> str | None:
        value = raw.get(key)
        if key == "key" and isinstance(value, int):
            value = str(value)
        if value is None:
            return None
        text = self._text(value, (*place, key)).strip()
        if not text:
            raise self._bad("it is empty", (*place, key))
        return text

    def _text(self, value: Any, place: Place) -> str:
        if not isinstance(value, str):
            raise self._bad(f"text is expected, not {value!r}", place)
        return value

    def _mapping(self, value: Any, place: Place) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise self._bad(f"keys with their values are expected, not {value!r}", place)
        return value

    def _list(self, value: Any, place: Place) -> Sequence[Any]:
        if not isinstance(value, list):
            raise self._bad(f"a list is expected, not {value!r}", place)
        return value

    def _one_of(self, value: Any, choices: tuple[Choice, ...], place: Place) -> Choice | None:
        if value is None:
            return None
        for choice in choices:
            if choice == value:
                return choice
        raise self._bad(f"{value!r} is not one of {', '.join(map(str, choices))}", place)

    def _count(self, value: Any, place: Place) -> int | None:
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 10**12:
            raise self._bad(f"a whole number from 1 on is expected, not {value!r}", place)
        return value

    def _dollars(self, value: Any, place: Place) -> float | None:
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 10**9:
            raise self._bad(f"a number of dollars above 0 is expected, not {value!r}", place)
        return float(value)
