"""Structured output option of a session."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.app.options import Options
from shoal.core.errors import SettingsError
from shoal.tools.structured import STRUCTURED_OUTPUT, StructuredOutput

_ASKED = f"Give your final answer with the tool {STRUCTURED_OUTPUT}: programs read that, not your text."


def with_form(options: Options) -> tuple[Options, StructuredOutput | None]:
    """Return options with the structured output tool added, and the tool; None without a schema."""
    form = options.output_schema
    if form is None:
        return options, None
    if any(tool.schema.name == STRUCTURED_OUTPUT for tool in options.tools):
        raise SettingsError(f"A tool of the caller's is named {STRUCTURED_OUTPUT}: rename it.")
    tool = StructuredOutput(form)
    available = options.available_tools
    also = f"{options.append_system_prompt}\n\n{_ASKED}" if options.append_system_prompt else _ASKED
    options = replace(
        options,
        tools=(*options.tools, tool),
        available_tools=None if available is None else (*available, STRUCTURED_OUTPUT),
        append_system_prompt=also,
    )
    return options, tool
