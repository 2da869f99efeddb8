"""The door of this package: a command in, its parts out."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.policy.shell.parts import UNKNOWN_PATH, Analysis, Part
from shoal.policy.shell.syntax import Unjudgeable
from shoal.policy.shell.walk import Walk

__all__ = ["UNKNOWN_PATH", "Analysis", "Part", "analysed"]


def analysed(command: str) -> Analysis:
    """What a shell command would run; any text is answered, with `trouble` where it cannot be judged."""
    walk = Walk()
    trouble: str | None = None
    try:
        walk.script(command)
    except Unjudgeable as reason:
        trouble = str(reason)
    except Exception as fault:  # noqa: BLE001 - a command that breaks the analysis is asked, never run
        trouble = f"the analysis failed ({type(fault).__name__})"
    parts = walk.parts
    if walk.functions:
        parts = [_shadowed(part, walk.functions) for part in parts]
    return Analysis(parts=tuple(parts), trouble=trouble)


def _shadowed(part: Part, functions: set[str]) -> Part:
    """A name that the command itself defines means what the definition says."""
    if part.words and part.words[0] in functions:
        return replace(
            part, argv=None, read_only=False, why=f"{part.words[0]} is defined by the command itself"
        )
    return part
