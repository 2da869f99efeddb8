"""All fuzz targets, by group."""

from __future__ import annotations

from . import project_targets, shell_targets, store_targets, stream_targets, text_targets, wire_targets
from .fuzz_target import FuzzTarget

TARGETS: dict[str, tuple[FuzzTarget, ...]] = {
    "wire": wire_targets.TARGETS,
    "texts": text_targets.TARGETS,
    "streams": stream_targets.TARGETS,
    "files": store_targets.TARGETS,
    "project": project_targets.TARGETS,
    "shell": shell_targets.TARGETS,
}
TARGETS_BY_NAME = {door.name: door for group in TARGETS.values() for door in group}

__all__ = ["TARGETS", "TARGETS_BY_NAME", "FuzzTarget"]


def select_targets(name: str) -> tuple[FuzzTarget, ...]:
    """Return the targets of a group, or the one of that name."""
    return TARGETS[name] if name in TARGETS else (TARGETS_BY_NAME[name],)
