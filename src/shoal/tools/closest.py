"""Finds the place in a text that best matches a piece which does not occur in it."""

from __future__ import annotations

import re

from shoal.core.differences import difference
from shoal.tools.texts import lines_of

_NUMBERED = re.compile(r"\s*\d+\t")
_MOST_LINES = 20_000
_MOST_CANDIDATES = 40
_LONGEST_COMPARED = 10_000


def closest_place(text: str, piece: str) -> str:
    """Return one or two sentences, with the diff to the closest match."""
    wanted, lines = lines_of(piece), lines_of(text)
    if wanted and all(_NUMBERED.match(line) for line in wanted):
        return "It holds the line numbers that Read shows; leave them out."
    start = _closest_start(lines[:_MOST_LINES], wanted)
    if start is None:
        return "Nothing in the file is close to it; read the file again."
    found = lines[start : start + len(wanted)]
    where = f"line {start + 1}" if len(found) == 1 else f"lines {start + 1} to {start + len(found)}"
    if [line.split() for line in found] == [line.split() for line in wanted]:
        where += ", where only white space differs"
    told = difference(piece, "\n".join(found))
    return f"The closest place is {where} (- old_string, + the file):\n{told}"


def _closest_start(lines: list[str], wanted: list[str]) -> int | None:
    """Return the index of the first line of the closest stretch of as many lines as are searched."""
    import difflib

    anchors = _anchors(lines, wanted)
    best, best_ratio = None, 0.4
    text = "\n".join(wanted)[:_LONGEST_COMPARED]
    matcher = difflib.SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(text)
    for start in anchors:
        matcher.set_seq1("\n".join(lines[start : start + len(wanted)])[:_LONGEST_COMPARED])
        if matcher.real_quick_ratio() <= best_ratio or matcher.quick_ratio() <= best_ratio:
            continue
        ratio = matcher.ratio()
        if ratio > best_ratio:
            best, best_ratio = start, ratio
    return best


def _anchors(lines: list[str], wanted: list[str]) -> list[int]:
    """Return starts of stretches that share a line with the searched ones, or one similar to the longest."""
    import difflib

    places: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        places.setdefault(line.strip(), []).append(number)
    telling = sorted(
        {(line.strip(), number) for number, line in enumerate(wanted) if line.strip()},
        key=lambda line: (len(places.get(line[0], ())), -len(line[0])),
    )
    starts: dict[int, None] = {}
    for line, number in telling:
        for place in places.get(line, ())[:_MOST_CANDIDATES]:
            starts[max(0, place - number)] = None
    if not starts and telling:
        line, number = max(telling, key=lambda found: len(found[0]))
        for close in difflib.get_close_matches(line[:500], [key[:500] for key in places], n=5, cutoff=0.5):
            starts.update((max(0, place - number), None) for place in places.get(close, ())[:5])
    return list(starts)[:_MOST_CANDIDATES]
