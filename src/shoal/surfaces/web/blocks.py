"""Transcript entries as JSON blocks for the page: truncated if long, with the diff of an edit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import unescape
from typing import Any, TypeAlias

from shoal.core.differences import difference
from shoal.core.entries import Compacted, Rewound, Said
from shoal.core.messages import (
    Base64Source,
    ContentBlock,
    Image,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    result_text,
)
from shoal.wire.content import dump
from shoal.wire.notices import LETTER

LONG = 4_000
"""Characters of a text that are sent unless the whole is requested."""
LONG_PICTURE = 400_000
"""Characters of a base64 image that are sent unless the whole is requested."""

_SUMMARY = re.compile(r"""summary=(["'])(.*?)\1""")

Shown: TypeAlias = dict[str, Any]


def entry_shown(number: int, entry: Said | Compacted | Rewound, *, whole: bool = False) -> Shown:
    role, by = "system", "runtime"
    match entry:
        case Said(message=message):
            role, by = str(message.role), _by(entry)
            shown = _with_letters if by == "agent" else _alone
            blocks = [each for block in message.content for each in shown(block, whole=whole)]
        case Compacted(tokens_before=tokens):
            blocks = [{"type": "text", "text": f"The conversation was compacted ({tokens:,} tokens)."}]
        case Rewound(turn=turn):
            blocks = [{"type": "text", "text": f"The conversation went back to before turn {turn}."}]
    return {"n": number, "at": entry.at, "role": role, "by": by, "blocks": blocks}


def _alone(block: ContentBlock, *, whole: bool) -> Iterator[Shown]:
    yield _block(block, whole=whole)


def _with_letters(block: ContentBlock, *, whole: bool) -> Iterator[Shown]:
    """Yield each mail message as a block of its own, so that none can imitate another or its sender."""
    if not isinstance(block, Text):
        yield _block(block, whole=whole)
        return
    end = 0
    for found in LETTER.finditer(block.text):
        yield from _words(block.text[end : found.start()], whole=whole)
        yield _letter(found, whole=whole)
        end = found.end()
    yield from _words(block.text[end:], whole=whole)


def _words(text: str, *, whole: bool) -> Iterator[Shown]:
    if text.strip():
        yield {"type": "text", **_cut(text.strip(), whole=whole)}


def _letter(found: re.Match[str], *, whole: bool) -> Shown:
    summary = _SUMMARY.search(found["about"])
    return {
        "type": "letter",
        "sender": found["sender"],
        "verified": 'verified="no"' not in found["about"],
        "summary": unescape(summary[2]) if summary else "",
        **_cut(found["words"], whole=whole),
    }


def _by(entry: Said) -> str:
    """Return who wrote the entry."""
    if entry.message.role == "assistant":
        return "model"
    if any(isinstance(block, ToolResult) for block in entry.message.content):
        return "tool"
    if entry.message.text.lstrip().startswith("<teammate-message"):
        return "agent"
    return "runtime" if entry.meta or entry.summary else "person"


def _block(block: ContentBlock, *, whole: bool) -> Shown:
    match block:
        case Text(text=text):
            return {"type": "text", **_cut(text, whole=whole)}
        case Thinking(thinking=text):
            return {"type": "thinking", **_cut(text, whole=whole)}
        case RedactedThinking():
            return {"type": "thinking", "text": "(kept secret by the provider)"}
        case Image():
            return _image(block, whole=whole)
        case ToolUse():
            return _call(block, whole=whole)
        case ToolResult(tool_use_id=call, is_error=is_error):
            shown = _cut(result_text(block), whole=whole)
            return {"type": "tool_result", "tool_use_id": call, "is_error": is_error, **shown}


def _cut(text: str, *, whole: bool) -> Shown:
    """Truncate the text; `cut` is its full length."""
    if whole or len(text) <= LONG:
        return {"text": text}
    return {"text": text[:LONG], "cut": len(text)}


def _image(block: Image, *, whole: bool) -> Shown:
    source = block.source
    if not isinstance(source, Base64Source):
        # The page makes no request to other hosts, so an image behind a URL is only named.
        return {"type": "image", "url": source.url}
    shown: Shown = {"type": "image", "media_type": source.media_type}
    if whole or len(source.data) <= LONG_PICTURE:
        return {**shown, "data": source.data}
    return {**shown, "cut": len(source.data)}


def _call(block: ToolUse, *, whole: bool) -> Shown:
    shown: Shown = {"type": "tool_use", "id": block.id, "name": block.name}
    if (changed := _difference(block.name, block.input)) is not None:
        shown["diff"] = changed
    length = 0 if whole else len(dump(block.input))
    if length <= LONG:
        return {**shown, "input": block.input}
    return {**shown, "input": _shortened(block.input), "cut": length}


def _shortened(value: Any) -> Any:
    """Truncate each long text and each long list in the value."""
    match value:
        case str():
            return value if len(value) <= LONG // 4 else value[: LONG // 4] + "…"
        case Mapping():
            return {str(key): _shortened(each) for key, each in list(value.items())[:50]}
        case list() | tuple():
            return [_shortened(each) for each in value[:50]]
        case _:
            return value


def _difference(tool: str, given: Mapping[str, Any]) -> str | None:
    """Return the diff of a call that edits a file, as far as its input shows."""
    match tool, given:
        case "Edit", {"old_string": str(old), "new_string": str(new)}:
            return difference(old, new)
        case "MultiEdit", {"edits": [*edits]}:
            parts = (_difference("Edit", each) for each in edits if isinstance(each, Mapping))
            return "\n".join(part for part in parts if part)
        case "Write", {"content": str(new)}:
            return difference("", new) if new else ""
        case _:
            return None
