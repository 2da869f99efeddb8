"""Structured output option of a session."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.app.options import Options
from shoal.core.errors import SettingsError
from shoal.tools.structured_output_tool import STRUCTURED_OUTPUT, StructuredOutputTool

_OUTPUT_INSTRUCTION = (
    f"Give your final answer with the tool {STRUCTURED_OUTPUT}: programs read that, not your text."
)


def add_structured_output_tool(options: Options) -> tuple[Options, StructuredOutputTool | None]:
    """Return options with the structured output tool added, and the tool; None without a schema."""
    schema = options.output_schema
    if schema is None:
        return options, None
    if any(tool.schema.name == STRUCTURED_OUTPUT for tool in options.tools):
        raise SettingsError(f"A tool of the caller's is named {STRUCTURED_OUTPUT}: rename it.")
    tool = StructuredOutputTool(schema)
    available = options.available_tools
    appended_prompt = (
        f"{options.append_system_prompt}\n\n{_OUTPUT_INSTRUCTION}"
        if options.append_system_prompt
        else _OUTPUT_INSTRUCTION
    )
    options = replace(
        options,
        tools=(*options.tools, tool),
        available_tools=None if available is None else (*available, STRUCTURED_OUTPUT),
        append_system_prompt=appended_prompt,
    )
    return options, tool
