"""The Write tool, which creates or replaces a file."""

from __future__ import annotations

from typing import Annotated

from shoal.core.differences import changed_lines
from shoal.core.filenames import shown
from shoal.core.tools import Outcome, Site
from shoal.tools.define import tool
from shoal.tools.nearby import state_of
from shoal.tools.texts import TextFile, lines_of, text_file


@tool(name="Write", deadline=60)
async def write(
    site: Site,
    file_path: Annotated[str, "The file, absolute or relative to the working directory"],
    content: Annotated[str, "All that the file shall hold"],
) -> Outcome:
    """Create a file, or replace one whole; missing directories are made. A file that exists must have been
    read in this session and not have changed since, else nothing is written and the difference is told. To
    change parts of a file use Edit."""
    path = site.workspace.locate(file_path)
    if state_of(path) is None:
        site.workspace.write(path, TextFile(text="").encoded(content))
        lines = len(lines_of(content))
        return Outcome(
            content=f"Created {shown(path)}: {_counted(lines)}.",
            data={"path": shown(path), "added": lines, "removed": 0},
        )
    current = site.workspace.current(path, intended=content.encode(errors="replace"))
    before = text_file(current) or TextFile(text="")
    # The model never sees CR at line ends, so omitting them means nothing.
    site.workspace.write(path, before.encoded(content))
    added, removed = changed_lines(before.text, content)
    lines = len(lines_of(content))
    kept = f" {before.note}" if before.note else ""
    return Outcome(
        content=f"Wrote {shown(path)}: {_counted(lines)}, {added} added, {removed} removed.{kept}",
        data={"path": shown(path), "added": added, "removed": removed},
    )


def _counted(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines:,} lines"
