"""Reasons for which a call is refused or needs approval, from the files in `prompts`."""

from __future__ import annotations

from pathlib import Path

from shoal.core.text.model_texts import ModelTexts

_TEXTS = ModelTexts(Path(__file__).parent / "prompts")


def format_policy_notice(key: str, /, **values: object) -> str:
    """Return a section of `notices.md` with its placeholders filled in."""
    return _TEXTS.fill_section("notices", key, **values)


def format_shell_reason(key: str, /, **values: object) -> str:
    """Return a section of `shell.md`: why the analysis of a shell command asks, or what makes it ask."""
    return _TEXTS.fill_section("shell", key, **values)
