"""The nearest known name for a misspelled one."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


def suggest_name(name: str, choices: Collection[str]) -> str:
    """Return the nearest name as a question, or all names, ignoring case."""
    folded = {each.casefold(): each for each in choices}
    close = get_close_matches(name.casefold(), folded, n=1)
    return f" Did you mean {folded[close[0]]}?" if close else f" Allowed values: {', '.join(choices)}."
