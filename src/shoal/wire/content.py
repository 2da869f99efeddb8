"""JSON codec for messages. Unknown content of other programs is skipped and reported, never a crash."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from shoal.core.messages import ContentBlock, Image, Message, Text, ToolResult

encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_KNOWN = frozenset({"text", "thinking", "redacted_thinking", "image", "tool_use", "tool_result"})


def dump(value: object) -> bytes:
    """Encode any value as JSON; escape lone surrogates, which occur in names that are not UTF-8."""
    try:
        return encode(value)
    except UnicodeEncodeError:
        import json

        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def load(raw: bytes) -> Any:
    """Decode a JSON value; raise ValueError if it is invalid."""
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _loaded_by_json(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _loaded_by_json(raw: bytes) -> Any:
    """Decode with the json module, which accepts lone surrogates, other encodings, NaN and huge numbers."""
    import json

    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def milliseconds(timestamp: str) -> int:
    """Return an ISO timestamp as Unix milliseconds; raise ValueError if it is invalid."""
    try:
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except OverflowError as error:
        raise ValueError(f"{timestamp!r} is a time that no clock here knows") from error


def message_from(raw: Mapping[str, Any]) -> tuple[Message, tuple[str, ...]]:
    """Return the message and the types of the blocks that were skipped."""
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
        except (msgspec.ValidationError, UnicodeEncodeError):
            left_out.append(kind)
            if kind == "tool_result" and isinstance(block.get("tool_use_id"), str):
                blocks.append(_result_as_far_as_known(block))
    return Message(role=raw["role"], content=tuple(blocks)), tuple(left_out)


def _result_as_far_as_known(block: Mapping[str, Any]) -> ToolResult:
    # Kept even when little of it is known: providers reject a history with a call but no result.
    parts = block.get("content")
    known: list[Text | Image] = []
    for part in parts if isinstance(parts, list) else ():
        try:
            known.append(msgspec.convert(part, Text | Image))
        except (msgspec.ValidationError, UnicodeEncodeError):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            known.append(Text(text=f"[{kind}]"))
    return ToolResult(
        tool_use_id=block["tool_use_id"], content=tuple(known), is_error=block.get("is_error") is True
    )
