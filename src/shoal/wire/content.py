"""Messages ⇄ JSON. What another program wrote and we do not know is left out and named, never a crash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shoal.core.messages import ContentBlock, Message, Text

encode = msgspec.json.Encoder().encode
_KNOWN = frozenset({"text", "thinking", "redacted_thinking", "image", "tool_use", "tool_result"})


def message_from(raw: Mapping[str, Any]) -> tuple[Message, tuple[str, ...]]:
    """The message, and the types of blocks that were left out."""
    content = raw.get("content")
    if isinstance(content, str):
        return Message(role=raw["role"], content=(Text(text=content),)), ()
    blocks: list[ContentBlock] = []
    left_out: list[str] = []
    for block in content or ():
        kind = str(block.get("type")) if isinstance(block, Mapping) else type(block).__name__
        if kind not in _KNOWN:
            left_out.append(kind)
            continue
        try:
            blocks.append(msgspec.convert(block, ContentBlock))
        except msgspec.ValidationError:
            left_out.append(kind)
    return Message(role=raw["role"], content=tuple(blocks)), tuple(left_out)
