"""The door of this package: a command in, its parts out."""

from __future__ import annotations

from shoal.policy.shell.parts import UNKNOWN_PATH, Analysis, Part

__all__ = ["UNKNOWN_PATH", "Analysis", "Part", "analysed"]


def analysed(command: str) -> Analysis:
    """What a shell command would run; never raises, whatever the text is."""
    return Analysis(parts=(), trouble=f"a command of {len(command)} characters is not judged yet")
