"""JSON codec for messages. Unknown content of other programs is skipped and reported, never a crash."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from shoal.core.conversation.messages import ContentBlock, ImageBlock, Message, TextBlock, ToolResultBlock

encode_strict_json = msgspec.json.Encoder().encode
_decode_strict = msgspec.json.Decoder().decode
_BLOCK_TYPES = frozenset({"text", "thinking", "redacted_thinking", "image", "tool_use", "tool_result"})


def encode_json(value: object) -> bytes:
    """Encode any value as JSON; escape lone surrogates, which occur in names that are not UTF-8."""
    try:
        return encode_strict_json(value)
    except UnicodeEncodeError:
        import json

        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def flatten_groups(value: msgspec.Struct, *groups: str) -> dict[str, Any]:
    """Return the fields of a struct, with the fields of these groups in the place of each group."""
    fields: dict[str, Any] = {}
    for name, field in msgspec.to_builtins(value).items():
        if name in groups:
            fields |= field
        else:
            fields[name] = field
    return fields


def decode_json(raw: bytes) -> Any:
    """Decode a JSON value; raise ValueError if it is invalid."""
    try:
        return _decode_strict(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_json_leniently(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _decode_json_leniently(raw: bytes) -> Any:
    """Decode with the json module, which accepts lone surrogates, other encodings, NaN and huge numbers."""
    import json

    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_iso_timestamp(timestamp: str) -> int:
    """Return an ISO timestamp as Unix milliseconds; raise ValueError if it is invalid."""
    try:
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except OverflowError as error:
        raise ValueError(f"{timestamp!r} is not a valid time") from error


def parse_conversation_message(raw: Mapping[str, Any]) -> tuple[Message, tuple[str, ...]]:
    """Return the message and the types of the blocks that were skipped."""
    content = raw.get("content")
    if isinstance(content, str):
        return Message(role=raw["role"], content=(TextBlock(text=content),)), ()
    blocks: list[ContentBlock] = []
    left_out: list[str] = []
    for block in content or ():
        kind = str(block.get("type")) if isinstance(block, Mapping) else type(block).__name__
        if kind not in _BLOCK_TYPES:
            left_out.append(kind)
            continue
        try:
            blocks.append(msgspec.convert(block, ContentBlock))
        except (msgspec.ValidationError, UnicodeEncodeError):
            left_out.append(kind)
            if kind == "tool_result" and isinstance(block.get("tool_use_id"), str):
                blocks.append(_parse_partial_tool_result(block))
    return Message(role=raw["role"], content=tuple(blocks)), tuple(left_out)


def _parse_partial_tool_result(block: Mapping[str, Any]) -> ToolResultBlock:
    # Kept even when little of it is known: providers reject a history with a call but no result.
    parts = block.get("content")
    known_parts: list[TextBlock | ImageBlock] = []
    for part in parts if isinstance(parts, list) else ():
        try:
            known_parts.append(msgspec.convert(part, TextBlock | ImageBlock))
        except (msgspec.ValidationError, UnicodeEncodeError):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            known_parts.append(TextBlock(text=f"[{kind}]"))
    return ToolResultBlock(
        tool_use_id=block["tool_use_id"], content=tuple(known_parts), is_error=block.get("is_error") is True
    )


def is_complete_json_line(line: bytes) -> bool:
    """Return True if a last line without newline is otherwise complete."""
    try:
        return isinstance(decode_json(line), dict)
    except ValueError:
        return False


def split_json_objects(line: bytes) -> tuple[list[bytes], bool]:
    """Return the JSON objects on a line, and whether the line contains nothing else.

    A line contains more than one if the end of a line was lost, and a partial one if its writer died.
    """
    import json

    # One character for each byte, so that positions in the text are positions in the line.
    text, decoder = line.decode("latin-1"), json.JSONDecoder()
    objects: list[bytes] = []
    position, is_whole = 0, True
    while position < len(text):
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            value, end = None, position
        if isinstance(value, dict):
            objects.append(line[position:end])
            position = end
            continue
        is_whole = False
        position = text.find('{"', position + 1)
        if position < 0:
            break
    return objects, is_whole
