"""Refusals about names, tasks and schedules, and reasons why work ended, from the files in `prompts`.

Agents and people read them.
"""

from __future__ import annotations

from pathlib import Path

from shoal.core.text.model_texts import ModelTexts

_TEXTS = ModelTexts(Path(__file__).parent / "prompts")


def format_core_notice(key: str, /, **values: object) -> str:
    """Return a section of `notices.md` with its placeholders filled in."""
    return _TEXTS.fill_section("notices", key, **values)


def format_end_reason(key: str, /, **values: object) -> str:
    """Return a section of `endings.md`: why an agent, a command or a workflow ended."""
    return _TEXTS.fill_section("endings", key, **values)
