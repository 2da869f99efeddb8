"""Directories of a project that are searched for agent files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path


def project_places(cwd: Path) -> Iterator[Path]:
    """Yield `cwd` and its parents up to the repository root, nearest first; else only `cwd`."""
    places = (cwd, *cwd.parents)
    depth = next((number for number, place in enumerate(places) if (place / ".git").exists()), 0)
    return iter(places[: depth + 1])


def apart_from(own: Path, places: Iterable[Path]) -> Iterator[Path]:
    """Yield the directories except `excluded`, the user's own directory, which may be inside a project."""
    real = own.resolve()
    return (place for place in places if place.resolve() != real)
