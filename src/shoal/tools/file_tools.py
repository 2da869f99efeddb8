"""The file tools of a session."""

from __future__ import annotations

from shoal.core.tools import Tool
from shoal.tools.edit_tool import edit_tool
from shoal.tools.glob_tool import glob_tool
from shoal.tools.grep_tool import grep_tool
from shoal.tools.notebook_tool import notebook_edit
from shoal.tools.read_tool import read_tool
from shoal.tools.todo_tool import todo_write
from shoal.tools.write_tool import write_tool


def get_file_tools() -> tuple[Tool, ...]:
    """Return the file tools in the order shown to the model. They are stateless and shared by all agents."""
    return (read_tool, write_tool, edit_tool, glob_tool, grep_tool, notebook_edit, todo_write)
