"""Parser for a plug-in's manifest and its other JSON files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.core.errors import SettingsError
from shoal.wire.json_codec import decode_json
from shoal.wire.json_line_numbers import find_json_key_line

_PLUGIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TEXT_KEYS = ("version", "description")
_PATH_KEYS = ("agents", "skills", "commands")
_CONFIG_KEYS = ("hooks", "mcpServers")
_FOREIGN_KEYS = ("author", "homepage", "repository", "license", "keywords", "category", "tags", "$schema")
"""Keys that only other programs read."""


class PluginManifest(Struct, frozen=True, kw_only=True):
    """`component_paths` are extra directories; `component_configs` are file paths or inline objects."""

    name: str
    version: str = ""
    description: str = ""
    component_paths: Mapping[str, tuple[str, ...]] = {}
    component_configs: Mapping[str, str | Mapping[str, Any]] = {}
    text: str = ""
    warnings: tuple[tuple[int, str], ...] = ()
    """Line and message."""


def parse_settings_json_object(text: str, path: Path) -> dict[str, Any]:
    """Parse a JSON object; raise `SettingsError` with the line."""
    try:
        raw = decode_json(text.encode()) if text.strip() else {}
    except ValueError as error:
        raise _build_manifest_error(
            f"not valid JSON: {getattr(error, 'msg', error)}", path, getattr(error, "lineno", 1)
        ) from None
    if not isinstance(raw, dict):
        raise _build_manifest_error("expected a JSON object, {…}", path, 1)
    return raw


def parse_plugin_manifest(text: str, path: Path) -> PluginManifest:
    """Parse a manifest; raise `SettingsError` with the mistake and its line."""
    raw = parse_settings_json_object(text, path)

    def build_key_error(key: str, what: str) -> SettingsError:
        return _build_manifest_error(f"{key}: {what}", path, find_json_key_line(text, (key,)))

    name = raw.get("name")
    if not isinstance(name, str) or _PLUGIN_NAME.fullmatch(name) is None:
        problem = "it is missing" if name is None else f"{name!r} is not a valid plug-in name"
        raise build_key_error("name", f"{problem}; use letters, digits, '-', '_' and '.'")
    for key in _TEXT_KEYS:
        if not isinstance(raw.get(key, ""), str):
            raise build_key_error(key, f"expected a string, got {raw[key]!r}")
    component_paths: dict[str, tuple[str, ...]] = {}
    for key in _PATH_KEYS:
        value = raw.get(key, [])
        entries = [value] if isinstance(value, str) else value
        if not isinstance(entries, list) or not all(isinstance(each, str) and each for each in entries):
            raise build_key_error(key, "expected a path or a list of paths")
        component_paths[key] = tuple(entries)
    configured: dict[str, str | Mapping[str, Any]] = {}
    for key in _CONFIG_KEYS:
        if key in raw:
            if not isinstance(raw[key], str | dict) or not raw[key]:
                raise build_key_error(key, "expected a file path or an object")
            configured[key] = raw[key]
    return PluginManifest(
        name=name,
        version=raw.get("version", ""),
        description=raw.get("description", ""),
        component_paths=component_paths,
        component_configs=configured,
        text=text,
        warnings=tuple(_find_unknown_manifest_keys(raw, text)),
    )


def _find_unknown_manifest_keys(raw: Mapping[str, Any], text: str) -> list[tuple[int, str]]:
    known_keys = ("name", *_TEXT_KEYS, *_PATH_KEYS, *_CONFIG_KEYS)
    return [
        (find_json_key_line(text, (key,)), f"unknown key {key}; it is ignored; did you mean {near[0]}?")
        for key in raw
        if key not in known_keys
        and key not in _FOREIGN_KEYS
        and (near := get_close_matches(key, known_keys, n=1))
    ]


def _build_manifest_error(problem: str, path: Path, line: int) -> SettingsError:
    return SettingsError(problem, path=path, line=line)
