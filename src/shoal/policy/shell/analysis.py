"""Entry point of this package: turns a command into its simple commands."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shoal.policy.shell.parts import UNKNOWN_PATH, Analysis, Part

if TYPE_CHECKING:
    from shoal.policy.shell.syntax import Unjudgeable
    from shoal.policy.shell.walk import Walk

__all__ = ["UNKNOWN_PATH", "Analysis", "Part", "analysed"]


def analysed(command: str) -> Analysis:
    """Return what a shell command would run; accepts any text and sets `trouble` if it cannot be judged."""
    new_walk, unjudgeable = _loaded()
    walk = new_walk()
    trouble: str | None = None
    try:
        walk.script(command)
    except unjudgeable as reason:
        trouble = str(reason)
    except Exception as fault:  # noqa: BLE001 - a command that breaks the analysis is asked, never run
        trouble = f"the analysis failed ({type(fault).__name__})"
    parts = walk.parts
    if walk.functions:
        parts = [_shadowed(part, walk.functions) for part in parts]
    return Analysis(parts=tuple(parts), trouble=trouble)


@cache
def _loaded() -> tuple[type[Walk], type[Unjudgeable]]:
    """Import on the first command: a session that runs none does not pay for the parser and its tables."""
    from shoal.policy.shell.syntax import Unjudgeable
    from shoal.policy.shell.walk import Walk

    return Walk, Unjudgeable


def _shadowed(part: Part, functions: set[str]) -> Part:
    """Mark a command whose name the command line itself defines as a function."""
    if part.words and part.words[0] in functions:
        why = f"{part.words[0]} is defined by the command itself"
        return replace(part, argv=None, read_only=False, why=why)
    return part
