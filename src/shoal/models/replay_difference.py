"""Diff between a request and the recorded ones, for people to read."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

_LINES = 40
_WIDTH = 120

Asked = Mapping[str, Any]


def difference(asked: Asked, recorded: Sequence[Asked]) -> str:
    """Return the parts that differ from the nearest recorded request, as a bounded unified diff."""
    nearest = max(recorded, key=lambda other: _likeness(asked, other))
    lines = list(itertools.islice(_lines(nearest, asked), _LINES + 1))
    if len(lines) > _LINES:
        lines[_LINES:] = ["… and more"]
    return "\n".join(lines)


def _likeness(asked: Asked, other: Asked) -> tuple[int, int, int]:
    """Rank how much two requests share: equal leading messages, equal fields, similar length."""
    mine, theirs = asked["messages"], other["messages"]
    same = sum(
        1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(mine, theirs, strict=False))
    )
    fields = sum(asked.get(name) == other.get(name) for name in asked.keys() | other.keys())
    return same, fields, -abs(len(mine) - len(theirs))


def _lines(recorded: Asked, asked: Asked) -> Iterator[str]:
    if recorded["system"] != asked["system"]:
        yield "the system prompt differs:"
        yield from _diff(recorded["system"], asked["system"])
    yield from _tools(recorded["tools"], asked["tools"])
    yield from _messages(recorded["messages"], asked["messages"])
    for name in sorted((recorded.keys() | asked.keys()) - {"system", "tools", "messages"}):
        if recorded.get(name) != asked.get(name):
            yield f"{name} differs: recorded {recorded.get(name)}, asked {asked.get(name)}"


def _tools(recorded: Sequence[Asked], asked: Sequence[Asked]) -> Iterator[str]:
    before = {tool["name"]: tool for tool in recorded}
    now = {tool["name"]: tool for tool in asked}
    if gone := before.keys() - now.keys():
        yield f"tools that are no longer there: {', '.join(sorted(gone))}"
    if new := now.keys() - before.keys():
        yield f"tools that are new: {', '.join(sorted(new))}"
    for name, tool in now.items():
        if name in before and before[name] != tool:
            yield f"the tool {name} differs:"
            yield from _diff(_pretty(before[name]), _pretty(tool))
    if before == now and list(before) != list(now):
        yield "the tools are in another order:"
        yield from _diff("\n".join(before), "\n".join(now))


def _messages(recorded: Sequence[Asked], asked: Sequence[Asked]) -> Iterator[str]:
    for number, (before, now) in enumerate(zip(recorded, asked, strict=False), 1):
        if before != now:
            yield f"message {number} ({now['role']}) differs:"
            yield from _diff(_readable(before), _readable(now))
    if len(recorded) != len(asked):
        yield f"the recorded request has {len(recorded)} messages, this one {len(asked)}"
    for number, extra in enumerate(asked[len(recorded) :], len(recorded) + 1):
        yield f"message {number} ({extra['role']}) is not in the recording:"
        yield from (f"+{row}" for row in _rows(_readable(extra)))


def _readable(message: Asked) -> str:
    """Format a message with its texts on separate lines."""
    parts = [f"role: {message['role']}"]
    for block in message["content"]:
        texts = [block[key] for key in ("text", "thinking", "content") if isinstance(block.get(key), str)]
        rest = {key: value for key, value in block.items() if value not in texts}
        parts += [_pretty(rest), *texts]
    return "\n".join(parts)


def _pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value, order="deterministic")).decode()


def _diff(before: str, now: str) -> Iterator[str]:
    lines = difflib.unified_diff(_rows(before), _rows(now), "recorded", "asked", lineterm="", n=2)
    yield from itertools.islice(lines, _LINES + 1)


def _rows(text: str) -> list[str]:
    """Split into lines and break long ones, so that a difference shows wherever it is in a line."""
    return [
        line[start : start + _WIDTH]
        for line in text.splitlines()
        for start in range(0, max(1, len(line)), _WIDTH)
    ]
