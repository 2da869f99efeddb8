"""Diffs between two texts, bounded in length and computing time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_CONTEXT = 3
_MAX_COMPARED_LINES = 1500
_MAX_DIFF_LINES = 60
_MAX_LINE_WIDTH = 240


def format_unified_diff(old: str, new: str) -> str:
    """Return a unified diff without file names; a long one is cut, with a marker."""
    before, after = old.splitlines(), new.splitlines()
    prefix, suffix = _count_common_edge_lines(before, after)
    removed, added = before[prefix : len(before) - suffix], after[prefix : len(after) - suffix]
    if not removed and not added:
        return "(the same lines; only line endings or the end of the file differ)"
    if max(len(removed), len(added)) > _MAX_COMPARED_LINES:
        return f"(from line {prefix + 1} on, {len(removed)} lines became {len(added)}; too many to show)"
    offset = max(0, prefix - _CONTEXT)
    trailing = max(0, suffix - _CONTEXT)
    hunks = list(
        _format_diff_hunks(
            before[offset : len(before) - trailing], after[offset : len(after) - trailing], offset
        )
    )
    if len(hunks) > _MAX_DIFF_LINES:
        hunks = [*hunks[:_MAX_DIFF_LINES], f"… {len(hunks) - _MAX_DIFF_LINES} more changed lines"]
    return "\n".join(hunks)


def count_changed_lines(old: str, new: str) -> tuple[int, int]:
    """Return the numbers of added and removed lines; all differing lines if there are too many to compare."""
    before, after = old.splitlines(), new.splitlines()
    prefix, suffix = _count_common_edge_lines(before, after)
    removed, added = before[prefix : len(before) - suffix], after[prefix : len(after) - suffix]
    if not removed or not added or max(len(removed), len(added)) > _MAX_COMPARED_LINES:
        return len(added), len(removed)
    import difflib

    same = sum(block.size for block in difflib.SequenceMatcher(None, removed, added).get_matching_blocks())
    return len(added) - same, len(removed) - same


def _count_common_edge_lines(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """Return the numbers of equal lines at the start and, of the rest, at the end."""
    max_common = min(len(before), len(after))
    start = 0
    while start < max_common and before[start] == after[start]:
        start += 1
    end = 0
    while end < max_common - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return start, end


def _format_diff_hunks(before: Sequence[str], after: Sequence[str], offset: int) -> Iterator[str]:
    import difflib

    for group in difflib.SequenceMatcher(None, before, after).get_grouped_opcodes(_CONTEXT):
        first, last = group[0], group[-1]
        old_span = f"{first[1] + offset + 1},{last[2] - first[1]}"
        new_span = f"{first[3] + offset + 1},{last[4] - first[3]}"
        yield f"@@ -{old_span} +{new_span} @@"
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                yield from (f" {_truncate_diff_line(line)}" for line in before[old_from:old_to])
                continue
            yield from (f"-{_truncate_diff_line(line)}" for line in before[old_from:old_to])
            yield from (f"+{_truncate_diff_line(line)}" for line in after[new_from:new_to])


def _truncate_diff_line(line: str) -> str:
    return line if len(line) <= _MAX_LINE_WIDTH else f"{line[:_MAX_LINE_WIDTH]}… ({len(line)} characters)"
