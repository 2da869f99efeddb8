"""Programs that rules forbid under another name: links to them, and scripts that the same line writes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from msgspec.structs import replace

from shoal.policy.shell.command_analysis import ShellCommandAnalysis, SimpleShellCommand

_SEARCH_PATH = re.compile(r"\bPATH\+?=([^\s;&|)]*)")


def add_linked_programs(analysis: ShellCommandAnalysis, command: str, root: str) -> ShellCommandAnalysis:
    """Return the analysis with the programs that links lead to, under their real names."""
    directories = _list_searched_directories(command)
    found = [
        replace(part, argv=None, words=(program, *part.words[1:]), outer=())
        for part in analysis.parts
        for program in _iter_programs(part, root, directories)
    ]
    return replace(analysis, parts=(*analysis.parts, *found)) if found else analysis


def add_written_scripts(analysis: ShellCommandAnalysis, command: str) -> ShellCommandAnalysis:
    """Return the analysis with the text of scripts that one part of the line writes and another one runs."""
    written = {path.rpartition("/")[2] for part in analysis.parts for path in part.writes}
    return replace(
        analysis,
        parts=tuple(
            replace(part, code=(*part.code, command)) if _runs_file(part, written) else part
            for part in analysis.parts
        ),
    )


def _runs_file(part: SimpleShellCommand, names: set[str]) -> bool:
    own_names = {path.rpartition("/")[2] for path in part.writes}
    return not part.read_only and any(
        word.rpartition("/")[2] in names - own_names for word in part.words if word
    )


def _list_searched_directories(command: str) -> list[str]:
    """List the directories that the command line adds to the search path, as far as they are known."""
    entries = [entry for match in _SEARCH_PATH.finditer(command) for entry in match[1].split(":")]
    plain = (entry.strip("\"'").removeprefix("${PWD}/").removeprefix("$PWD/") for entry in entries)
    return [entry for entry in plain if "$" not in entry]


def _iter_programs(part: SimpleShellCommand, root: str, directories: list[str]) -> Iterator[str]:
    name = part.words[0] if part.words else None
    if not name:
        return
    candidates = [name] if "/" in name else [f"{directory or '.'}/{name}" for directory in directories]
    for place in part.places:
        for candidate in candidates:
            # Both absolute: joining keeps the last absolute path.
            path = os.path.join(root, place, candidate)  # noqa: PTH118
            real = os.path.realpath(path)
            if real.rpartition("/")[2] != name.rpartition("/")[2] and os.access(real, os.X_OK):
                yield real
