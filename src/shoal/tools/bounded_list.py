"""Length-limited lists that a model reads with every request, one line per item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from shoal.core.neutral import neutral


class Described(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...


_Item = TypeVar("_Item", bound=Described)


def bounded_list(
    items: Sequence[_Item],
    *,
    longest: int,
    rooms: Sequence[int],
    more: Callable[[_Item], str] = lambda _: "",
) -> str:
    """Return names, descriptions and `format_extra` of each item in at most `max_characters`.

    Each description is cut to the first of `description_limits` that makes the whole list fit. If none does,
    only the first names are listed, with a count of the rest.
    """
    for room in rooms:
        text = "\n".join(_line(item, room, more(item)) for item in items)
        if len(text) <= longest:
            return text
    lines: list[str] = []
    left = longest - len(f"… and {len(items)} more")
    for item in items:
        line = neutral(f"- {item.name}")
        if len(line) + 1 > left:
            return "\n".join([*lines, f"… and {len(items) - len(lines)} more"])
        lines.append(line)
        left -= len(line) + 1
    return "\n".join(lines)


def _line(item: Described, room: int, more: str) -> str:
    described = " ".join(item.description.split())
    if len(described) > room:
        described = f"{described[: room - 1].rstrip()}…"
    # Descriptions come from project files that anyone may have written, so their tags are escaped.
    return neutral(f"- {item.name}: {described}{more}")
