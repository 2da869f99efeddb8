"""The Glob tool, which finds files by name pattern, newest first."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from shoal.core.conversation.tools import ToolContext, ToolOutput, create_tool_error_output
from shoal.core.text.absolute_globs import split_absolute_glob
from shoal.core.text.filenames import escape_filename
from shoal.core.text.text_format import format_count_with_noun
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.glob_patterns import InvalidGlobError, compile_glob
from shoal.tools.missing_paths import report_missing_path, stat_path
from shoal.tools.ripgrep import NEVER_SEARCHED, find_ripgrep, run_ripgrep
from shoal.tools.tool_texts import format_tool_text

MAX_FILES = 100
_MAX_WALKED_FILES = 200_000
_MAX_LISTING_BYTES = 64 * 1024 * 1024
_SKIPPED_DIRECTORIES = frozenset({"node_modules", ".venv", "__pycache__", ".mypy_cache", ".tox"})


@builtin_tool(name="Glob", reads_only=True, deadline=60)
async def glob_tool(
    context: ToolContext,
    pattern: str,
    path: str | None = None,
) -> ToolOutput:
    top = context.workspace.cwd if path is None else context.workspace.resolve_path(path)
    if pattern.startswith("/"):
        # The decision about the call took this directory into account.
        directory, pattern = split_absolute_glob(pattern)
        top = Path(directory)
    if stat_path(top) is None:
        return report_missing_path(top, context)
    if not top.is_dir():
        return create_tool_error_output(format_tool_text("Glob", "file", path=escape_filename(top)))
    try:
        matches = compile_glob(pattern)
    except InvalidGlobError as error:
        return create_tool_error_output(
            format_tool_text("Glob", "invalid_pattern", pattern=repr(pattern[:200]), error=error)
        )
    listing = await _list_files_matching_glob(
        context, top, _build_readable_match_predicate(matches, top, context)
    )
    return await asyncio.to_thread(_format_glob_listing, top, pattern, listing)


def _build_readable_match_predicate(
    matches: Callable[[str], bool], top: Path, context: ToolContext
) -> Callable[[str], bool]:
    real_top = os.path.realpath(top)
    is_unreadable = context.unreadable_filter(real_top)
    return lambda name: matches(name) and not is_unreadable(os.path.normpath(f"{real_top}/{name}"))


class _GlobMatchListing(Struct, frozen=True, kw_only=True):
    names: list[str]
    ignored: bool = False
    """True if these are files that git ignores, because no others matched."""
    truncated: bool = False


async def _list_files_matching_glob(
    context: ToolContext, top: Path, matches: Callable[[str], bool]
) -> _GlobMatchListing:
    ripgrep = find_ripgrep(context)
    if ripgrep is None:
        return await asyncio.to_thread(_walk_files_without_ripgrep, top, matches)
    for ignored in (False, True):
        arguments = ["--files", "--null", "--hidden", *(f"--glob=!{name}" for name in NEVER_SEARCHED)]
        if ignored:
            arguments.append("--no-ignore")
        result = await run_ripgrep(context, arguments, rg=ripgrep, cwd=top, max_bytes=_MAX_LISTING_BYTES)
        names = await asyncio.to_thread(_filter_ripgrep_file_names, result.output, matches)
        if names:
            break
    return _GlobMatchListing(names=names, ignored=ignored, truncated=result.truncated)


def _filter_ripgrep_file_names(output: bytes, matches: Callable[[str], bool]) -> list[str]:
    return [name for name in os.fsdecode(output).split("\0") if name and matches(name)]


def _walk_files_without_ripgrep(top: Path, matches: Callable[[str], bool]) -> _GlobMatchListing:
    names: list[str] = []
    for count, name in enumerate(_iter_files(top)):
        if count == _MAX_WALKED_FILES:
            return _GlobMatchListing(names=names, truncated=True)
        if matches(name):
            names.append(name)
    return _GlobMatchListing(names=names)


def _iter_files(top: Path) -> Iterator[str]:
    for directory, subdirectories, files in os.walk(top):
        subdirectories[:] = [
            name for name in subdirectories if name not in NEVER_SEARCHED and name not in _SKIPPED_DIRECTORIES
        ]
        relative = os.path.relpath(directory, top)
        yield from files if relative == "." else (f"{relative}/{name}" for name in files)


def _format_glob_listing(top: Path, pattern: str, listing: _GlobMatchListing) -> ToolOutput:
    newest = sorted((-_get_modified_time(top / name), name) for name in listing.names)
    paths = [escape_filename(top / name) for _, name in newest[:MAX_FILES]]
    if not paths:
        return ToolOutput(
            content=format_tool_text("Glob", "no_match", path=escape_filename(top), pattern=repr(pattern)),
            data={"count": 0},
        )
    notes = []
    if len(newest) > MAX_FILES:
        notes.append(
            format_tool_text(
                "Glob", "more", count=format_count_with_noun(len(newest) - MAX_FILES, "older file")
            )
        )
    if listing.ignored:
        notes.append(format_tool_text("Glob", "ignored"))
    if listing.truncated:
        notes.append(format_tool_text("Glob", "truncated"))
    return ToolOutput(content="\n".join([*paths, *notes]), data={"count": len(newest), "shown": len(paths)})


def _get_modified_time(path: Path) -> int:
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return 0
