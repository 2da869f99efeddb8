"""Decoding of text files that people wrote, which may contain bytes of another encoding."""

from __future__ import annotations

import codecs

REPLACEMENT = "\ufffd"


def decode_text(content: bytes, *, is_truncated: bool = False) -> tuple[str, bool]:
    """Decode UTF-8 and return True as well if invalid bytes were replaced with U+FFFD.

    If the content `is_truncated`, an incomplete character at its end is left out.
    """
    is_complete = not is_truncated
    try:
        return codecs.getincrementaldecoder("utf-8-sig")("strict").decode(content, is_complete), False
    except UnicodeDecodeError:
        return codecs.getincrementaldecoder("utf-8-sig")("replace").decode(content, is_complete), True


def describe_replaced_bytes(files: str) -> str:
    """Return a sentence about files that were read with replaced bytes; `files` is its subject."""
    return f"{files} not UTF-8 text, so unreadable bytes are replaced with {REPLACEMENT}."
