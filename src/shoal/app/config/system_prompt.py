"""System prompt of a session: the agent's role and its environment."""

from __future__ import annotations

import platform
from pathlib import Path

from shoal.agent.agent_texts import load_prompt
from shoal.app.model_notices import format_session_notice
from shoal.app.settings.settings import Settings
from shoal.core.clock import Clock, format_iso_time
from shoal.core.text.control_tags import escape_control_tags
from shoal.core.text.text_format import to_one_line
from shoal.workspaces.git_paths import contains_git_repository

_MANNER_HEADINGS = ("How you work\n", "Your answers\n")
"""Sections about how the lead works and answers, but not about what it must never do."""


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


_MAX_LANGUAGE_CHARS = 80
_MAX_ATTRIBUTION_CHARS = 1_000


def format_settings_instructions(settings: Settings, *, talks_to_person: bool) -> str:
    """Return what settings add to the prompt: the language of answers, and texts for commits."""
    parts: list[str] = []
    if talks_to_person and settings.writing.language:
        language = to_one_line(settings.writing.language)[:_MAX_LANGUAGE_CHARS]
        parts.append(format_session_notice("answer_language", language=language))
    texts = {"commit": settings.writing.attribution.commit, "pr": settings.writing.attribution.pr}
    if commit_text := _shorten_attribution(texts["commit"]):
        parts.append(format_session_notice("commit_attribution", text=commit_text))
    if pr_text := _shorten_attribution(texts["pr"]):
        parts.append(format_session_notice("pr_attribution", text=pr_text))
    hidden = [place for name, place in _ATTRIBUTED_PLACES.items() if texts[name] == ""]
    if hidden:
        parts.append(format_session_notice("no_attribution", places=" and ".join(hidden)))
    return "\n\n".join(parts)


def _shorten_attribution(text: str | None) -> str:
    return escape_control_tags((text or "").strip())[:_MAX_ATTRIBUTION_CHARS]


_ATTRIBUTED_PLACES = {"commit": "commit messages", "pr": "pull requests"}


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
