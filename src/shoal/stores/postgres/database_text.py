"""Text for database columns, which can contain neither the NUL character nor half a surrogate pair."""

from __future__ import annotations


def to_database_text(text: str) -> str:
    """Return text that a column can store; other text is escaped."""
    if "\0" in text:
        text = text.replace("\0", "\\0")
    return text.encode(errors="backslashreplace").decode()
