"""The file tools of a session."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, to_builtins

from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput
from shoal.core.text.filenames import escape_filename
from shoal.core.text.text_diffs import count_changed_lines
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.edit_tool import edit_tool
from shoal.tools.glob_tool import glob_tool
from shoal.tools.grep_tool import grep_tool
from shoal.tools.missing_paths import stat_path
from shoal.tools.notebook_tool import notebook_edit
from shoal.tools.read_tool import read_tool
from shoal.tools.text_files import TextFile, parse_text_file, split_lines
from shoal.tools.tool_texts import format_tool_text

_CHECKBOXES = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


@builtin_tool(name="Write", deadline=60)
async def write_tool(
    context: ToolContext,
    file_path: str,
    content: str,
) -> ToolOutput:
    path = context.workspace.resolve_path(file_path)
    if stat_path(path) is None:
        context.workspace.write_file(path, TextFile(text="").encode_text(content))
        lines = len(split_lines(content))
        return ToolOutput(
            content=f"Created {escape_filename(path)}: {_format_line_count(lines)}.",
            data={"path": escape_filename(path), "added": lines, "removed": 0, "created": True},
        )
    current = context.workspace.read_file_for_change(path, intended=content.encode(errors="replace"))
    before = parse_text_file(current) or TextFile(text="")
    # The model never sees CR at line ends, so omitting them means nothing.
    encoded = before.encode_text(content)
    context.workspace.write_file(path, encoded)
    added, removed = count_changed_lines(before.text, content)
    lines = len(split_lines(content))
    format_note = f" {before.note}" if before.note else ""
    return ToolOutput(
        content=f"Wrote {escape_filename(path)}: {_format_line_count(lines)}, "
        f"{added} added, {removed} removed.{format_note}",
        data={
            "path": escape_filename(path),
            "added": added,
            "removed": removed,
            "changed": encoded != current,
        },
    )


def _format_line_count(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines:,} lines"


class TodoItem(Struct, frozen=True, kw_only=True, rename="camel"):
    content: Annotated[str, Meta(min_length=1)]
    status: Literal["pending", "in_progress", "completed"]
    active_form: Annotated[str, Meta(min_length=1)]


@builtin_tool(name="TodoWrite", deadline=5)
async def todo_write(
    todos: list[TodoItem],
) -> ToolOutput:
    listing = "\n".join(f"{_CHECKBOXES[todo.status]} {todo.content}" for todo in todos)
    active = sum(todo.status == "in_progress" for todo in todos)
    advice = f"\n{format_tool_text('TodoWrite', 'several_active', count=active)}" if active > 1 else ""
    return ToolOutput(
        content=format_tool_text("TodoWrite", "updated", listing=listing or "(empty)", advice=advice),
        data={"todos": to_builtins(todos)},
    )


def get_file_tools() -> tuple[Tool, ...]:
    """Return the file tools in the order shown to the model. They are stateless and shared by all agents."""
    return (read_tool, write_tool, edit_tool, glob_tool, grep_tool, notebook_edit, todo_write)
