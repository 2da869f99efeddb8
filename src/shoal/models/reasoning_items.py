"""Encrypted reasoning of the Responses API, stored in the signature of a thinking block.

A transcript then holds it, and a resumed conversation sends it back. The prefix names the provider: another
one would reject the history because of it.
"""

from __future__ import annotations

from typing import NamedTuple

from shoal.core.conversation.messages import ThinkingBlock

_SIGNATURE_PREFIX = "openai-responses:"


class EncryptedReasoningItem(NamedTuple):
    """Encrypted reasoning item of the Responses API."""

    id: str
    content: str


def encode_reasoning_signature(item: EncryptedReasoningItem) -> str:
    """Encode the item as the signature of a thinking block."""
    return f"{_SIGNATURE_PREFIX}{item.id}:{item.content}"


def decode_reasoning_signature(block: ThinkingBlock) -> EncryptedReasoningItem | None:
    """Return the item if the block came from the Responses API."""
    if not block.signature.startswith(_SIGNATURE_PREFIX):
        return None
    name, _, content = block.signature[len(_SIGNATURE_PREFIX) :].partition(":")
    return EncryptedReasoningItem(name, content)


def has_reasoning_item(block: ThinkingBlock) -> bool:
    return block.signature.startswith(_SIGNATURE_PREFIX)
