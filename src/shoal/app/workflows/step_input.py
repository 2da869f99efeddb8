"""Inputs of steps as short texts in the journal, so that an error can show what a program changed."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, TypeAlias

import msgspec

from shoal.core.text.text_diffs import format_unified_diff
from shoal.core.text.text_format import strip_terminal_codes

RecordedInput: TypeAlias = dict[str, str | int]
"""Parts of an input. A number refers to the step that has the same text in this part."""
_MAX_PART_CHARACTERS = 2_000
_MIN_SHARED_CHARACTERS = 100
_MAX_SHOWN_CHARACTERS = 120
_MAX_DIFF_LINES = 12


class StepInputWriter:
    """Encodes inputs. A long text that many steps share, such as an agent's prompt, is stored once."""

    def __init__(self) -> None:
        self._first_steps: dict[tuple[str, str], int] = {}

    def encode(self, step: int, given: Any) -> RecordedInput:
        parts: RecordedInput = {}
        for name, text in split_input(given).items():
            first = step
            if len(text) >= _MIN_SHARED_CHARACTERS:
                first = self._first_steps.setdefault((name, text), step)
            parts[name] = text if first == step else first
        return parts


def split_input(given: Any) -> dict[str, str]:
    """Return the parts of an input as texts of limited length; two different texts stay different."""
    if not isinstance(given, Mapping):
        return {}
    parts: dict[str, str] = {}
    for key, value in given.items():
        if isinstance(value, Mapping):
            parts.update({f"{key} {name}": _to_text(each) for name, each in value.items()})
        elif value is not None:
            parts[key] = _to_text(value)
    return parts


def describe_difference(recorded: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return lines that show the parts that differ."""
    lines: list[str] = []
    for name in dict.fromkeys((*recorded, *now)):
        old, new = recorded.get(name), now.get(name)
        if old == new:
            continue
        if old is not None and new is not None and ("\n" in old or "\n" in new):
            diff = format_unified_diff(old, new).splitlines()
            more = [f"    … {len(diff) - _MAX_DIFF_LINES} more lines"] if len(diff) > _MAX_DIFF_LINES else []
            lines += [f"  {name}:", *(f"    {line}" for line in diff[:_MAX_DIFF_LINES]), *more]
        else:
            before, after = _quote_around_difference(old, new)
            lines.append(f"  {name}: recorded {before}, now {after}")
    return [strip_terminal_codes(line) for line in lines]


def _quote_around_difference(old: str | None, new: str | None) -> tuple[str, str]:
    """Quote both texts. If they are long, show the part that starts shortly before the difference."""
    if old is None or new is None:
        return (
            "nothing" if old is None else repr(old[:_MAX_SHOWN_CHARACTERS]),
            "nothing" if new is None else repr(new[:_MAX_SHOWN_CHARACTERS]),
        )
    if max(len(old), len(new)) <= _MAX_SHOWN_CHARACTERS:
        return repr(old), repr(new)
    same = next(
        (index for index, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    start = max(0, same - _MAX_SHOWN_CHARACTERS // 3)

    def quote(text: str) -> str:
        shown = text[start : start + _MAX_SHOWN_CHARACTERS]
        return f"{'…' if start else ''}{shown!r}{'…' if start + len(shown) < len(text) else ''}"

    return quote(old), quote(new)


def _to_text(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value, order="deterministic").decode()
    if len(text) <= _MAX_PART_CHARACTERS:
        return text
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{text[:_MAX_PART_CHARACTERS]}… ({len(text):,} characters, SHA-256 {digest})"
