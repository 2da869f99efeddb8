"""Texts of Shoal's own tools, from the files in `prompts`.

A file starts with the description of the tool. Each `# name` section describes the input of that name, and
`# list.field` a field of the objects in a list; lines are joined, so that each sentence can have its own.
Sections named `text:…` are other texts of the tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from shoal.core.text.model_texts import ModelTexts, unwrap_lines

_TEXTS = ModelTexts(Path(__file__).parent / "prompts")
_TEXT_PREFIX = "text:"


@cache
def load_input_texts(name: str) -> Mapping[str, str]:
    """Return the descriptions of a tool's inputs."""
    sections = _TEXTS.load_sections(name)
    return {
        key: unwrap_lines(text) for key, text in sections.items() if key and not key.startswith(_TEXT_PREFIX)
    }


@cache
def load_tool_description(name: str, *, without: str = "") -> str:
    """Return the description of a tool, without the lines that contain the given word."""
    lines = _TEXTS.load_sections(name)[""].split("\n")
    return unwrap_lines("\n".join(line for line in lines if not without or without not in line))


def load_tool_text(name: str, key: str) -> str:
    """Return the section `text:KEY` of a tool's file."""
    return unwrap_lines(_TEXTS.load_sections(name)[_TEXT_PREFIX + key])


def format_tool_text(name: str, key: str, /, **values: object) -> str:
    """Return the section `text:KEY` of a tool's file with its placeholders filled in, lines as they are."""
    return _TEXTS.fill_section(name, _TEXT_PREFIX + key, **values)
