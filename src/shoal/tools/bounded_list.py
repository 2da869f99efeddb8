"""Length-limited lists that a model reads with every request, one line per item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from shoal.core.text.control_tags import escape_control_tags


class DescribedItem(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...


_Item = TypeVar("_Item", bound=DescribedItem)


def format_bounded_list(
    items: Sequence[_Item],
    *,
    max_characters: int,
    description_limits: Sequence[int],
    format_extra: Callable[[_Item], str] = lambda _: "",
) -> str:
    """Return names, descriptions and `format_extra` of each item in at most `max_characters`.

    Each description is cut to the first of `description_limits` that makes the whole list fit. If none does,
    only the first names are listed, with a count of the rest.
    """
    for max_description in description_limits:
        text = "\n".join(
            _format_described_item_line(item, max_description, format_extra(item)) for item in items
        )
        if len(text) <= max_characters:
            return text
    lines: list[str] = []
    remaining = max_characters - len(f"… and {len(items)} more")
    for item in items:
        line = escape_control_tags(f"- {item.name}")
        if len(line) + 1 > remaining:
            return "\n".join([*lines, f"… and {len(items) - len(lines)} more"])
        lines.append(line)
        remaining -= len(line) + 1
    return "\n".join(lines)


def _format_described_item_line(item: DescribedItem, max_description: int, extra: str) -> str:
    description = " ".join(item.description.split())
    if len(description) > max_description:
        description = f"{description[: max_description - 1].rstrip()}…"
    # Descriptions come from project files that anyone may have written, so their tags are escaped.
    return escape_control_tags(f"- {item.name}: {description}{extra}")
