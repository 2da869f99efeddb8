"""The file tools of a session."""

from __future__ import annotations

from shoal.core.tools import Tool
from shoal.tools.edit import edit
from shoal.tools.glob import glob
from shoal.tools.grep import grep
from shoal.tools.notebook import notebook_edit
from shoal.tools.read import read
from shoal.tools.todo import todo_write
from shoal.tools.write import write


def file_tools() -> tuple[Tool, ...]:
    """Return the file tools in the order shown to the model. They are stateless and shared by all agents."""
    return (read, write, edit, glob, grep, notebook_edit, todo_write)
