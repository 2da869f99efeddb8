"""Checks and repairs of texts that cannot be encoded: they could be neither stored nor sent."""

from __future__ import annotations


def find_encoding_problem(text: str, *, is_system_text: bool = False) -> str | None:
    """Return why a text cannot be encoded, as the rest of a sentence about it; None if it can.

    A path or a variable of the system may have bytes that are not UTF-8, but no NUL byte.
    """
    if is_system_text and "\0" in text:
        return "contains a NUL byte. Remove it."
    if text.isascii():
        return None
    try:
        text.encode(errors="surrogateescape" if is_system_text else "strict")
    except UnicodeEncodeError as error:
        return (
            f"contains a character that UTF-8 cannot encode: {text[error.start]!r} at {error.start}. "
            'Remove it, or decode the text with errors="replace".'
        )
    return None


def repair_surrogates(text: str) -> str:
    """Join halves of surrogate pairs and replace lone ones."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
