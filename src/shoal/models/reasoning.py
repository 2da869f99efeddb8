"""Reasoning that only its own provider can read, kept in the signature of a thinking block.

A transcript then holds it, and a resumed conversation sends it back. The mark in front tells whose it is:
another provider would refuse the history for it.
"""

from __future__ import annotations

from typing import NamedTuple

from shoal.core.messages import Thinking

_MARK = "openai-responses:"


class Sealed(NamedTuple):
    """A reasoning item of the Responses API."""

    id: str
    content: str


def seal(item: Sealed) -> str:
    """What a thinking block keeps as its signature."""
    return f"{_MARK}{item.id}:{item.content}"


def sealed_in(block: Thinking) -> Sealed | None:
    """The item, where the block came from the Responses API."""
    if not block.signature.startswith(_MARK):
        return None
    name, _, content = block.signature[len(_MARK) :].partition(":")
    return Sealed(name, content)


def is_sealed(block: Thinking) -> bool:
    return block.signature.startswith(_MARK)
