"""The Glob tool, which finds files by name pattern, newest first."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from shoal.core.filenames import shown
from shoal.core.tools import Outcome, Site, failed
from shoal.tools.define import tool
from shoal.tools.globs import BadGlob, matcher
from shoal.tools.nearby import missing, state_of
from shoal.tools.ripgrep import NEVER_SEARCHED, program, ripgrep

MOST_FILES = 100
_MOST_WALKED = 200_000
_MOST_LISTING = 64 * 1024 * 1024
_RARELY = frozenset({"node_modules", ".venv", "__pycache__", ".mypy_cache", ".tox"})


@tool(name="Glob", reads_only=True, deadline=60)
async def glob(
    site: Site,
    pattern: Annotated[str, "As **/*.py or src/**/*.{ts,tsx}; without a slash it fits at any depth"],
    path: Annotated[str | None, "The directory to search; the working directory if left out"] = None,
) -> Outcome:
    """Find files by a pattern of their names, newest first, at most 100. Files that git ignores are listed
    only when nothing else fits. To search in the content of files use Grep."""
    top = site.workspace.cwd if path is None else site.workspace.locate(path)
    if pattern.startswith("/"):
        top, pattern = _split(pattern)
        if not site.workspace.contains(top):
            return failed(f"The pattern leads to {shown(top)}, outside the project; give it as path.")
    if state_of(top) is None:
        return missing(top, site)
    if not top.is_dir():
        return failed(f"{shown(top)} is a file, not a directory to search.")
    try:
        named = matcher(pattern)
    except BadGlob as problem:
        return failed(f"Cannot search for {pattern[:200]!r}: {problem}.")
    listing = await _listing(site, top, _and_readable(named, top, site))
    return await asyncio.to_thread(_told, top, pattern, listing)


def _and_readable(named: Callable[[str], bool], top: Path, site: Site) -> Callable[[str], bool]:
    real = os.path.realpath(top)
    unreadable = site.unreadable(real)
    return lambda name: named(name) and not unreadable(os.path.normpath(f"{real}/{name}"))


class _Listing(Struct, frozen=True, kw_only=True):
    names: list[str]
    ignored: bool = False
    """True if these are files that git ignores, because no others matched."""
    cut: bool = False


def _split(pattern: str) -> tuple[Path, str]:
    """Split an absolute pattern into its leading directory without wildcards and the rest."""
    parts = Path(os.path.normpath(pattern)).parts
    fixed = 0
    while fixed < len(parts) - 1 and not set(parts[fixed]) & set("*?[{"):
        fixed += 1
    return Path(*parts[:fixed]), "./" + "/".join(parts[fixed:])


async def _listing(site: Site, top: Path, fits: Callable[[str], bool]) -> _Listing:
    rg = program(site)
    if rg is None:
        return await asyncio.to_thread(_walked, top, fits)
    for ignored in (False, True):
        arguments = ["--files", "--null", "--hidden", *(f"--glob=!{name}" for name in NEVER_SEARCHED)]
        if ignored:
            arguments.append("--no-ignore")
        found = await ripgrep(site, arguments, rg=rg, cwd=top, most=_MOST_LISTING)
        names = await asyncio.to_thread(_fitting, found.output, fits)
        if names:
            break
    return _Listing(names=names, ignored=ignored, cut=found.cut)


def _fitting(output: bytes, fits: Callable[[str], bool]) -> list[str]:
    return [name for name in os.fsdecode(output).split("\0") if name and fits(name)]


def _walked(top: Path, fits: Callable[[str], bool]) -> _Listing:
    names: list[str] = []
    for count, name in enumerate(_files_below(top)):
        if count == _MOST_WALKED:
            return _Listing(names=names, cut=True)
        if fits(name):
            names.append(name)
    return _Listing(names=names)


def _files_below(top: Path) -> Iterator[str]:
    for directory, below, files in os.walk(top):
        below[:] = [name for name in below if name not in NEVER_SEARCHED and name not in _RARELY]
        start = os.path.relpath(directory, top)
        yield from files if start == "." else (f"{start}/{name}" for name in files)


def _told(top: Path, pattern: str, listing: _Listing) -> Outcome:
    newest = sorted((-_changed(top / name), name) for name in listing.names)
    paths = [shown(top / name) for _, name in newest[:MOST_FILES]]
    if not paths:
        return Outcome(content=f"No file below {shown(top)} fits {pattern!r}.", data={"count": 0})
    marks = []
    if len(newest) > MOST_FILES:
        marks.append(f"[{len(newest) - MOST_FILES:,} more, older ones left out. Use a narrower pattern.]")
    if listing.ignored:
        marks.append("[All of these are files that git ignores.]")
    if listing.cut:
        marks.append("[There are more files here than are looked through; give a directory as path.]")
    return Outcome(content="\n".join([*paths, *marks]), data={"count": len(newest)})


def _changed(path: Path) -> int:
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return 0
