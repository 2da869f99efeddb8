"""The Edit tool, which replaces an exact piece of a file."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from shoal.core.conversation.tools import ToolContext, ToolOutput, create_tool_error_output
from shoal.core.text.control_tags import unescape_control_tags
from shoal.core.text.filenames import escape_filename
from shoal.core.text.text_diffs import count_changed_lines, format_unified_diff
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.missing_paths import report_missing_path, stat_path
from shoal.tools.text_files import (
    TextFile,
    describe_binary_file_kind,
    format_numbered_lines,
    parse_text_file,
    split_lines,
)
from shoal.tools.tool_texts import format_tool_text

_CONTEXT_LINES = 3
_MAX_SHOWN_LINES = 40
_MAX_LISTED_LINES = 10
_LINE_NUMBER = re.compile(r"\s*\d+\t")
_MAX_LINES = 20_000
_MAX_CANDIDATES = 40
_MAX_COMPARED_CHARACTERS = 10_000


def describe_closest_text_match(text: str, piece: str) -> str:
    """Return one or two sentences, with the diff to the closest match."""
    piece_lines, lines = split_lines(piece), split_lines(text)
    if piece_lines and all(_LINE_NUMBER.match(line) for line in piece_lines):
        return format_tool_text("Edit", "line_numbers")
    start = _find_closest_stretch_start(lines[:_MAX_LINES], piece_lines)
    if start is None:
        return format_tool_text("Edit", "no_close_text")
    found = lines[start : start + len(piece_lines)]
    location = f"line {start + 1}" if len(found) == 1 else f"lines {start + 1} to {start + len(found)}"
    if [line.split() for line in found] == [line.split() for line in piece_lines]:
        location += ", where only whitespace differs"
    diff = format_unified_diff(piece, "\n".join(found))
    return format_tool_text("Edit", "closest_text", location=location, diff=diff)


def _find_closest_stretch_start(lines: list[str], searched: list[str]) -> int | None:
    """Return the index of the first line of the closest stretch of as many lines as are searched."""
    import difflib

    anchors = _find_candidate_stretch_starts(lines, searched)
    best, best_ratio = None, 0.4
    text = "\n".join(searched)[:_MAX_COMPARED_CHARACTERS]
    matcher = difflib.SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(text)
    for start in anchors:
        matcher.set_seq1("\n".join(lines[start : start + len(searched)])[:_MAX_COMPARED_CHARACTERS])
        if matcher.real_quick_ratio() <= best_ratio or matcher.quick_ratio() <= best_ratio:
            continue
        ratio = matcher.ratio()
        if ratio > best_ratio:
            best, best_ratio = start, ratio
    return best


def _find_candidate_stretch_starts(lines: list[str], searched: list[str]) -> list[int]:
    """Return starts of stretches that share a line with the searched ones, or one similar to the longest."""
    import difflib

    positions: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        positions.setdefault(line.strip(), []).append(number)
    rarest_first = sorted(
        {(line.strip(), number) for number, line in enumerate(searched) if line.strip()},
        key=lambda line: (len(positions.get(line[0], ())), -len(line[0])),
    )
    starts: dict[int, None] = {}
    for line, number in rarest_first:
        for position in positions.get(line, ())[:_MAX_CANDIDATES]:
            starts[max(0, position - number)] = None
    if not starts and rarest_first:
        line, number = max(rarest_first, key=lambda found: len(found[0]))
        for close in difflib.get_close_matches(line[:500], [key[:500] for key in positions], n=5, cutoff=0.5):
            starts.update((max(0, position - number), None) for position in positions.get(close, ())[:5])
    return list(starts)[:_MAX_CANDIDATES]


@builtin_tool(name="Edit", deadline=60)
async def edit_tool(
    context: ToolContext,
    file_path: str,
    old_string: str,
    new_string: str,
    replace_all: bool = False,  # noqa: FBT001, FBT002 - passed by keyword only
) -> ToolOutput:
    path = context.workspace.resolve_path(file_path)
    if old_string == new_string:
        return create_tool_error_output(format_tool_text("Edit", "same_strings"))
    if stat_path(path) is None:
        return (
            report_missing_path(path, context)
            if old_string
            else _create_edited_file(context, path, new_string)
        )
    content = context.workspace.read_file_for_change(path)
    file = parse_text_file(content)
    if file is None:
        return create_tool_error_output(
            format_tool_text(
                "Edit", "binary", path=escape_filename(path), kind=describe_binary_file_kind(content)
            )
        )
    old, new = _match_line_endings(file, old_string, new_string)
    count = file.text.count(old) if old else int(not file.text)
    if count == 0:
        return create_tool_error_output(
            await asyncio.to_thread(_describe_missing_old_string, path, file.text, old)
        )
    if count > 1 and not replace_all:
        return create_tool_error_output(_describe_ambiguous_old_string(path, file.text, old, count))
    first = file.text.index(old)
    text = file.text.replace(old, new)
    context.workspace.write_file(path, file.encode_text(text))
    return _format_edit_result(path, file.text, text, first, new, count)


def _match_line_endings(file: TextFile, old: str, new: str) -> tuple[str, str]:
    """Return both pieces with the file's line endings; the model only ever sees \\n."""
    if file.crlf:
        return old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if old not in file.text and "\r" not in old:
        crlf_old = old.replace("\n", "\r\n")
        if crlf_old in file.text:
            return crlf_old, new.replace("\n", "\r\n")
    if old not in file.text and unescape_control_tags(old) in file.text:
        # Read escapes tags reserved for the runtime; the file has them unescaped.
        return unescape_control_tags(old), unescape_control_tags(new)
    return old, new


def _create_edited_file(context: ToolContext, path: Path, content: str) -> ToolOutput:
    context.workspace.write_file(path, TextFile(text="").encode_text(content))
    added = len(split_lines(content))
    return ToolOutput(
        content=f"Created {escape_filename(path)}.",
        data={"path": escape_filename(path), "added": added, "removed": 0},
    )


def _format_edit_result(path: Path, before: str, after: str, offset: int, new: str, count: int) -> ToolOutput:
    added, removed = count_changed_lines(before, after)
    line = after.count("\n", 0, offset)
    start = max(0, line - _CONTEXT_LINES)
    end = line + new.count("\n") + 1 + _CONTEXT_LINES
    snippet = format_numbered_lines(split_lines(after)[start : min(end, start + _MAX_SHOWN_LINES)], start + 1)
    times = "" if count == 1 else f" in {count} places; the first"
    return ToolOutput(
        content=f"Changed {escape_filename(path)}{times}:\n{snippet}",
        data={
            "path": escape_filename(path),
            "added": added,
            "removed": removed,
            "replaced": count,
            "changed": before != after,
        },
    )


def _describe_ambiguous_old_string(path: Path, text: str, old: str, count: int) -> str:
    lines: list[str] = []
    offset = -1
    while len(lines) < min(count, _MAX_LISTED_LINES):
        offset = text.index(old, offset + 1)
        lines.append(str(text.count("\n", 0, offset) + 1))
    more = ", …" if count > _MAX_LISTED_LINES else ""
    return format_tool_text(
        "Edit", "several_matches", count=count, path=escape_filename(path), lines=", ".join(lines) + more
    )


def _describe_missing_old_string(path: Path, text: str, old: str) -> str:
    if not old:
        return format_tool_text("Edit", "empty_old_string", path=escape_filename(path))
    closest = describe_closest_text_match(text, old)
    return format_tool_text("Edit", "no_match", path=escape_filename(path), closest=closest)
