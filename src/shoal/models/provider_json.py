"""JSON of providers: fast, with lone surrogates repaired instead of rejected."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from shoal.core.text.encodable_text import repair_surrogates

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_MAX_COUNT = 2**53
"""Beyond it floats no longer count exactly."""


def encode_json(value: Any) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":"))
        return repair_surrogates(text).encode()


def decode_json(data: bytes | str) -> Any:
    """Decode JSON. Raises ValueError."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, RecursionError):
        # `json` accepts "\\ud83d" without its other half, which some servers split; it also accepts NaN.
        try:
            value = json.loads(data)
            return json.loads(repair_surrogates(json.dumps(value, ensure_ascii=False)))
        except RecursionError:
            raise ValueError("nested too deeply") from None


def require_text_or_none(value: Any) -> str:
    """Return the text, "" for None; raises TypeError for anything else."""
    if not isinstance(value, str | None):
        raise TypeError(f"expected a string, got {type(value).__name__}")
    return value or ""


def parse_token_count(value: Any) -> int:
    """Return a token count as a bounded integer; raises TypeError, ValueError or OverflowError."""
    return min(max(0, int(value or 0)), _MAX_COUNT)
