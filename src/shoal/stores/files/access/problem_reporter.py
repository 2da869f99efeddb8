"""Callback type for reports of files that could not be read or were quarantined."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

ProblemReporter: TypeAlias = Callable[[str], None]


def ignore_problem(_: str) -> None:
    """Ignore the problem; the default reporter."""
