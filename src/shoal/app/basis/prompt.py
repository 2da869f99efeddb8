"""System prompt of a session: the agent's role and its environment."""

from __future__ import annotations

import platform
from functools import cache
from importlib.resources import files
from pathlib import Path

from shoal.core.clock import Clock, iso


def system_prompt(
    *,
    cwd: Path,
    clock: Clock,
    instead: str | None = None,
    also: str | None = None,
    instructions: str = "",
    granted: tuple[Path, ...] = (),
) -> str:
    """Build the system prompt, once per session: a prefix that changes cannot be cached."""
    base = instead if instead is not None else usual_prompt()
    facts = [
        f"Working directory: {cwd}",
        *(f"Also granted: {path}" for path in granted),
        f"Inside a git repository: {'yes' if _in_git(cwd) else 'no'}",
        f"Platform: {platform.system()} {platform.machine()}",
        date_line(clock),
    ]
    parts = [base.strip(), "Where you are\n" + "\n".join(facts), instructions]
    if also:
        parts.append(also.strip())
    return "\n\n".join(part for part in parts if part)


def date_line(clock: Clock) -> str:
    return f"Date: {iso(clock.now())[:10]}"


@cache
def usual_prompt() -> str:
    """Return the default prompt of the lead and of every teammate."""
    return (files("shoal.agent") / "prompts" / "lead.md").read_text("utf-8")


def _in_git(path: Path) -> bool:
    return any((place / ".git").exists() for place in (path, *path.parents))
