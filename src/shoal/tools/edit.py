"""The Edit tool, which replaces an exact piece of a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from shoal.core.differences import changed_lines
from shoal.core.filenames import shown
from shoal.core.neutral import original
from shoal.core.tools import Outcome, Site, failed
from shoal.tools.closest import closest_place
from shoal.tools.define import tool
from shoal.tools.nearby import missing, state_of
from shoal.tools.texts import TextFile, kind_of, lines_of, numbered, text_file

_CONTEXT = 3
_MOST_SHOWN = 40
_LISTED = 10


@tool(name="Edit", deadline=60)
async def edit(
    site: Site,
    file_path: Annotated[str, "The file, absolute or relative to the working directory"],
    old_string: Annotated[str, "The exact text to replace, without the line numbers that Read shows"],
    new_string: Annotated[str, "The text to put in its place"],
    replace_all: Annotated[bool, "Replace every place where old_string occurs"] = False,  # noqa: FBT002 - passed by keyword only
) -> Outcome:
    """Replace a piece of a file by another. old_string must be in the file exactly, white space included, and
    once only: give more of the lines around it to make it unique, or set replace_all. The file must have been
    read in this session and not have changed since. When the text is not found, the closest place is told."""
    path = site.workspace.locate(file_path)
    if old_string == new_string:
        return failed("old_string and new_string are the same; there is nothing to change.")
    if state_of(path) is None:
        return missing(path, site) if old_string else _created(site, path, new_string)
    content = site.workspace.current(path)
    file = text_file(content)
    if file is None:
        return failed(f"{shown(path)} is {kind_of(content)} and cannot be edited as text.")
    old, new = _as_in(file, old_string, new_string)
    count = file.text.count(old) if old else int(not file.text)
    if count == 0:
        return failed(await asyncio.to_thread(_not_found, path, file.text, old))
    if count > 1 and not replace_all:
        return failed(_several(path, file.text, old, count))
    first = file.text.index(old)
    text = file.text.replace(old, new)
    site.workspace.write(path, file.encoded(text))
    return _changed(path, file.text, text, first, new, count)


def _as_in(file: TextFile, old: str, new: str) -> tuple[str, str]:
    """Return both pieces with the file's line endings; the model only ever sees \\n."""
    if file.crlf:
        return old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if old not in file.text and "\r" not in old:
        with_returns = old.replace("\n", "\r\n")
        if with_returns in file.text:
            return with_returns, new.replace("\n", "\r\n")
    if old not in file.text and original(old) in file.text:
        # Read escapes tags reserved for the runtime; the file has them unescaped.
        return original(old), original(new)
    return old, new


def _created(site: Site, path: Path, content: str) -> Outcome:
    site.workspace.write(path, TextFile(text="").encoded(content))
    added = len(lines_of(content))
    return Outcome(
        content=f"Created {shown(path)}.", data={"path": shown(path), "added": added, "removed": 0}
    )


def _changed(path: Path, before: str, after: str, at: int, new: str, count: int) -> Outcome:
    added, removed = changed_lines(before, after)
    line = after.count("\n", 0, at)
    start = max(0, line - _CONTEXT)
    end = line + new.count("\n") + 1 + _CONTEXT
    snippet = numbered(lines_of(after)[start : min(end, start + _MOST_SHOWN)], start + 1)
    times = "" if count == 1 else f" in {count} places; the first"
    return Outcome(
        content=f"Changed {shown(path)}{times}:\n{snippet}",
        data={"path": shown(path), "added": added, "removed": removed, "replaced": count},
    )


def _several(path: Path, text: str, old: str, count: int) -> str:
    lines: list[str] = []
    at = -1
    while len(lines) < min(count, _LISTED):
        at = text.index(old, at + 1)
        lines.append(str(text.count("\n", 0, at) + 1))
    more = ", …" if count > _LISTED else ""
    return (
        f"old_string occurs {count} times in {shown(path)}, on lines {', '.join(lines)}{more}. "
        "Nothing was changed. Give more of the text around the one you mean, or set replace_all."
    )


def _not_found(path: Path, text: str, old: str) -> str:
    if not old:
        return f"old_string is empty, and {shown(path)} is not. Use Write to replace it whole."
    return f"old_string is not in {shown(path)}. Nothing was changed. {closest_place(text, old)}"
