"""Prompts and notices that the runtime gives to one agent, from the files in `prompts`."""

from __future__ import annotations

from pathlib import Path

from shoal.core.text.model_texts import ModelTexts

_TEXTS = ModelTexts(Path(__file__).parent / "prompts")


def load_prompt(name: str) -> str:
    """Return a prompt that fills a whole file."""
    return _TEXTS.load_text(name)


def format_notice(key: str, /, **values: object) -> str:
    """Return a section of `notices.md` with its placeholders filled in."""
    return _TEXTS.fill_section("notices", key, **values)
