"""Error output for paths that do not exist, with suggestions."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from shoal.core.conversation.tools import ToolContext, ToolOutput, create_tool_error_output
from shoal.core.errors import WorkspaceError
from shoal.core.text.filenames import escape_filename
from shoal.tools.tool_texts import format_tool_text

_MAX_NAMES = 2000


def stat_path(path: Path) -> os.stat_result | None:
    """Return the stat result, or None if nothing is there. Raises `WorkspaceError` if access is denied."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise WorkspaceError(
            format_tool_text("Read", "no_access", path=escape_filename(path), error=error.strerror)
        ) from None


def report_missing_path(path: Path, context: ToolContext) -> ToolOutput:
    """Return failed output that names close matches, or the nearest existing directory."""
    import difflib

    name = escape_filename(path)
    if not path.parent.is_dir():
        nearest = next((parent for parent in path.parents if parent.is_dir()), Path("/"))
        return create_tool_error_output(
            format_tool_text("Read", "missing_directory", path=name, nearest=escape_filename(nearest))
        )
    try:
        names = [entry.name for entry in itertools.islice(path.parent.iterdir(), _MAX_NAMES)]
    except OSError:
        names = []
    close = difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
    same_stem = [name for name in names if Path(name).stem == path.stem and name not in close]
    suggestions = [escape_filename(path.parent / name) for name in (*close, *sorted(same_stem)[:3])]
    if suggestions:
        return create_tool_error_output(
            format_tool_text("Read", "similar_paths", path=name, paths=", ".join(suggestions))
        )
    return create_tool_error_output(
        format_tool_text("Read", "missing_file", path=name, cwd=escape_filename(context.workspace.cwd))
    )
