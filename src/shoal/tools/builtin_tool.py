"""Builds Shoal's own tools: the signature becomes the schema, a file in `prompts` describes it to models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.tools.function_tool import FunctionTool
from shoal.tools.tool_texts import load_input_texts, load_tool_description


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
        return FunctionTool(
            function,
            name=name,
            description=load_tool_description(name) if description is None else description,
            reads_only=reads_only,
            deadline=deadline,
            concurrent=concurrent,
            input_texts=load_input_texts(name),
        )

    return make_tool
