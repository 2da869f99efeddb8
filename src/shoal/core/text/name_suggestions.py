"""The nearest known name for a misspelled one."""

from __future__ import annotations

from collections.abc import Collection
from difflib import SequenceMatcher, get_close_matches


def suggest_name(name: str, choices: Collection[str]) -> str:
    """Return the nearest name as a question, or all names, ignoring case."""
    close = find_similar_names(name, choices)
    return f" Did you mean {' or '.join(close)}?" if close else f" Allowed values: {', '.join(choices)}."


def find_similar_names(name: str, choices: Collection[str], cutoff: float = 0.6) -> list[str]:
    """Return the nearest name, or two that are equally near. Swapped letters are nearer than missing ones."""
    wanted = name.casefold()
    folded = {each.casefold(): each for each in choices}
    if swapped := [each for each in folded if sorted(each) == sorted(wanted)]:
        return [folded[swapped[0]]]
    close = get_close_matches(wanted, folded, n=2, cutoff=cutoff)
    if len(close) == 2 and _rate(close[1], wanted) < _rate(close[0], wanted):
        del close[1]
    return [folded[each] for each in sorted(close, key=list(folded).index)]


def _rate(choice: str, wanted: str) -> float:
    return SequenceMatcher(None, choice, wanted).ratio()
