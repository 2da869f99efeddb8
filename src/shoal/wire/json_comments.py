"""JSON as people write it: with comments and trailing commas."""

from __future__ import annotations

import re
from typing import Any

from shoal.wire.json_codec import decode_json

_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)
_NOT_A_LINE_END = re.compile(r"[^\n]")


def blank_json_comments(text: str) -> str:
    """Return the text with comments and trailing commas as blanks, so that positions do not change."""
    return _TRAILING_COMMA.sub(_blank_unless_string, _COMMENT.sub(_blank_unless_string, text))


def find_json_comments(text: str) -> list[tuple[int, int]]:
    """Return start and end of each comment."""
    return [found.span() for found in _COMMENT.finditer(text) if not found[0].startswith('"')]


def decode_commented_json(text: str) -> tuple[Any, str]:
    """Return the value, and the text without comments; raise ValueError with the line if it is invalid."""
    try:
        return decode_json(text.encode()), text
    except ValueError:
        plain = blank_json_comments(text)
        return decode_json(plain.encode()), plain


def _blank_unless_string(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else _NOT_A_LINE_END.sub(" ", found[0])
