"""The Read tool, which returns a file as numbered lines, images, pages or cells."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Annotated, BinaryIO

from msgspec import Meta, Struct

from shoal.core.filenames import shown
from shoal.core.messages import Base64Source, Image, Text
from shoal.core.tools import Outcome, Site, failed
from shoal.tools.define import tool
from shoal.tools.nearby import missing, state_of
from shoal.tools.pictures import picture_type
from shoal.tools.read_parts import Window, window
from shoal.tools.texts import TextFile, is_binary, kind_of, lines_of, numbered, text_file

MOST_LINES = 2000
LARGEST_WHOLE = 10 * 1024 * 1024
LARGEST_OUTPUT = 100_000
LARGEST_IMAGE = 3_750_000
_SNIFFED = 8192
_LISTED = 50

_Line = Annotated[int, Meta(ge=0)]
_Count = Annotated[int, Meta(ge=1)]


@tool(name="Read", reads_only=True, deadline=60)
async def read(
    site: Site,
    file_path: Annotated[str, "The file, absolute or relative to the working directory"],
    offset: Annotated[_Line | None, "The first line to read, counted from 1"] = None,
    limit: Annotated[_Count | None, "How many lines to read"] = None,
    pages: Annotated[str | None, 'For PDF files: the pages to read, as "3" or "1-5"'] = None,
) -> Outcome:
    """Read a file. Text comes with line numbers, at most 2,000 lines at a time; use offset and limit for more
    and for very large files. Images are shown, PDF files give their text (20 pages at a time, see pages),
    notebooks their cells with outputs. A file must be read before it is edited or overwritten. To see what is
    in a directory use Glob."""
    path = site.workspace.locate(file_path)
    state = state_of(path)
    if state is None:
        return missing(path, site)
    if stat.S_ISDIR(state.st_mode):
        return _directory(path)
    asked = _Asked(first=max(1, offset or 1), limit=limit or MOST_LINES, pages=pages)
    with site.workspace.open(path) as file:
        return await _content(site, path, file, asked)


class _Asked(Struct, frozen=True, kw_only=True):
    first: int
    limit: int
    pages: str | None


async def _content(site: Site, path: Path, file: BinaryIO, asked: _Asked) -> Outcome:
    start = file.read(_SNIFFED)
    size = file.seek(0, os.SEEK_END)
    if media_type := picture_type(start):
        return _image(path, media_type, size, site)
    if start.startswith(b"%PDF-"):
        from shoal.tools.read_pdf import pdf_text

        return await asyncio.to_thread(pdf_text, path, file, asked.pages)
    if is_binary(start):
        return _binary(path, start, size)
    if size > LARGEST_WHOLE:
        return await _parts(path, file, size, asked)
    return _whole(path, site.workspace.read(path), asked)


def _whole(path: Path, content: bytes, asked: _Asked) -> Outcome:
    if path.suffix == ".ipynb":
        from shoal.tools.read_notebook import notebook_outcome

        outcome = notebook_outcome(content)
        if outcome is not None:
            return outcome
    text = text_file(content)
    if text is None:
        return _binary(path, content[:_SNIFFED], len(content))
    return _lines(path, text, asked.first, asked.limit)


def _binary(path: Path, start: bytes, size: int) -> Outcome:
    return failed(
        f"{shown(path)} is {kind_of(start)} of {size:,} bytes and cannot be shown as text. "
        "Look at it with a command made for its kind."
    )


def _lines(path: Path, file: TextFile, first: int, limit: int) -> Outcome:
    lines = lines_of(file.text)
    if not lines:
        return Outcome(content=f"({shown(path)} exists and is empty)")
    if first > len(lines):
        return failed(f"{shown(path)} has {len(lines):,} lines; there is no line {first:,}.")
    text = numbered(lines[first - 1 : first - 1 + limit], first)
    last = min(first - 1 + limit, len(lines))
    if len(text) > LARGEST_OUTPUT:
        text = text[: text.rfind("\n", 0, LARGEST_OUTPUT)]
        last = first + text.count("\n")
    marks = [file.note] if file.note else []
    if last < len(lines):
        marks.append(
            f"[Lines {first:,} to {last:,} of {len(lines):,}. Go on with offset={last + 1}, or use Grep.]"
        )
    return Outcome(content="\n".join([text, *marks]))


async def _parts(path: Path, file: BinaryIO, size: int, asked: _Asked) -> Outcome:
    first = asked.first
    found: Window = await asyncio.to_thread(window, file, first, asked.limit, LARGEST_OUTPUT)
    if not found.lines:
        return failed(f"{shown(path)} has {found.passed:,} lines; there is no line {first:,}.")
    last = first + len(found.lines) - 1
    text = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(found.lines, first))
    more = "" if found.ended else f" Go on with offset={last + 1}, or use Grep."
    return Outcome(
        content=f"{text}\n[Lines {first:,} to {last:,} of a file of {size:,} bytes, read in parts.{more}]"
    )


def _image(path: Path, media_type: str, size: int, site: Site) -> Outcome:
    if size > LARGEST_IMAGE:
        return failed(
            f"{shown(path)} is a picture ({media_type}) of {size:,} bytes; {LARGEST_IMAGE:,} can be shown. "
            "Make a smaller copy with a command and read that."
        )
    import base64

    data = base64.b64encode(site.workspace.read(path)).decode()
    told = Text(text=f"{shown(path)}: {media_type}, {size:,} bytes")
    return Outcome(content=(told, Image(source=Base64Source(media_type=media_type, data=data))))


def _directory(path: Path) -> Outcome:
    try:
        names = sorted(shown(entry.name) + "/" * entry.is_dir() for entry in path.iterdir())
    except OSError as error:
        return failed(f"{shown(path)} is a directory that cannot be listed: {error.strerror}.")
    listed = "\n".join(names[:_LISTED])
    more = f"\n… and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return failed(f"{shown(path)} is a directory of {len(names):,} entries, not a file:\n{listed}{more}")
