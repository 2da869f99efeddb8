"""Texts that adapters add to requests for models without tools or images, from the files in `prompts`."""

from __future__ import annotations

from pathlib import Path

from shoal.core.text.model_texts import ModelTexts, fill_template

_TEXTS = ModelTexts(Path(__file__).parent / "prompts")


def format_tool_instructions(tools: str) -> str:
    """Return the part of the system prompt that explains tools to a model without tool support."""
    return fill_template(_TEXTS.load_text("tool_emulation").rstrip("\n"), tools=tools)


def format_request_notice(key: str, /, **values: object) -> str:
    """Return a section of `notices.md` with its placeholders filled in."""
    return _TEXTS.fill_section("notices", key, **values)
