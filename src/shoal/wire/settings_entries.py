"""Settings entries that are only a convenience: an unusable one is left out, and the rest applies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from shoal.core.permissions.permission_changes import (
    AUTO_MODE,
    AUTO_MODE_NOTE,
    PERMISSION_MODES,
    resolve_permission_mode,
)

UnusableEntry: TypeAlias = tuple[tuple[str, ...], str]
"""Keys of an entry and the reason why it is not used."""
_NARROWING_MODES = ("plan", "dontAsk")
_COMFORT_CHOICES = {"theme": ("dark", "light", "ansi"), "notify": ("off", "bell", "desktop", "both")}
"""Keys under `shoal` that only change what a person sees or hears."""


def drop_unusable_entries(raw: dict[str, Any]) -> tuple[dict[str, Any], list[UnusableEntry]]:
    """Return the settings without unusable entries that are only a convenience, and these entries.

    Entries that narrow what agents may do are not touched: the schema refuses them if they are invalid.
    """
    # A null value counts as not set.
    result = {key: value for key, value in raw.items() if value is not None}
    found: list[UnusableEntry] = []
    for key, expected in _COMFORT_TYPES.items():
        if (value := result.get(key)) is not None and not isinstance(value, expected):
            del result[key]
            found.append(((key,), f"expected {_TYPE_WORDS[expected]}"))
    days = result.get("cleanupPeriodDays")
    if days is not None and (not isinstance(days, int) or isinstance(days, bool) or days < 0):
        del result["cleanupPeriodDays"]
        found.append((("cleanupPeriodDays",), "expected an integer of at least 0"))
    for key in _NAME_LISTS:
        if key in result and not _is_text_list(result[key]):
            result[key] = [each for each in result[key] if isinstance(each, str)]
            found.append(((key,), "expected strings; the other entries are ignored"))
    for key, drop_unusable_parts in _SECTION_READERS.items():
        if isinstance(result.get(key), dict):
            result[key] = drop_unusable_parts(result[key], found)
    return (result, found) if found or result != raw else (raw, found)


_COMFORT_TYPES: dict[str, type] = {
    "model": str,
    "mcpServers": dict,
    "env": dict,
    "language": str,
    "theme": str,
    "attribution": dict,
    "includeCoAuthoredBy": bool,
    "plansDirectory": str,
    "apiKeyHelper": str,
    "autoCompactEnabled": bool,
    "autoMemoryDirectory": str,
    "autoMemoryEnabled": bool,
    "claudeMdExcludes": list,
    "disableAllHooks": bool,
    "enableAllProjectMcpServers": bool,
    "enabledMcpjsonServers": list,
    "enabledPlugins": dict,
    "modelOverrides": dict,
    "outputStyle": str,
    "worktree": dict,
}
_NAME_LISTS = ("claudeMdExcludes", "enabledMcpjsonServers")
_TYPE_WORDS: dict[type, str] = {
    str: "a string",
    dict: "an object",
    bool: "true or false",
    list: "a list",
}


def _drop_unusable_texts(texts: dict[str, Any], found: list[UnusableEntry]) -> dict[str, Any]:
    unusable = [key for key in ("commit", "pr") if not isinstance(texts.get(key, ""), str)]
    found += ((("attribution", key), "expected a string") for key in unusable)
    return {key: text for key, text in texts.items() if key not in unusable}


def _drop_unusable_overrides(models: dict[str, Any], found: list[UnusableEntry]) -> dict[str, Any]:
    unusable = [name for name, model in models.items() if not isinstance(model, str)]
    found += ((("modelOverrides", name), "expected a string") for name in unusable)
    return {name: model for name, model in models.items() if name not in unusable}


def _drop_unusable_worktree_options(options: dict[str, Any], found: list[UnusableEntry]) -> dict[str, Any]:
    unusable = {
        key: "expected a list of paths"
        for key in ("symlinkDirectories", "sparsePaths")
        if not _is_text_list(options.get(key) or [])
    }
    if options.get("baseRef") not in (None, "fresh", "head"):
        unusable["baseRef"] = "expected fresh or head"
    unknown = options.keys() - {"baseRef", "symlinkDirectories", "sparsePaths"}
    unusable |= dict.fromkeys(sorted(unknown), "Shoal does not know this key")
    found += ((("worktree", key), reason) for key, reason in unusable.items())
    return {key: value for key, value in options.items() if key not in unusable}


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _drop_unusable_variables(env: dict[str, Any], found: list[UnusableEntry]) -> dict[str, Any]:
    unusable = [name for name, value in env.items() if not isinstance(value, str | int | float | bool)]
    found += ((("env", name), "expected a string") for name in unusable)
    return {name: value for name, value in env.items() if name not in unusable}


def _drop_unusable_permissions(section: dict[str, Any], found: list[UnusableEntry]) -> dict[str, Any]:
    result = {key: value for key, value in section.items() if value is not None}
    if isinstance(allow := result.get("allow"), list):
        # A number or object is not a rule; as text it is reported with its line like any other.
        result["allow"] = [each if isinstance(each, str) else json.dumps(each) for each in allow]
    for key in ("allow", "additionalDirectories"):
        if key in result and not isinstance(result[key], list):
            del result[key]
            found.append((("permissions", key), "expected a list"))
    if isinstance(directories := result.get("additionalDirectories"), list):
        result["additionalDirectories"] = [each for each in directories if isinstance(each, str)]
        if result["additionalDirectories"] != directories:
            found.append((("permissions", "additionalDirectories"), "expected paths, as strings"))
    for mode, reason in _resolve_default_mode(result.get("defaultMode")):
        result["defaultMode"] = mode
        found += [(("permissions", "defaultMode"), reason)] if reason else []
    return result


def _resolve_default_mode(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the mode to use instead of a value, and the reason; nothing if the schema decides."""
    if value is None or value in PERMISSION_MODES:
        return
    if not isinstance(value, str):
        if not any(mode in json.dumps(value) for mode in _NARROWING_MODES):
            yield "default", "expected a string, so default mode applies"
    elif value == AUTO_MODE:
        yield "default", AUTO_MODE_NOTE.removesuffix(".")
    elif (mode := resolve_permission_mode(value)) is not None:
        yield mode, ""
    elif not _is_close(value, _NARROWING_MODES):
        yield "default", f"there is no mode {value!r}, so default mode applies"


def _drop_unusable_choices(section: dict[str, Any], found: list[UnusableEntry]) -> dict[str, Any]:
    unusable = [
        key for key, choices in _COMFORT_CHOICES.items() if section.get(key, choices[0]) not in choices
    ]
    unusable = [key for key in unusable if section[key] is not None]
    found += ((("shoal", key), f"expected {', '.join(_COMFORT_CHOICES[key])}") for key in unusable)
    return {key: value for key, value in section.items() if key not in unusable}


_SECTION_READERS: dict[str, Callable[[dict[str, Any], list[UnusableEntry]], dict[str, Any]]] = {
    "attribution": _drop_unusable_texts,
    "modelOverrides": _drop_unusable_overrides,
    "worktree": _drop_unusable_worktree_options,
    "env": _drop_unusable_variables,
    "permissions": _drop_unusable_permissions,
    "shoal": _drop_unusable_choices,
}


def _is_close(value: str, choices: tuple[str, ...]) -> bool:
    from difflib import get_close_matches

    return bool(get_close_matches(value.casefold(), [each.casefold() for each in choices], n=1))
