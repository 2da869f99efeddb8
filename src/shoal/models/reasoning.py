"""Encrypted reasoning of the Responses API, stored in the signature of a thinking block.

A transcript then holds it, and a resumed conversation sends it back. The prefix names the provider: another
one would reject the history because of it.
"""

from __future__ import annotations

from typing import NamedTuple

from shoal.core.messages import Thinking

_MARK = "openai-responses:"


class Sealed(NamedTuple):
    """Encrypted reasoning item of the Responses API."""

    id: str
    content: str


def seal(item: Sealed) -> str:
    """Encode the item as the signature of a thinking block."""
    return f"{_MARK}{item.id}:{item.content}"


def sealed_in(block: Thinking) -> Sealed | None:
    """Return the item if the block came from the Responses API."""
    if not block.signature.startswith(_MARK):
        return None
    name, _, content = block.signature[len(_MARK) :].partition(":")
    return Sealed(name, content)


def is_sealed(block: Thinking) -> bool:
    return block.signature.startswith(_MARK)
