"""docs/reference/settings.md: every key of settings.json that Shoal reads, and every variable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, inspect

from reference_pages.doc_text import (
    DocumentedField,
    MissingDescription,
    describe_default,
    describe_type,
    format_code,
    list_fields,
    read_docstring,
    render_page,
    render_table,
)
from reference_pages.variables import list_variables
from shoal.wire.settings_codec import (
    AgentLimitSettings,
    ClusterSettings,
    ModelSettings,
    PerFileSettingsSchema,
    PermissionSettings,
    SandboxSettings,
    SettingsSchema,
    ShoalSettings,
    TelemetrySettings,
)

EXAMPLES: dict[str, Any] = json.loads(Path(__file__).with_name("examples.json").read_text(encoding="utf-8"))
"""An example value for each key, by its path."""
_INNER: dict[type[Struct], str] = {
    PermissionSettings: "permissions",
    ModelSettings: "shoal.models.NAME",
    AgentLimitSettings: "shoal.agent_limits",
    SandboxSettings: "shoal.sandbox",
    TelemetrySettings: "shoal.telemetry",
    ClusterSettings: "shoal.cluster",
}
_STRUCT_PATHS: tuple[tuple[type[Struct], str], ...] = (
    (SettingsSchema, ""),
    (PerFileSettingsSchema, ""),
    (ShoalSettings, "shoal"),
    *_INNER.items(),
)
_LINKS = {
    "permissions": "[permissions.md](../permissions.md)",
    "hooks": "[hooks](hooks.md)",
    "mcpServers": "[mcp.md](../mcp.md)",
    "shoal.models.NAME": "[models.md](../models.md)",
    "shoal.agent_limits": "[limits.md](../limits.md)",
    "shoal.sandbox": "[SECURITY.md](../../SECURITY.md)",
    "shoal.telemetry": "[telemetry.md](../telemetry.md)",
    "shoal.cluster": "[run-on-several-machines.md](../how-to/run-on-several-machines.md)",
}
_OPENING = """
Settings are JSON objects in files. From highest to lowest precedence: managed
(`/etc/shoal/managed-settings.json`), `--settings`, `.claude/settings.local.json` and `.claude/settings.json`
in the project, `settings.json` in the home. Objects are merged, and permission lists are joined; for any
other value, the file with the highest precedence applies.
Keys that are not listed here belong to other programs and are ignored; Shoal warns about an unknown key
under `shoal`, with its line. Project settings that are more permissive than yours take effect only after
[`shoal trust`](../permissions.md#trusting-a-project).

`shoal config show --origin` shows the settings in effect, and the file and line that each comes from.
"""
_VARIABLES = (
    "Environment variables of the process. Provider and proxy variables can also be in `env` in your own\n"
    "settings, which overrides the environment. The usual variables for proxies (`HTTPS_PROXY`,\n"
    "`NO_PROXY`), colors (`NO_COLOR`) and [telemetry](../telemetry.md) work as well."
)


def build_settings_page() -> str:
    parts = [
        _render_part("", "Top level", SettingsSchema, PerFileSettingsSchema),
        _render_part("permissions", "`permissions`", PermissionSettings),
    ]
    parts.append(_render_part("shoal", "`shoal`", ShoalSettings))
    inner = (ModelSettings, AgentLimitSettings, SandboxSettings, TelemetrySettings, ClusterSettings)
    parts += [_render_part(_INNER[kind], f"`{_INNER[kind]}`", kind) for kind in inner]
    rows = [(format_code(name), words) for name, words in list_variables().items()]
    variables_section = f"## Variables\n\n{_VARIABLES}\n\n{render_table(('variable', 'meaning'), rows)}"
    return render_page("Settings", _OPENING, *parts, variables_section)


def list_keys() -> Iterator[tuple[str, str]]:
    """Yield the path to every key, with its description."""
    for kind, path in _STRUCT_PATHS:
        for field in list_fields(kind):
            yield ".".join(filter(None, (path, field.name))), field.description


def build_example(key: str) -> dict[str, Any]:
    """Build a complete settings file that sets this key."""
    *parents, name = key.split(".")
    kinds = [kind for kind, place in _STRUCT_PATHS if place == ".".join(parents)]
    fields = [field for kind in kinds for field in list_fields(kind)]
    value = _find_example_value(key, next(field for field in fields if field.name == name))
    for each in (name, *reversed(parents)):
        value = {each: value}
    return value  # type: ignore[no-any-return]


def _find_example_value(key: str, field: DocumentedField) -> Any:
    """Return the example written for the key, or else an obvious value other than the default."""
    if key in EXAMPLES:
        return EXAMPLES[key]
    match field.type:
        case inspect.BoolType():
            return not field.default
        case inspect.LiteralType(values=values):
            return next(value for value in values if value != field.default)
    raise MissingDescription(f"{key} has no example: add one to scripts/reference_pages/examples.json.")


def _render_part(path: str, title: str, *kinds: type[Struct]) -> str:
    rows = []
    for field in (field for kind in kinds for field in list_fields(kind)):
        key = ".".join(filter(None, (path, field.name)))
        if not field.description:
            raise MissingDescription(
                f"{kinds[0].__name__}: {field.name} has no description. Write a docstring below it."
            )
        example = json.dumps({field.name: _find_example_value(key, field)}, ensure_ascii=False)[1:-1]
        rows.append(
            (
                format_code(field.name),
                describe_type(field.type),
                _describe_default(field.default),
                field.description,
                format_code(example),
            )
        )
    description = read_docstring(kinds[0])
    more = f" More in {_LINKS[path]}." if path in _LINKS else ""
    head = ("key", "type", "default", "meaning", "example")
    return f"## {title}\n\n{description}{more}\n\n{render_table(head, rows)}"


def _describe_default(value: Any) -> str:
    return "see below" if isinstance(value, Struct) else describe_default(value)
