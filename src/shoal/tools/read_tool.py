"""The Read tool, which returns a file as numbered lines, images, pages or cells."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Annotated, BinaryIO

from msgspec import Meta, Struct

from shoal.core.conversation.messages import Base64ImageSource, ImageBlock, TextBlock
from shoal.core.conversation.tools import ToolContext, ToolOutput, create_tool_error_output
from shoal.core.text.filenames import escape_filename
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.images import MAX_IMAGE_BYTES, MAX_INPUT_BYTES, detect_image_type
from shoal.tools.missing_paths import report_missing_path, stat_path
from shoal.tools.text_files import (
    MAX_LINE_CHARACTERS,
    TextFile,
    describe_binary_file_kind,
    format_numbered_lines,
    is_binary_content,
    parse_text_file,
    shorten_long_line,
    split_lines,
)
from shoal.tools.tool_texts import format_tool_text

MAX_LINES = 2000
MAX_WHOLE_BYTES = 10 * 1024 * 1024
MAX_OUTPUT_CHARACTERS = 100_000
_SNIFFED_BYTES = 8192
_MAX_LISTED_NAMES = 50

_Line = Annotated[int, Meta(ge=0)]
_Count = Annotated[int, Meta(ge=1)]
_CHUNK = 1024 * 1024
_MAX_SCANNED_BYTES = 64 * _CHUNK
# A character has at most four bytes.
_LINE_BYTES = MAX_LINE_CHARACTERS * 4


class FileLineWindow(Struct, frozen=True, kw_only=True):
    lines: tuple[str, ...]
    lines_passed: int
    """Lines read or skipped in total."""
    is_at_end: bool
    """True if the file ends here."""


def read_line_window(file: BinaryIO, first: int, limit: int, max_characters: int) -> FileLineWindow:
    """Read `limit` lines from line `first` on, or as many as reach `max_characters`."""
    file.seek(0)
    skipped = _skip_lines(file, first - 1)
    lines: list[str] = []
    length = 0
    while len(lines) < limit and length < max_characters:
        line, is_complete = _read_shortened_line(file)
        if line is None:
            return FileLineWindow(lines=tuple(lines), lines_passed=skipped + len(lines), is_at_end=True)
        lines.append(line)
        length += len(line)
        if not is_complete:
            break
    return FileLineWindow(lines=tuple(lines), lines_passed=skipped + len(lines), is_at_end=not file.peek(1))  # type: ignore[attr-defined]


def _skip_lines(file: BinaryIO, count: int) -> int:
    """Skip up to `count` lines; return how many were skipped."""
    skipped = 0
    while skipped < count:
        chunk = file.read(_CHUNK)
        if not chunk:
            break
        line_ends = chunk.count(b"\n")
        if skipped + line_ends < count:
            skipped += line_ends
            continue
        position = -1
        for _ in range(count - skipped):
            position = chunk.index(b"\n", position + 1)
        file.seek(position + 1 - len(chunk), 1)
        return count
    return skipped


def _read_shortened_line(file: BinaryIO) -> tuple[str | None, bool]:
    """Return the next line, shortened for display, and True if its end was found."""
    start = file.readline(_LINE_BYTES)
    if not start:
        return None, True
    if start.endswith(b"\n") or len(start) < _LINE_BYTES:
        return shorten_long_line(start.removesuffix(b"\n").decode(errors="replace")), True
    length = len(start)
    while length < _MAX_SCANNED_BYTES:
        rest = file.readline(_CHUNK)
        length += len(rest)
        if not rest or rest.endswith(b"\n"):
            return shorten_long_line(start.decode(errors="replace"), length), True
    return shorten_long_line(
        start.decode(errors="replace"), length
    ) + " [line continues; stopped here]", False


@builtin_tool(name="Read", reads_only=True, deadline=60)
async def read_tool(
    context: ToolContext,
    file_path: str,
    offset: _Line | None = None,
    limit: _Count | None = None,
    pages: str | None = None,
) -> ToolOutput:
    path = context.workspace.resolve_path(file_path)
    status = stat_path(path)
    if status is None:
        return report_missing_path(path, context)
    if stat.S_ISDIR(status.st_mode):
        return _refuse_directory(path)
    requested = _FileReadRange(first=max(1, offset or 1), limit=limit or MAX_LINES, pages=pages)
    with context.workspace.open_file(path) as file:
        return await _read_content_by_kind(context, path, file, requested)


class _FileReadRange(Struct, frozen=True, kw_only=True):
    first: int
    limit: int
    pages: str | None


async def _read_content_by_kind(
    context: ToolContext, path: Path, file: BinaryIO, requested: _FileReadRange
) -> ToolOutput:
    start = file.read(_SNIFFED_BYTES)
    size = file.seek(0, os.SEEK_END)
    if media_type := detect_image_type(start):
        return await _read_image(path, media_type, size, context)
    if start.startswith(b"%PDF-"):
        from shoal.tools.pdf_reader import read_pdf_text

        return await asyncio.to_thread(read_pdf_text, path, file, requested.pages)
    if is_binary_content(start):
        return _refuse_binary_file(path, start, size)
    if size > MAX_WHOLE_BYTES:
        return await _read_line_range(path, file, size, requested)
    return _format_whole_file(path, context.workspace.read_file(path), requested)


def _format_whole_file(path: Path, content: bytes, requested: _FileReadRange) -> ToolOutput:
    if path.suffix == ".ipynb":
        from shoal.tools.notebook_reader import format_notebook

        output = format_notebook(content)
        if output is not None:
            return output
    text_file = parse_text_file(content)
    if text_file is None:
        return _refuse_binary_file(path, content[:_SNIFFED_BYTES], len(content))
    return _format_numbered_lines(path, text_file, requested.first, requested.limit)


def _refuse_binary_file(path: Path, start: bytes, size: int) -> ToolOutput:
    return create_tool_error_output(
        format_tool_text(
            "Read",
            "binary",
            path=escape_filename(path),
            kind=describe_binary_file_kind(start),
            size=f"{size:,}",
        )
    )


def _format_numbered_lines(path: Path, file: TextFile, first: int, limit: int) -> ToolOutput:
    lines = split_lines(file.text)
    if not lines:
        return ToolOutput(content=format_tool_text("Read", "empty", path=escape_filename(path)))
    if first > len(lines):
        return create_tool_error_output(_describe_missing_line(path, len(lines), first))
    text = format_numbered_lines(lines[first - 1 : first - 1 + limit], first)
    last = min(first - 1 + limit, len(lines))
    if len(text) > MAX_OUTPUT_CHARACTERS:
        text = text[: text.rfind("\n", 0, MAX_OUTPUT_CHARACTERS)]
        last = first + text.count("\n")
    notes = [file.note] if file.note else []
    if last < len(lines):
        notes.append(
            format_tool_text(
                "Read",
                "more_lines",
                first=f"{first:,}",
                last=f"{last:,}",
                total=f"{len(lines):,}",
                next=last + 1,
            )
        )
    return ToolOutput(content="\n".join([text, *notes]), data={"total_lines": len(lines)})


async def _read_line_range(path: Path, file: BinaryIO, size: int, requested: _FileReadRange) -> ToolOutput:
    first = requested.first
    window: FileLineWindow = await asyncio.to_thread(
        read_line_window, file, first, requested.limit, MAX_OUTPUT_CHARACTERS
    )
    if not window.lines:
        return create_tool_error_output(_describe_missing_line(path, window.lines_passed, first))
    last = first + len(window.lines) - 1
    text = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(window.lines, first))
    hint = "" if window.is_at_end else f" {format_tool_text('Read', 'part_hint', next=last + 1)}"
    note = format_tool_text("Read", "part", first=f"{first:,}", last=f"{last:,}", size=f"{size:,}", hint=hint)
    return ToolOutput(content=f"{text}\n{note}")


def _describe_missing_line(path: Path, count: int, line: int) -> str:
    return format_tool_text(
        "Read",
        "missing_line",
        path=escape_filename(path),
        lines="1 line" if count == 1 else f"{count:,} lines",
        line=f"{line:,}",
    )


async def _read_image(path: Path, media_type: str, size: int, context: ToolContext) -> ToolOutput:
    if size > MAX_INPUT_BYTES:
        return create_tool_error_output(
            format_tool_text(
                "Read",
                "large_image",
                path=escape_filename(path),
                media_type=media_type,
                size=f"{size:,}",
                maximum=f"{MAX_INPUT_BYTES:,}",
            )
        )
    import base64

    from shoal.tools.fitted_images import UnfittingImage, fit_image

    content = context.workspace.read_file(path)
    fitted = await asyncio.to_thread(fit_image, content, media_type, max_bytes=MAX_IMAGE_BYTES)
    if isinstance(fitted, UnfittingImage):
        return create_tool_error_output(
            format_tool_text("Read", "unfitting_image", path=escape_filename(path), reason=fitted.reason)
        )
    data = base64.b64encode(fitted.content).decode()
    scaled = ""
    if fitted.scaled_from is not None:
        width, height = fitted.scaled_from
        scaled = f", scaled down from {width:,} x {height:,} pixels"
    caption = TextBlock(text=f"{escape_filename(path)}: {media_type}, {size:,} bytes{scaled}")
    return ToolOutput(
        content=(caption, ImageBlock(source=Base64ImageSource(media_type=fitted.media_type, data=data)))
    )


def _refuse_directory(path: Path) -> ToolOutput:
    try:
        names = sorted(escape_filename(entry.name) + "/" * entry.is_dir() for entry in path.iterdir())
    except OSError as error:
        return create_tool_error_output(
            format_tool_text("Read", "closed_directory", path=escape_filename(path), error=error.strerror)
        )
    listing = "\n".join(names[:_MAX_LISTED_NAMES])
    rest = f"\n… and {len(names) - _MAX_LISTED_NAMES:,} more" if len(names) > _MAX_LISTED_NAMES else ""
    return create_tool_error_output(
        format_tool_text(
            "Read",
            "directory",
            path=escape_filename(path),
            entries="1 entry" if len(names) == 1 else f"{len(names):,} entries",
            listing=listing + rest,
        )
    )
