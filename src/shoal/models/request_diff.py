"""Diff between a request and the recorded ones, for people to read."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

_MAX_DIFF_LINES = 40
_MAX_ROW_CHARACTERS = 120

RequestJson = Mapping[str, Any]


def diff_with_nearest_recorded_request(asked: RequestJson, recorded: Sequence[RequestJson]) -> str:
    """Return the parts that differ from the nearest recorded request, as a bounded unified diff."""
    nearest = max(recorded, key=lambda other: _measure_request_similarity(asked, other))
    lines = list(itertools.islice(_diff_request_with_recorded(nearest, asked), _MAX_DIFF_LINES + 1))
    if len(lines) > _MAX_DIFF_LINES:
        lines[_MAX_DIFF_LINES:] = ["… and more"]
    return "\n".join(lines)


def _measure_request_similarity(request: RequestJson, other: RequestJson) -> tuple[int, int, int]:
    """Rank how much two requests share: equal leading messages, equal fields, similar length."""
    messages, other_messages = request["messages"], other["messages"]
    equal_messages = sum(
        1
        for _ in itertools.takewhile(
            lambda pair: pair[0] == pair[1], zip(messages, other_messages, strict=False)
        )
    )
    equal_fields = sum(request.get(name) == other.get(name) for name in request.keys() | other.keys())
    return equal_messages, equal_fields, -abs(len(messages) - len(other_messages))


def _diff_request_with_recorded(recorded: RequestJson, request: RequestJson) -> Iterator[str]:
    if recorded["system"] != request["system"]:
        yield "the system prompt differs:"
        yield from _diff_texts(recorded["system"], request["system"])
    yield from _diff_request_tools(recorded["tools"], request["tools"])
    yield from _diff_request_messages(recorded["messages"], request["messages"])
    for name in sorted((recorded.keys() | request.keys()) - {"system", "tools", "messages"}):
        if recorded.get(name) != request.get(name):
            yield f"{name} differs: recorded {recorded.get(name)}, requested {request.get(name)}"


def _diff_request_tools(recorded: Sequence[RequestJson], requested: Sequence[RequestJson]) -> Iterator[str]:
    recorded_tools = {tool["name"]: tool for tool in recorded}
    requested_tools = {tool["name"]: tool for tool in requested}
    if missing := recorded_tools.keys() - requested_tools.keys():
        yield f"tools that were removed: {', '.join(sorted(missing))}"
    if new := requested_tools.keys() - recorded_tools.keys():
        yield f"tools that were added: {', '.join(sorted(new))}"
    for name, tool in requested_tools.items():
        if name in recorded_tools and recorded_tools[name] != tool:
            yield f"the tool {name} differs:"
            yield from _diff_texts(_format_sorted_json(recorded_tools[name]), _format_sorted_json(tool))
    if recorded_tools == requested_tools and list(recorded_tools) != list(requested_tools):
        yield "the tools are in a different order:"
        yield from _diff_texts("\n".join(recorded_tools), "\n".join(requested_tools))


def _diff_request_messages(
    recorded: Sequence[RequestJson], requested: Sequence[RequestJson]
) -> Iterator[str]:
    for number, (before, current) in enumerate(zip(recorded, requested, strict=False), 1):
        if before != current:
            yield f"message {number} ({current['role']}) differs:"
            yield from _diff_texts(_format_message_for_diff(before), _format_message_for_diff(current))
    if len(recorded) != len(requested):
        yield f"the recorded request has {len(recorded)} messages, this one has {len(requested)}"
    for number, extra in enumerate(requested[len(recorded) :], len(recorded) + 1):
        yield f"message {number} ({extra['role']}) is not in the recording:"
        yield from (f"+{row}" for row in _split_and_wrap_lines(_format_message_for_diff(extra)))


def _format_message_for_diff(message: RequestJson) -> str:
    """Format a message with its texts on separate lines."""
    parts = [f"role: {message['role']}"]
    for block in message["content"]:
        texts = [block[key] for key in ("text", "thinking", "content") if isinstance(block.get(key), str)]
        rest = {key: value for key, value in block.items() if value not in texts}
        parts += [_format_sorted_json(rest), *texts]
    return "\n".join(parts)


def _format_sorted_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value, order="deterministic")).decode()


def _diff_texts(before: str, current: str) -> Iterator[str]:
    lines = difflib.unified_diff(
        _split_and_wrap_lines(before), _split_and_wrap_lines(current), "recorded", "asked", lineterm="", n=2
    )
    yield from itertools.islice(lines, _MAX_DIFF_LINES + 1)


def _split_and_wrap_lines(text: str) -> list[str]:
    """Split into lines and break long ones, so that a difference shows wherever it is in a line."""
    return [
        line[start : start + _MAX_ROW_CHARACTERS]
        for line in text.splitlines()
        for start in range(0, max(1, len(line)), _MAX_ROW_CHARACTERS)
    ]
