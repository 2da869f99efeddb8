"""docs/reference/settings.md: every key of settings.json that Shoal reads, and every variable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec import inspect as shapes

from reference_pages.variables import variables
from reference_pages.words import (
    Field,
    Wordless,
    code,
    default_words,
    fields_of,
    own_words,
    page,
    table,
    type_words,
)
from shoal.wire.settings import (
    AgentLimits,
    Known,
    ModelFacts,
    Own,
    Rules,
    SandboxSettings,
    TelemetrySettings,
)

EXAMPLES: dict[str, Any] = json.loads(Path(__file__).with_name("examples.json").read_text(encoding="utf-8"))
"""An example value for each key, by its path."""
_INNER: dict[type[Struct], str] = {
    Rules: "permissions",
    ModelFacts: "shoal.models.NAME",
    AgentLimits: "shoal.agent_limits",
    SandboxSettings: "shoal.sandbox",
    TelemetrySettings: "shoal.telemetry",
}
_PLACES: tuple[tuple[type[Struct], str], ...] = ((Known, ""), (Own, "shoal"), *_INNER.items())
_MORE = {
    "permissions": "[permissions.md](../permissions.md)",
    "hooks": "[hooks](hooks.md)",
    "mcpServers": "[mcp.md](../mcp.md)",
    "shoal.models.NAME": "[models.md](../models.md)",
    "shoal.agent_limits": "[limits.md](../limits.md)",
    "shoal.sandbox": "[SECURITY.md](../../SECURITY.md)",
    "shoal.telemetry": "[telemetry.md](../telemetry.md)",
}
_OPENING = """
Settings are JSON objects in files. The strongest first: managed (`/etc/shoal/managed-settings.json`),
`--settings`, `.claude/settings.local.json` and `.claude/settings.json` of the project, `settings.json` in
the home. Objects are merged, permission lists joined; of anything else the strongest counts. Keys that
are not listed here belong to other programs and are left alone; one under `shoal` that is not known is
told with its line. What a project's files widen counts only after [`shoal
trust`](../permissions.md#trusting-a-project).

`shoal config show --origin` tells what holds here, and from which line of which file.
"""
_VARIABLES = (
    "Of the environment of the process; those of providers may stand in `env` of your own settings too.\n"
    "The usual ones for proxies (`HTTPS_PROXY`, `NO_PROXY`), colours (`NO_COLOR`) and\n"
    "[telemetry](../telemetry.md) hold as well."
)


def settings_page() -> str:
    parts = [_part("", "At the top", Known), _part("permissions", "`permissions`", Rules)]
    parts.append(_part("shoal", "`shoal`", Own))
    inner = (ModelFacts, AgentLimits, SandboxSettings, TelemetrySettings)
    parts += [_part(_INNER[kind], f"`{_INNER[kind]}`", kind) for kind in inner]
    rows = [(code(name), words) for name, words in variables().items()]
    told = f"## Variables\n\n{_VARIABLES}\n\n{table(('variable', 'meaning'), rows)}"
    return page("Settings", _OPENING, *parts, told)


def keys() -> Iterator[tuple[str, str]]:
    """Yield the path to every key, with its description."""
    for kind, way in _PLACES:
        for field in fields_of(kind):
            yield ".".join(filter(None, (way, field.name))), field.words


def example(key: str) -> dict[str, Any]:
    """Build a complete settings file that sets this key."""
    *way, name = key.split(".")
    kind = next(kind for kind, place in _PLACES if place == ".".join(way))
    value = _example(key, next(field for field in fields_of(kind) if field.name == name))
    for each in (name, *reversed(way)):
        value = {each: value}
    return value  # type: ignore[no-any-return]


def _example(key: str, field: Field) -> Any:
    """Return the example written for the key, or else an obvious value other than the default."""
    if key in EXAMPLES:
        return EXAMPLES[key]
    match field.type:
        case shapes.BoolType():
            return not field.default
        case shapes.LiteralType(values=values):
            return next(value for value in values if value != field.default)
    raise Wordless(f"{key} has no example: add one to scripts/reference_pages/examples.json.")


def _part(way: str, title: str, kind: type[Struct]) -> str:
    rows = []
    for field in fields_of(kind):
        key = ".".join(filter(None, (way, field.name)))
        if not field.words:
            raise Wordless(f"{kind.__name__}.{field.name} has no words: write some below it in the code.")
        shown = json.dumps({field.name: _example(key, field)}, ensure_ascii=False)[1:-1]
        rows.append(
            (code(field.name), type_words(field.type), _default(field.default), field.words, code(shown))
        )
    words = own_words(kind)
    more = f" More in {_MORE[way]}." if way in _MORE else ""
    head = ("key", "type", "default", "meaning", "example")
    return f"## {title}\n\n{words}{more}\n\n{table(head, rows)}"


def _default(value: Any) -> str:
    return "see below" if isinstance(value, Struct) else default_words(value)
