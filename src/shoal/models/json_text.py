"""JSON as providers send and take it: fast, and with lone surrogates mended instead of refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_MOST = 2**53
"""Beyond it a float no longer counts."""


def encoded(value: Any) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":"))
        return mended(text).encode()


def decoded(data: bytes | str) -> Any:
    """Raises ValueError."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, RecursionError):
        # `json` takes "\\ud83d" without its other half, which some servers cut in two; it also takes NaN.
        try:
            value = json.loads(data)
            return json.loads(mended(json.dumps(value, ensure_ascii=False)))
        except RecursionError:
            raise ValueError("nested too deeply") from None


def text_of(value: Any) -> str:
    """The text; raises TypeError for what is none, and nothing for nothing."""
    if not isinstance(value, str | None):
        raise TypeError(f"text is expected, not {type(value).__name__}")
    return value or ""


def count_of(value: Any) -> int:
    """A number of tokens, as something to calculate with; raises TypeError, ValueError or OverflowError."""
    return min(max(0, int(value or 0)), _MOST)


def mended(text: str) -> str:
    """The text with halves of surrogate pairs joined, and those left alone replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
