"""Text for columns of the database, which hold neither the character 0 nor half a surrogate pair."""

from __future__ import annotations


def to_database_text(text: str) -> str:
    """Return text that a column can hold; other text is escaped."""
    if "\0" in text:
        text = text.replace("\0", "\\0")
    return text.encode(errors="backslashreplace").decode()
