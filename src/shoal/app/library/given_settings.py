"""Checks of settings that a program passes: unlike in shared files, every part must be understood."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from shoal.app.hooks.hook_sources import refuse_unknown_matcher_names
from shoal.app.settings.claude_keys import CLAUDE_KEYS
from shoal.core.errors import SettingsError
from shoal.core.names import TOOL_NAMES
from shoal.core.permissions.permission_changes import (
    REQUESTED_PERMISSION_MODES,
    resolve_permission_mode,
    suggest_permission_mode,
)
from shoal.core.text.name_suggestions import suggest_name
from shoal.policy.permission_rules import parse_permission_rule
from shoal.policy.rule_names import FOREIGN_TOOL_NAMES, names_no_tool, suggest_tool
from shoal.wire.hook_codec import parse_hooks_setting
from shoal.wire.settings_codec import PerFileSettingsSchema, SettingsSchema, is_web_search_choice

_ORIGIN = "shoal.open: settings"
_SCHEMA_LINK = "$schema"
_DEFAULT_MODE = "permissions.defaultMode"


def refuse_wrong_settings(
    settings: Mapping[str, Any], tools: Collection[str], environ: Mapping[str, str]
) -> None:
    """Raise `SettingsError` with the nearest name for an unknown key, value, event or tool.

    `tools` are the names of the program's own tools. Wrong types are left for the parser of settings.
    """
    for problem in _find_wrong_keys(settings):
        raise SettingsError(f"{_ORIGIN}: {problem}")
    own = settings.get("shoal")
    search = own.get("web_search") if isinstance(own, Mapping) else None
    if isinstance(search, str) and not is_web_search_choice(search):
        raise SettingsError(
            f"{_ORIGIN}: shoal.web_search: expected provider, the name of an MCP tool or a URL, "
            f"got {search!r}."
        )
    hooks = settings.get("hooks")
    if isinstance(hooks, Mapping):
        parsed = parse_hooks_setting(hooks, lambda _: _ORIGIN, environ, refuses_unknown_parts=True)
        if parsed.problems:
            raise SettingsError(" ".join(parsed.problems))
        refuse_unknown_matcher_names(_ORIGIN, hooks, tools)
    permissions = settings.get("permissions")
    if isinstance(permissions, Mapping):
        _refuse_unknown_tools(permissions, tools)


def _find_wrong_keys(settings: Mapping[str, Any]) -> Iterator[str]:
    documented = [key.name for key in CLAUDE_KEYS]
    known = {
        _SCHEMA_LINK,
        *SettingsSchema.__struct_encode_fields__,
        *PerFileSettingsSchema.__struct_encode_fields__,
        *(name for name in documented if "." not in name),
    }
    for key in settings:
        if key not in known:
            yield f"unknown key {key!r}.{suggest_name(key, sorted(known))}"
    for section in ("permissions", "sandbox"):
        yield from _find_wrong_section_keys(settings.get(section), section, documented)
    schema: Any = msgspec.inspect.type_info(SettingsSchema)
    for field in schema.fields:
        if field.encode_name in settings:
            yield from _find_wrong_values(field.type, settings[field.encode_name], field.encode_name)


def _find_wrong_section_keys(section: Any, path: str, documented: Collection[str]) -> Iterator[str]:
    """Yield the unknown keys of a section whose keys have documented names with dots."""
    below = {
        name.removeprefix(f"{path}.").partition(".")[0] for name in documented if name.startswith(f"{path}.")
    }
    if not isinstance(section, Mapping) or not below:
        return
    for key, value in section.items():
        if key not in below:
            yield f"{path}.{key}: unknown key.{suggest_name(str(key), sorted(below))}"
        yield from _find_wrong_section_keys(value, f"{path}.{key}", documented)


def _find_wrong_values(schema: msgspec.inspect.Type, value: Any, path: str) -> Iterator[str]:
    """Yield unknown keys of structs, and unknown values of closed sets."""
    match schema:
        case msgspec.inspect.UnionType(types=types):
            for each in types:
                yield from _find_wrong_values(each, value, path)
        case msgspec.inspect.LiteralType(values=values) if isinstance(value, str):
            choices = REQUESTED_PERMISSION_MODES if path == _DEFAULT_MODE else [*map(str, values)]
            is_mode = path == _DEFAULT_MODE and resolve_permission_mode(value) is not None
            if value not in choices and not is_mode:
                suggest = suggest_permission_mode if path == _DEFAULT_MODE else suggest_name
                yield f"{path}: unknown value {value!r}.{suggest(value, choices)}"
        case msgspec.inspect.DictType(value_type=value_type) if isinstance(value, Mapping):
            for key, each in value.items():
                yield from _find_wrong_values(value_type, each, f"{path}.{key}")
        case msgspec.inspect.StructType(fields=fields) if isinstance(value, Mapping):
            yield from _find_wrong_fields({field.encode_name: field for field in fields}, value, path)


def _find_wrong_fields(
    fields: Mapping[str, msgspec.inspect.Field], value: Mapping[str, Any], path: str
) -> Iterator[str]:
    for key, each in value.items():
        if key in fields:
            yield from _find_wrong_values(fields[key].type, each, f"{path}.{key}")
        elif path != "permissions":  # its documented keys are checked above
            yield f"{path}.{key}: unknown key.{suggest_name(str(key), tuple(fields))}"


def _refuse_unknown_tools(permissions: Mapping[str, Any], tools: Collection[str]) -> None:
    for behavior in ("allow", "ask", "deny"):
        rules = permissions.get(behavior)
        if isinstance(rules, list | tuple):
            refuse_rules_of_unknown_tools(f"{_ORIGIN}: permissions.{behavior}", rules, tools)


def refuse_rules_of_unknown_tools(location: str, rules: Iterable[Any], tools: Collection[str]) -> None:
    """Raise `SettingsError` with the nearest name for a rule whose tool does not exist.

    Rules of MCP tools are not checked: servers connect later. `tools` are the program's own.
    """
    known_names = (*tools, *TOOL_NAMES, *FOREIGN_TOOL_NAMES)
    for rule in rules:
        name = parse_permission_rule(rule, location).tool if isinstance(rule, str) else "*"
        if names_no_tool(name, tools) and not any(fnmatchcase(each, name) for each in known_names):
            advice = suggest_tool(name, tools) or (
                " A tool of your program must be in tools=, or in an agent of agents=."
            )
            raise SettingsError(f"{location}: the rule {rule} names an unknown tool.{advice}")
