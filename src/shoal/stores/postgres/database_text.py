"""Text for database columns, which can contain neither the NUL character nor half a surrogate pair."""

from __future__ import annotations

from hashlib import sha256

_MAX_KEY_SIZE = 1000
"""Bytes of a text that is part of a key. The server refuses keys of more than about 2,700."""
_SHORTENED_LENGTH = 200


def to_database_text(text: str) -> str:
    """Return text that a column can store; other text is escaped."""
    if "\0" in text:
        text = text.replace("\0", "\\0")
    return text.encode(errors="backslashreplace").decode()


def to_database_key(text: str) -> str:
    """Return text that an indexed column can store; long text gets its hash as its end."""
    key = to_database_text(text)
    if len(key.encode()) <= _MAX_KEY_SIZE:
        return key
    return f"{key[:_SHORTENED_LENGTH]}-{sha256(text.encode(errors='surrogatepass')).hexdigest()}"
