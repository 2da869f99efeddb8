"""Diffs between two texts, bounded in length and computing time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_CONTEXT = 3
_MOST_COMPARED = 1500
_MOST_SHOWN = 60
_WIDEST = 240


def difference(old: str, new: str) -> str:
    """Return a unified diff without file names; a long one is cut, with a marker."""
    before, after = old.splitlines(), new.splitlines()
    start, end = _common(before, after)
    changed, became = before[start : len(before) - end], after[start : len(after) - end]
    if not changed and not became:
        return "(the same lines; only line ends or the end of the file differ)"
    if max(len(changed), len(became)) > _MOST_COMPARED:
        return f"(from line {start + 1} on, {len(changed)} lines became {len(became)}; too many to show)"
    offset = max(0, start - _CONTEXT)
    tail = max(0, end - _CONTEXT)
    shown = list(_hunks(before[offset : len(before) - tail], after[offset : len(after) - tail], offset))
    if len(shown) > _MOST_SHOWN:
        shown = [*shown[:_MOST_SHOWN], f"… {len(shown) - _MOST_SHOWN} more lines of difference"]
    return "\n".join(shown)


def changed_lines(old: str, new: str) -> tuple[int, int]:
    """Return the numbers of added and removed lines; all differing lines if there are too many to compare."""
    before, after = old.splitlines(), new.splitlines()
    start, end = _common(before, after)
    changed, became = before[start : len(before) - end], after[start : len(after) - end]
    if not changed or not became or max(len(changed), len(became)) > _MOST_COMPARED:
        return len(became), len(changed)
    import difflib

    same = sum(block.size for block in difflib.SequenceMatcher(None, changed, became).get_matching_blocks())
    return len(became) - same, len(changed) - same


def _common(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """Return the numbers of equal lines at the start and, of the rest, at the end."""
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and before[start] == after[start]:
        start += 1
    end = 0
    while end < shorter - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return start, end


def _hunks(before: Sequence[str], after: Sequence[str], offset: int) -> Iterator[str]:
    import difflib

    for group in difflib.SequenceMatcher(None, before, after).get_grouped_opcodes(_CONTEXT):
        first, last = group[0], group[-1]
        old_span = f"{first[1] + offset + 1},{last[2] - first[1]}"
        new_span = f"{first[3] + offset + 1},{last[4] - first[3]}"
        yield f"@@ -{old_span} +{new_span} @@"
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                yield from (f" {_cut(line)}" for line in before[old_from:old_to])
                continue
            yield from (f"-{_cut(line)}" for line in before[old_from:old_to])
            yield from (f"+{_cut(line)}" for line in after[new_from:new_to])


def _cut(line: str) -> str:
    return line if len(line) <= _WIDEST else f"{line[:_WIDEST]}… ({len(line)} characters)"
