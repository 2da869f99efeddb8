"""System prompt of a session: the agent's role and its environment."""

from __future__ import annotations

import platform
from pathlib import Path

from shoal.agent.agent_texts import load_prompt
from shoal.core.clock import Clock, format_iso_time
from shoal.workspaces.git_paths import contains_git_repository

_MANNER_HEADINGS = ("How you work\n", "Your answers\n")
"""Sections about how the lead works and answers; what it must never do is not among them."""


def build_system_prompt(
    *,
    cwd: Path,
    clock: Clock,
    replacement: str | None = None,
    appended: str | None = None,
    instructions: str = "",
    granted_directories: tuple[Path, ...] = (),
) -> str:
    """Build the system prompt, once per session: a prefix that changes cannot be cached."""
    base = replacement if replacement is not None else load_default_prompt()
    facts = [
        f"Working directory: {cwd}",
        *(f"Also granted: {path}" for path in granted_directories),
        f"Inside a git repository: {'yes' if _is_in_git(cwd) else 'no'}",
        f"Platform: {platform.system()} {platform.machine()}",
        format_date_line(clock),
    ]
    sections = [base.strip(), "Where you are\n" + "\n".join(facts), instructions]
    if appended:
        sections.append(appended.strip())
    return "\n\n".join(part for part in sections if part)


def format_date_line(clock: Clock) -> str:
    return f"Date: {format_iso_time(clock.now())[:10]}"


def load_default_prompt() -> str:
    """Return the default prompt of the lead and of every teammate."""
    return load_prompt("lead")


def load_prompt_without_manner() -> str:
    """Return the default prompt without the sections that an output style replaces."""
    sections = load_default_prompt().split("\n\n")
    return "\n\n".join(each for each in sections if not each.startswith(_MANNER_HEADINGS))


def _is_in_git(path: Path) -> bool:
    return any(contains_git_repository(place) for place in (path, *path.parents))
