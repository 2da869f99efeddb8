"""Telling of files that could not be read, or had to be set aside."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Report: TypeAlias = Callable[[str], None]


def unreported(_: str) -> None:
    """For who has nobody to tell."""
