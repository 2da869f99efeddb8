"""All fuzz targets, by group."""

from __future__ import annotations

from . import project_doors, shell_doors, store_doors, stream_doors, text_doors, wire_doors
from .door import Door

DOORS: dict[str, tuple[Door, ...]] = {
    "wire": wire_doors.DOORS,
    "texts": text_doors.DOORS,
    "streams": stream_doors.DOORS,
    "files": store_doors.DOORS,
    "project": project_doors.DOORS,
    "shell": shell_doors.DOORS,
}
BY_NAME = {door.name: door for group in DOORS.values() for door in group}

__all__ = ["BY_NAME", "DOORS", "Door"]


def chosen(name: str) -> tuple[Door, ...]:
    """Return the targets of a group, or the one of that name."""
    return DOORS[name] if name in DOORS else (BY_NAME[name],)
