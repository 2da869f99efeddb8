"""The Write tool, which creates or replaces a file."""

from __future__ import annotations

from typing import Annotated

from shoal.core.filenames import escape_filename
from shoal.core.text_diffs import count_changed_lines
from shoal.core.tools import ToolContext, ToolOutput
from shoal.tools.function_tool import tool
from shoal.tools.missing_paths import stat_path
from shoal.tools.text_files import TextFile, parse_text_file, split_lines


@tool(name="Write", deadline=60)
async def write_tool(
    context: ToolContext,
    file_path: Annotated[str, "The file, absolute or relative to the working directory"],
    content: Annotated[str, "All that the file shall hold"],
) -> ToolOutput:
    """Create a file, or replace one whole; missing directories are made. A file that exists must have been
    read in this session and not have changed since, else nothing is written and the difference is told. To
    change parts of a file use Edit."""
    path = context.workspace.resolve_path(file_path)
    if stat_path(path) is None:
        context.workspace.write_file(path, TextFile(text="").encode_text(content))
        lines = len(split_lines(content))
        return ToolOutput(
            content=f"Created {escape_filename(path)}: {_format_line_count(lines)}.",
            data={"path": escape_filename(path), "added": lines, "removed": 0},
        )
    current = context.workspace.read_file_for_change(path, intended=content.encode(errors="replace"))
    before = parse_text_file(current) or TextFile(text="")
    # The model never sees CR at line ends, so omitting them means nothing.
    context.workspace.write_file(path, before.encode_text(content))
    added, removed = count_changed_lines(before.text, content)
    lines = len(split_lines(content))
    format_note = f" {before.note}" if before.note else ""
    return ToolOutput(
        content=f"Wrote {escape_filename(path)}: {_format_line_count(lines)}, "
        f"{added} added, {removed} removed.{format_note}",
        data={"path": escape_filename(path), "added": added, "removed": removed},
    )


def _format_line_count(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines:,} lines"
