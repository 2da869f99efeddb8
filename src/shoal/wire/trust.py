"""Codec between trust decisions about project settings and `trust.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from shoal.wire.content import dump, load


class Said(Struct, frozen=True, kw_only=True):
    """A person's decision on one settings file of a project."""

    digest: str
    """Digest of what the file would widen; a different digest has no decision."""
    trusted: bool
    at: int
    """Milliseconds since 1970."""


def said_in(content: bytes, project: str, file: str) -> Said | None:
    """Return the decision for a file, or None; raise `ValueError` if the content is not a trust file."""
    entry = _projects(_read(content)).get(project, {}).get(file)
    try:
        return None if entry is None else msgspec.convert(entry, Said)
    except msgspec.ValidationError as error:
        raise ValueError(f"{project}, {file}: {error}") from error


def with_said(content: bytes, project: str, said: Mapping[str, Said | None]) -> bytes:
    """Return the content with these decisions for a project, None to remove one; the rest stays unchanged."""
    raw = _read(content)
    projects = raw["projects"] = _projects(raw)
    entry = projects.setdefault(project, {})
    for file, word in said.items():
        if word is None:
            entry.pop(file, None)
        else:
            before = entry.get(file)
            entry[file] = {**(before if isinstance(before, dict) else {}), **msgspec.to_builtins(word)}
    if not entry:
        del projects[project]
    return dump(raw) + b"\n"


def without(content: bytes, project: str) -> bytes:
    """Return the content without decisions for a project."""
    raw = _read(content)
    projects = raw["projects"] = _projects(raw)
    projects.pop(project, None)
    return dump(raw) + b"\n"


def _read(content: bytes) -> dict[str, Any]:
    raw = load(content) if content.strip() else {}
    if not isinstance(raw, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - of a file, not of an argument
    return raw


def _projects(raw: dict[str, Any]) -> dict[str, dict[str, Any]]:
    projects = raw.get("projects", {})
    if not isinstance(projects, dict) or not all(isinstance(each, dict) for each in projects.values()):
        raise ValueError("projects is not an object of objects")
    return projects
