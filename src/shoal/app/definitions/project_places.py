"""The directories of a project in which files for agents are looked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path


def project_places(cwd: Path) -> Iterator[Path]:
    """From the directory up to the root of its repository, the nearest first; without one, itself alone."""
    places = (cwd, *cwd.parents)
    depth = next((number for number, place in enumerate(places) if (place / ".git").exists()), 0)
    return iter(places[: depth + 1])


def apart_from(own: Path, places: Iterable[Path]) -> Iterator[Path]:
    """Those that are not the person's own directory, which may lie in a project."""
    real = own.resolve()
    return (place for place in places if place.resolve() != real)
