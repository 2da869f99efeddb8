"""Finds the lines of a text that best match a piece which does not occur in it."""

from __future__ import annotations

import re

from shoal.core.text_diffs import format_unified_diff
from shoal.tools.text_files import split_lines

_LINE_NUMBER = re.compile(r"\s*\d+\t")
_MAX_LINES = 20_000
_MAX_CANDIDATES = 40
_MAX_COMPARED_CHARACTERS = 10_000


def describe_closest_text_match(text: str, piece: str) -> str:
    """Return one or two sentences, with the diff to the closest match."""
    piece_lines, lines = split_lines(piece), split_lines(text)
    if piece_lines and all(_LINE_NUMBER.match(line) for line in piece_lines):
        return "It holds the line numbers that Read shows; leave them out."
    start = _find_closest_stretch_start(lines[:_MAX_LINES], piece_lines)
    if start is None:
        return "Nothing in the file is close to it; read the file again."
    found = lines[start : start + len(piece_lines)]
    location = f"line {start + 1}" if len(found) == 1 else f"lines {start + 1} to {start + len(found)}"
    if [line.split() for line in found] == [line.split() for line in piece_lines]:
        location += ", where only white space differs"
    diff = format_unified_diff(piece, "\n".join(found))
    return f"The closest place is {location} (- old_string, + the file):\n{diff}"


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
