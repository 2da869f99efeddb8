"""Limits of tool results in the conversation: bounded in size, with the runtime's control tags escaped.

The full text of a truncated result is stored in a file.
"""

from __future__ import annotations

import re

import msgspec

from shoal.core.control_tags import escape_control_tags
from shoal.core.messages import TextBlock, ToolUseBlock
from shoal.core.ports import ResultStore
from shoal.core.tools import ToolOutput

EMPTY_OUTPUT = "(no output)"


def limit_and_escape_tool_output(
    output: ToolOutput, call: ToolUseBlock, results: ResultStore, limit: int
) -> ToolOutput:
    limited = limit_tool_output_size(output, call, results, limit)
    if isinstance(limited.content, str):
        text = escape_control_tags(limited.content)
        return limited if text is limited.content else msgspec.structs.replace(limited, content=text)
    return msgspec.structs.replace(
        limited,
        content=tuple(
            TextBlock(text=escape_control_tags(block.text)) if isinstance(block, TextBlock) else block
            for block in limited.content
        ),
    )


def limit_tool_output_size(
    output: ToolOutput, call: ToolUseBlock, results: ResultStore, limit: int
) -> ToolOutput:
    if isinstance(output.content, str):
        if len(output.content) <= limit:
            # To a model, an empty result looks like a failure of the tool.
            return output if output.content else msgspec.structs.replace(output, content=EMPTY_OUTPUT)
        return msgspec.structs.replace(
            output, content=_truncate_text_and_save_original(output.content, call, results, limit)
        )
    blocks = tuple(
        TextBlock(text=_truncate_text_and_save_original(block.text, call, results, limit))
        if isinstance(block, TextBlock) and len(block.text) > limit
        else block
        for block in output.content
    )
    return msgspec.structs.replace(output, content=blocks or EMPTY_OUTPUT)


def _truncate_text_and_save_original(text: str, call: ToolUseBlock, results: ResultStore, limit: int) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{call.name}-{call.id}")[:100] + ".txt"
    path = results.save_result(name, text.encode("utf-8", "surrogateescape"))
    head, tail = text[: limit * 3 // 4], text[-limit // 4 :]
    return (
        f"{head}\n\n[… {len(text) - len(head) - len(tail):,} of {len(text):,} characters are left out here. "
        f"The whole result is in {path}: read it in parts with Read, or search it with Grep. …]\n\n{tail}"
    )
