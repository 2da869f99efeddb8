"""Lists that a model reads with every request: a line for each thing, and never longer than they may be."""

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
    """Names and descriptions, and what there is `more` to say of each, in `longest` characters.

    A description has the first of the `rooms`, in characters, that makes the whole fit. Where there are too
    many to describe: the first names, and how many are left out.
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
    # A file of the project may come from anyone, and what it says of itself stands in our own words.
    return neutral(f"- {item.name}: {described}{more}")
