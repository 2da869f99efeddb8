"""Items in the user's files that Shoal does not use: one line, and a list in `shoal doctor --claude`."""

from __future__ import annotations

from msgspec import Struct


class UnusedItem(Struct, frozen=True, kw_only=True):
    """A key, rule or value that is only a convenience, so the session starts without it."""

    location: str
    """File and line."""
    name: str
    reason: str
    """Reason and what to do, without the full stop."""

    def __str__(self) -> str:
        return f"{self.location}: {self.name}: {self.reason}."


def count_unused_items(count: int) -> str:
    """Return a clause with the number of items."""
    subject = "1 item in your settings is" if count == 1 else f"{count} items in your settings are"
    return f"{subject} not used"


def summarize_unused_items(count: int) -> tuple[str, ...]:
    """Return one line about all items, or none."""
    return (f"{count_unused_items(count)}: run shoal doctor --claude",) if count else ()
