"""Builds Shoal's own tools: the signature becomes the schema, a file in `prompts` describes it to models.

A file starts with the description of the tool. Each `# name` section describes the input of that name, and
`# list.field` a field of the objects in a list; lines are joined, so that each sentence can have its own.
Sections named `text:…` are other texts of the tool.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.core.text.model_texts import ModelTexts, unwrap_lines
from shoal.tools.function_tool import FunctionTool

_TEXTS = ModelTexts(Path(__file__).parent / "prompts")
_TEXT_PREFIX = "text:"


def builtin_tool(
    *,
    name: str,
    description: str | None = None,
    reads_only: bool = False,
    deadline: float | None = 120,
    concurrent: bool = False,
) -> Callable[[Callable[..., Any]], FunctionTool]:
    """Build a tool from a function, like `tool`, with the texts of the file of that name."""

    def make_tool(function: Callable[..., Any]) -> FunctionTool:
        inputs = (key for key in _TEXTS.load_sections(name) if key and not key.startswith(_TEXT_PREFIX))
        return FunctionTool(
            function,
            name=name,
            description=load_tool_description(name) if description is None else description,
            reads_only=reads_only,
            deadline=deadline,
            concurrent=concurrent,
            input_texts={key: unwrap_lines(_TEXTS.load_sections(name)[key]) for key in inputs},
        )

    return make_tool


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
