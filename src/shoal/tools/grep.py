"""The Grep tool, which searches file contents with ripgrep."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from shoal.core.filenames import shown
from shoal.core.tools import Outcome, Site, failed
from shoal.tools.define import Named, tool
from shoal.tools.nearby import missing, state_of
from shoal.tools.ripgrep import NEVER_SEARCHED, NOT_INSTALLED, Found, program, ripgrep

MOST_ENTRIES = 250
_MOST_OUTPUT = 4 * 1024 * 1024
_LARGEST_OUTPUT = 60_000
_LONGEST_LINE = 500
# ripgrep's default order changes from run to run, so paging with an offset would miss lines.
_IN_ORDER = "--sort=path"
_Mode = Literal["files_with_matches", "content", "count"]
_Lines = Annotated[int, Meta(ge=0, le=1000)]


@tool(name="Grep", reads_only=True, deadline=60)
async def grep(  # noqa: PLR0913 - these are the arguments models know
    site: Site,
    pattern: Annotated[str, "A regular expression in ripgrep's syntax; escape braces to find them: \\{"],
    *,
    path: Annotated[str | None, "The file or directory to search; the working directory if left out"] = None,
    glob: Annotated[str | None, "Search only files whose names fit, as *.js or **/*.{ts,tsx}"] = None,
    type: Annotated[str | None, "Search only files of a type ripgrep knows: py, js, rust, …"] = None,  # noqa: A002
    output_mode: Annotated[_Mode, "Paths only, matching lines, or how many there are in each file"] = (
        "files_with_matches"
    ),
    after: Annotated[_Lines | None, Named("-A"), "Lines to show after each match (content)"] = None,
    before: Annotated[_Lines | None, Named("-B"), "Lines to show before each match (content)"] = None,
    around: Annotated[_Lines | None, Named("-C"), "Lines to show around each match (content)"] = None,
    numbers: Annotated[bool, Named("-n"), "Show line numbers (content)"] = True,
    ignore_case: Annotated[bool, Named("-i"), "Take upper and lower case for the same"] = False,
    multiline: Annotated[bool, "Let a match go over several lines; . matches newlines"] = False,
    head_limit: Annotated[int, Meta(ge=0), "Show at most so many entries or lines; 0 for all"] = MOST_ENTRIES,
    offset: Annotated[int, Meta(ge=0), "Leave out so many entries or lines at the start"] = 0,
) -> Outcome:
    """Search in the content of files with a regular expression. Gives the paths of files that match, newest
    first, or with output_mode content the matching lines under each path. Files that git ignores and binary
    files are left out; name one as path to search it all the same."""
    top = site.workspace.cwd if path is None else site.workspace.locate(path)
    if state_of(top) is None:
        return missing(top, site)
    rg = program(site)
    if rg is None:
        return failed(NOT_INSTALLED)
    arguments = ["--hidden", "--null", "--with-filename"]
    arguments += _shape(output_mode, after, before, around, numbers=numbers)
    arguments += ["--ignore-case"] * ignore_case + ["--multiline", "--multiline-dotall"] * multiline
    arguments += [f"--glob={glob}"] if glob else []
    arguments += [f"--type={type}"] if type else []
    # Last, because the last matching glob wins.
    arguments += [f"--glob=!{name}" for name in NEVER_SEARCHED]
    # -e and -- keep a pattern or path that starts with a dash from being parsed as an option.
    arguments += ["-e", pattern, "--", str(top)]
    if not all(map(_passable, arguments)):
        return failed("pattern, glob and type cannot hold NUL bytes or half characters.")
    directory = top if top.is_dir() else top.parent
    found = await ripgrep(site, arguments, rg=rg, cwd=directory, most=_MOST_OUTPUT)
    if found.status == 2 and not found.output:
        return failed(f"ripgrep could not search: {found.complaint}")
    return _told(_readable(found, output_mode, top, site), output_mode, _Page(first=offset, limit=head_limit))


def _passable(argument: str) -> bool:
    try:
        return b"\0" not in os.fsencode(argument)
    except UnicodeEncodeError:
        return False


def _readable(found: Found, mode: _Mode, top: Path, site: Site) -> Found:
    """Drop files that a rule makes unreadable although their directory may be searched."""
    real, start = os.path.realpath(top), os.fsencode(top)
    unreadable = site.unreadable(real)
    verdicts: dict[bytes, bool] = {}

    def kept(path: bytes) -> bool:
        verdict = verdicts.get(path)
        if verdict is None:
            verdict = verdicts[path] = not unreadable(real + os.fsdecode(path[len(start) :]))
        return verdict

    ends = b"\0" if mode == "files_with_matches" else b"\n"
    pieces: list[bytes] = []
    keeping = True
    for piece in found.output.split(ends):
        # A piece without the path prefix is a separator or the rest of a file name with a line break.
        if piece.startswith(start):
            keeping = kept(piece.partition(b"\0")[0])
        if keeping:
            pieces.append(piece)
    return replace(found, output=ends.join(pieces), left_out=len(verdicts) - sum(verdicts.values()))


class _Page(Struct, frozen=True, kw_only=True):
    first: int
    limit: int
    """0 means no limit."""


def _shape(
    mode: _Mode, after: int | None, before: int | None, around: int | None, *, numbers: bool
) -> list[str]:
    if mode == "files_with_matches":
        return ["--files-with-matches"]
    if mode == "count":
        return ["--count", _IN_ORDER]
    shape = [
        _IN_ORDER,
        "--no-heading",
        f"--max-columns={_LONGEST_LINE}",
        "--max-columns-preview",
        "--line-number" if numbers else "--no-line-number",
    ]
    for option, lines in (("--context", around), ("--after-context", after), ("--before-context", before)):
        if lines is not None:
            shape.append(f"{option}={lines}")
    return shape


def _told(found: Found, mode: _Mode, page: _Page) -> Outcome:
    if mode == "content":
        entries = _matching_lines(found.output)
    elif mode == "count":
        entries = _counts(found.output)
    else:
        entries = _newest_first(found.output)
    last = page.first + page.limit if page.limit else len(entries)
    chosen = entries[page.first : last]
    marks = []
    if found.left_out:
        marks.append(f"[Files that a rule keeps from being read are left out: {found.left_out:,}.]")
    if not chosen:
        told = f"There are only {len(entries)}; offset is beyond them." if entries else "No match."
        return Outcome(content="\n".join([told, *marks]), data={"count": len(entries)})
    text, shown_entries = _laid_out(chosen)
    left = len(entries) - page.first - shown_entries
    if left or found.cut:
        more = f"{left:,}{' or more' if found.cut else ''}"
        following = page.first + shown_entries
        marks.append(f"[{more} left out. Go on with offset={following}, or narrow the search.]")
    if found.status == 2 and found.complaint:
        marks.append(f"[Some files could not be searched: {found.complaint[:300]}]")
    return Outcome(content="\n".join([text, *marks]), data={"count": len(entries)})


class _Entry(Struct, frozen=True):
    path: str
    """Empty if the line needs no path heading."""
    line: str


def _newest_first(output: bytes) -> list[_Entry]:
    paths = [name for name in os.fsdecode(output).split("\0") if name]
    return [_Entry("", shown(path)) for path in sorted(paths, key=_age)]


def _age(path: str) -> tuple[int, str]:
    try:
        return -Path(path).lstat().st_mtime_ns, path
    except OSError:
        return 0, path


def _counts(output: bytes) -> list[_Entry]:
    lines = (line.split("\0") for line in os.fsdecode(output).split("\n") if "\0" in line)
    return [_Entry("", f"{shown(path)}: {count}") for path, count, *_ in lines]


def _matching_lines(output: bytes) -> list[_Entry]:
    entries: list[_Entry] = []
    for line in output.split(b"\n"):
        path, found, text = line.partition(b"\0")
        if found:
            entries.append(_Entry(shown(os.fsdecode(path)), text.decode(errors="replace").rstrip("\r")))
        elif line == b"--" and entries and entries[-1].line != "--":
            entries.append(_Entry("", "--"))
    return entries


def _laid_out(entries: list[_Entry]) -> tuple[str, int]:
    """Group entries under their paths, as many as fit; return the text and the number of entries."""
    lines: list[str] = []
    length, path = 0, ""
    for count, entry in enumerate(entries):
        if entry.path and entry.path != path:
            path = entry.path
            lines.append(path)
            length += len(path) + 1
        if length + len(entry.line) > _LARGEST_OUTPUT and count:
            return "\n".join(lines), count
        lines.append(entry.line)
        length += len(entry.line) + 1
    return "\n".join(lines), len(entries)
