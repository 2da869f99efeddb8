"""Parser for a plug-in's manifest and its other JSON files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.core.errors import SettingsError
from shoal.wire.content import load
from shoal.wire.json_lines import line_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TEXTS = ("version", "description")
_PLACES = ("agents", "skills", "commands")
_CONFIGURED = ("hooks", "mcpServers")
_ELSEWHERE = ("author", "homepage", "repository", "license", "keywords", "category", "tags", "$schema")
"""Keys that only other programs read."""


class Manifest(Struct, frozen=True, kw_only=True):
    """`component_paths` are extra directories; `component_configs` are file paths or inline objects."""

    name: str
    version: str = ""
    description: str = ""
    places: Mapping[str, tuple[str, ...]] = {}
    configured: Mapping[str, str | Mapping[str, Any]] = {}
    text: str = ""
    warnings: tuple[tuple[int, str], ...] = ()
    """Line and message."""


def read_object(text: str, path: Path) -> dict[str, Any]:
    """Parse a JSON object; raise `SettingsError` with the line."""
    try:
        raw = load(text.encode()) if text.strip() else {}
    except ValueError as error:
        raise _wrong(
            f"not valid JSON: {getattr(error, 'msg', error)}", path, getattr(error, "lineno", 1)
        ) from None
    if not isinstance(raw, dict):
        raise _wrong("a JSON object is expected, {…}", path, 1)
    return raw


def read_manifest(text: str, path: Path) -> Manifest:
    """Parse a manifest; raise `SettingsError` with the mistake and its line."""
    raw = read_object(text, path)

    def wrong(key: str, what: str) -> SettingsError:
        return _wrong(f"{key}: {what}", path, line_of(text, (key,)))

    name = raw.get("name")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        what = "it is missing" if name is None else f"{name!r} cannot be the name of a plug-in"
        raise wrong("name", f"{what}: letters, digits, '-', '_' and '.' make one")
    for key in _TEXTS:
        if not isinstance(raw.get(key, ""), str):
            raise wrong(key, f"text is expected, not {raw[key]!r}")
    places: dict[str, tuple[str, ...]] = {}
    for key in _PLACES:
        given = raw.get(key, [])
        listed = [given] if isinstance(given, str) else given
        if not isinstance(listed, list) or not all(isinstance(each, str) and each for each in listed):
            raise wrong(key, "a path or a list of paths is expected")
        places[key] = tuple(listed)
    configured: dict[str, str | Mapping[str, Any]] = {}
    for key in _CONFIGURED:
        if key in raw:
            if not isinstance(raw[key], str | dict) or not raw[key]:
                raise wrong(key, "the path of a file is expected, or an object")
            configured[key] = raw[key]
    return Manifest(
        name=name,
        version=raw.get("version", ""),
        description=raw.get("description", ""),
        places=places,
        configured=configured,
        text=text,
        warnings=tuple(_strangers(raw, text)),
    )


def _strangers(raw: Mapping[str, Any], text: str) -> list[tuple[int, str]]:
    known = ("name", *_TEXTS, *_PLACES, *_CONFIGURED)
    return [
        (line_of(text, (key,)), f"{key} is not known and is ignored; is {near[0]} meant?")
        for key in raw
        if key not in known and key not in _ELSEWHERE and (near := get_close_matches(key, known, n=1))
    ]


def _wrong(what: str, path: Path, line: int) -> SettingsError:
    return SettingsError(what, path=path, line=line)
