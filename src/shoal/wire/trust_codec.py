"""Codec between trust decisions about project settings and `trust.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from shoal.wire.json_codec import decode_json, encode_json


class TrustDecision(Struct, frozen=True, kw_only=True):
    """A person's decision on one settings file of a project."""

    digest: str
    """Digest of the permissions that the file would add; there is no decision for a different digest."""
    trusted: bool
    at: int
    """Milliseconds since 1970."""


def parse_trust_decision(content: bytes, project: str, file: str) -> TrustDecision | None:
    """Return the decision for a file, or None; raise `ValueError` if the content is not a trust file."""
    entry = _get_trust_by_project(_parse_trust_file(content)).get(project, {}).get(file)
    try:
        return None if entry is None else msgspec.convert(entry, TrustDecision)
    except msgspec.ValidationError as error:
        raise ValueError(f"{project}, {file}: {error}") from error


def list_trust_decisions(content: bytes, project: str) -> dict[str, TrustDecision]:
    """Return all decisions for a project, by file; raise `ValueError` if one of them is not valid."""
    files = _get_trust_by_project(_parse_trust_file(content)).get(project, {})
    found = {file: parse_trust_decision(content, project, file) for file in files}
    return {file: decision for file, decision in found.items() if decision is not None}


def update_trust_decisions(
    content: bytes, project: str, decisions: Mapping[str, TrustDecision | None]
) -> bytes:
    """Return the content with these decisions for a project, None to remove one; the rest stays unchanged."""
    raw = _parse_trust_file(content)
    projects = raw["projects"] = _get_trust_by_project(raw)
    entry = projects.setdefault(project, {})
    for file, decision in decisions.items():
        if decision is None:
            entry.pop(file, None)
        else:
            old_decision = entry.get(file)
            entry[file] = {
                **(old_decision if isinstance(old_decision, dict) else {}),
                **msgspec.to_builtins(decision),
            }
    if not entry:
        del projects[project]
    return encode_json(raw) + b"\n"


def remove_project_trust(content: bytes, project: str) -> bytes:
    """Return the content without decisions for a project."""
    raw = _parse_trust_file(content)
    projects = raw["projects"] = _get_trust_by_project(raw)
    projects.pop(project, None)
    return encode_json(raw) + b"\n"


def _parse_trust_file(content: bytes) -> dict[str, Any]:
    raw = decode_json(content) if content.strip() else {}
    if not isinstance(raw, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - of a file, not of an argument
    return raw


def _get_trust_by_project(raw: dict[str, Any]) -> dict[str, dict[str, Any]]:
    projects = raw.get("projects", {})
    if not isinstance(projects, dict) or not all(isinstance(each, dict) for each in projects.values()):
        raise ValueError("projects must be an object that contains objects")
    return projects
