"""The Grep tool, which searches file contents with ripgrep."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from shoal.core.conversation.tools import ToolContext, ToolOutput, create_tool_error_output
from shoal.core.text.filenames import escape_filename
from shoal.core.text.text_format import format_count_with_noun
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.function_tool import ToolParameterName
from shoal.tools.missing_paths import report_missing_path, stat_path
from shoal.tools.ripgrep import NEVER_SEARCHED, RipgrepResult, find_ripgrep, run_ripgrep
from shoal.tools.tool_texts import format_tool_text, load_tool_text

MAX_ENTRIES = 250
_MAX_SEARCH_BYTES = 4 * 1024 * 1024
_MAX_OUTPUT_CHARACTERS = 60_000
_MAX_LINE_CHARACTERS = 500
# ripgrep's default order changes from run to run, so paging with an offset would miss lines.
_SORT_BY_PATH = "--sort=path"
_OutputMode = Literal["files_with_matches", "content", "count"]
_ContextLines = Annotated[int, Meta(ge=0, le=1000)]


@builtin_tool(name="Grep", reads_only=True, deadline=60)
async def grep_tool(  # noqa: PLR0913 - these are the arguments models know
    context: ToolContext,
    pattern: str,
    *,
    path: str | None = None,
    glob: str | None = None,
    type: str | None = None,  # noqa: A002
    output_mode: _OutputMode = "files_with_matches",
    after: Annotated[_ContextLines | None, ToolParameterName("-A")] = None,
    before: Annotated[_ContextLines | None, ToolParameterName("-B")] = None,
    around: Annotated[_ContextLines | None, ToolParameterName("-C")] = None,
    numbers: Annotated[bool, ToolParameterName("-n")] = True,
    ignore_case: Annotated[bool, ToolParameterName("-i")] = False,
    multiline: bool = False,
    head_limit: Annotated[int, Meta(ge=0)] = MAX_ENTRIES,
    offset: Annotated[int, Meta(ge=0)] = 0,
) -> ToolOutput:
    top = context.workspace.cwd if path is None else context.workspace.resolve_path(path)
    if stat_path(top) is None:
        return report_missing_path(top, context)
    ripgrep = find_ripgrep(context)
    if ripgrep is None:
        return create_tool_error_output(load_tool_text("Grep", "not_installed"))
    arguments = ["--hidden", "--null", "--with-filename"]
    arguments += _build_ripgrep_mode_options(output_mode, after, before, around, numbers=numbers)
    arguments += ["--ignore-case"] * ignore_case + ["--multiline", "--multiline-dotall"] * multiline
    arguments += [f"--glob={glob}"] if glob else []
    arguments += [f"--type={type}"] if type else []
    # Last, because the last matching glob wins.
    arguments += [f"--glob=!{name}" for name in NEVER_SEARCHED]
    # -e and -- keep a pattern or path that starts with a dash from being parsed as an option.
    arguments += ["-e", pattern, "--", str(top)]
    if not all(map(_is_valid_process_argument, arguments)):
        return create_tool_error_output(format_tool_text("Grep", "invalid_characters"))
    directory = top if top.is_dir() else top.parent
    result = await run_ripgrep(context, arguments, rg=ripgrep, cwd=directory, max_bytes=_MAX_SEARCH_BYTES)
    if result.status == 2 and not result.output:
        return create_tool_error_output(format_tool_text("Grep", "failed", error=result.error_text))
    return _format_grep_results(
        _drop_unreadable_files(result, output_mode, top, context),
        output_mode,
        _GrepResultPageBounds(first=offset, limit=head_limit),
    )


def _is_valid_process_argument(argument: str) -> bool:
    try:
        return b"\0" not in os.fsencode(argument)
    except UnicodeEncodeError:
        return False


def _drop_unreadable_files(
    result: RipgrepResult, mode: _OutputMode, top: Path, context: ToolContext
) -> RipgrepResult:
    """Drop files that a rule makes unreadable although their directory may be searched."""
    real_top, start = os.path.realpath(top), os.fsencode(top)
    is_unreadable = context.unreadable_filter(real_top)
    readable_paths: dict[bytes, bool] = {}

    def is_readable(path: bytes) -> bool:
        readable = readable_paths.get(path)
        if readable is None:
            readable = readable_paths[path] = not is_unreadable(real_top + os.fsdecode(path[len(start) :]))
        return readable

    separator = b"\0" if mode == "files_with_matches" else b"\n"
    pieces: list[bytes] = []
    is_kept = True
    for piece in result.output.split(separator):
        # A piece without the path prefix is a separator or the rest of a file name with a line break.
        if piece.startswith(start):
            is_kept = is_readable(piece.partition(b"\0")[0])
        if is_kept:
            pieces.append(piece)
    return replace(
        result, output=separator.join(pieces), left_out=len(readable_paths) - sum(readable_paths.values())
    )


class _GrepResultPageBounds(Struct, frozen=True, kw_only=True):
    first: int
    limit: int
    """0 means no limit."""


def _build_ripgrep_mode_options(
    mode: _OutputMode, after: int | None, before: int | None, around: int | None, *, numbers: bool
) -> list[str]:
    if mode == "files_with_matches":
        return ["--files-with-matches"]
    if mode == "count":
        return ["--count", _SORT_BY_PATH]
    options = [
        _SORT_BY_PATH,
        "--no-heading",
        f"--max-columns={_MAX_LINE_CHARACTERS}",
        "--max-columns-preview",
        "--line-number" if numbers else "--no-line-number",
    ]
    for option, lines in (("--context", around), ("--after-context", after), ("--before-context", before)):
        if lines is not None:
            options.append(f"{option}={lines}")
    return options


def _format_grep_results(result: RipgrepResult, mode: _OutputMode, page: _GrepResultPageBounds) -> ToolOutput:
    if mode == "content":
        entries = _parse_matching_lines(result.output)
    elif mode == "count":
        entries = _parse_match_counts(result.output)
    else:
        entries = _list_matching_files_newest_first(result.output)
    last = page.first + page.limit if page.limit else len(entries)
    page_entries = entries[page.first : last]
    notes = []
    if result.left_out:
        notes.append(format_tool_text("Grep", "unreadable", count=f"{result.left_out:,}"))
    if not page_entries:
        message = (
            format_tool_text("Grep", "beyond_end", count=format_count_with_noun(len(entries), "result"))
            if entries
            else load_tool_text("Grep", "no_match")
        )
        return ToolOutput(content="\n".join([message, *notes]), data={"count": len(entries)})
    text, shown_entries = _lay_out_grep_entries(page_entries)
    remaining = len(entries) - page.first - shown_entries
    if remaining or result.truncated:
        omitted = f"{remaining:,}{' or more' if result.truncated else ''}"
        next_offset = page.first + shown_entries
        notes.append(format_tool_text("Grep", "more", count=omitted, offset=next_offset))
    if result.status == 2 and result.error_text:
        notes.append(format_tool_text("Grep", "unsearched", error=result.error_text[:300]))
    return ToolOutput(content="\n".join([text, *notes]), data={"count": len(entries), "shown": shown_entries})


class _GrepResultEntry(Struct, frozen=True):
    path: str
    """Empty if the line needs no path heading."""
    line: str


def _list_matching_files_newest_first(output: bytes) -> list[_GrepResultEntry]:
    paths = [name for name in os.fsdecode(output).split("\0") if name]
    return [_GrepResultEntry("", escape_filename(path)) for path in sorted(paths, key=_make_age_sort_key)]


def _make_age_sort_key(path: str) -> tuple[int, str]:
    try:
        return -Path(path).lstat().st_mtime_ns, path
    except OSError:
        return 0, path


def _parse_match_counts(output: bytes) -> list[_GrepResultEntry]:
    lines = (line.split("\0") for line in os.fsdecode(output).split("\n") if "\0" in line)
    return [_GrepResultEntry("", f"{escape_filename(path)}: {count}") for path, count, *_ in lines]


def _parse_matching_lines(output: bytes) -> list[_GrepResultEntry]:
    entries: list[_GrepResultEntry] = []
    for line in output.split(b"\n"):
        path, separator, text = line.partition(b"\0")
        if separator:
            entries.append(
                _GrepResultEntry(
                    escape_filename(os.fsdecode(path)), text.decode(errors="replace").rstrip("\r")
                )
            )
        elif line == b"--" and entries and entries[-1].line != "--":
            entries.append(_GrepResultEntry("", "--"))
    return entries


def _lay_out_grep_entries(entries: list[_GrepResultEntry]) -> tuple[str, int]:
    """Group entries under their paths, as many as fit; return the text and the number of entries."""
    lines: list[str] = []
    length, path = 0, ""
    for count, entry in enumerate(entries):
        if entry.path and entry.path != path:
            path = entry.path
            lines.append(path)
            length += len(path) + 1
        if length + len(entry.line) > _MAX_OUTPUT_CHARACTERS and count:
            return "\n".join(lines), count
        lines.append(entry.line)
        length += len(entry.line) + 1
    return "\n".join(lines), len(entries)
