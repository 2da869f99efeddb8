"""Transcript entries as JSON blocks for the page: truncated if long, with the diff of an edit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import unescape
from typing import Any, TypeAlias

from shoal.core.conversation.messages import (
    Base64ImageSource,
    ContentBlock,
    ImageBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    extract_tool_result_text,
)
from shoal.core.conversation.transcript_entries import (
    TranscriptCompactionMarker,
    TranscriptMessageEntry,
    TranscriptRewindMarker,
)
from shoal.core.text.control_tags import split_command_text
from shoal.core.text.text_diffs import format_unified_diff
from shoal.wire.json_codec import encode_json
from shoal.wire.notification_text import MAIL_MESSAGE_PATTERN

LONG = 4_000
"""Maximum number of characters of a text sent, unless the whole text is requested."""
LONG_PICTURE = 400_000
"""Maximum number of characters of a base64 image sent, unless the whole image is requested."""

_SUMMARY = re.compile(r"""summary=(["'])(.*?)\1""")

RenderedBlock: TypeAlias = dict[str, Any]


def render_transcript_entry(
    number: int,
    entry: TranscriptMessageEntry | TranscriptCompactionMarker | TranscriptRewindMarker,
    *,
    whole: bool = False,
) -> RenderedBlock:
    role, author = "system", "runtime"
    match entry:
        case TranscriptMessageEntry(message=message):
            role, author = str(message.role), _get_entry_author(entry)
            render = _BLOCK_RENDERERS.get(author, _render_block_without_mail)
            blocks = [each for block in message.content for each in render(block, whole=whole)]
        case TranscriptCompactionMarker(tokens_before=tokens):
            blocks = [{"type": "text", "text": f"The conversation was compacted ({tokens:,} tokens)."}]
        case TranscriptRewindMarker(turn=turn):
            blocks = [
                {"type": "text", "text": f"The conversation was rewound to its state before turn {turn}."}
            ]
    return {"n": number, "at": entry.at, "role": role, "by": author, "blocks": blocks}


def _render_block_without_mail(block: ContentBlock, *, whole: bool) -> Iterator[RenderedBlock]:
    yield _render_content_block(block, whole=whole)


def _render_block_splitting_mail(block: ContentBlock, *, whole: bool) -> Iterator[RenderedBlock]:
    """Yield each mail message as a separate block, so that none can imitate another or its sender."""
    if not isinstance(block, TextBlock):
        yield _render_content_block(block, whole=whole)
        return
    end = 0
    for mail_match in MAIL_MESSAGE_PATTERN.finditer(block.text):
        yield from _render_nonblank_text(block.text[end : mail_match.start()], whole=whole)
        yield _render_mail(mail_match, whole=whole)
        end = mail_match.end()
    yield from _render_nonblank_text(block.text[end:], whole=whole)


def _render_block_splitting_command(block: ContentBlock, *, whole: bool) -> Iterator[RenderedBlock]:
    """Yield a slash command as the user typed it, then its text or its output."""
    if not isinstance(block, TextBlock):
        yield _render_content_block(block, whole=whole)
        return
    typed, rest = split_command_text(block.text)
    yield from _render_nonblank_text(typed, whole=whole)
    if rest.strip() or not typed:
        yield {"type": "text", **_build_truncated_text_fields(rest, whole=whole)}


_BLOCK_RENDERERS = {"agent": _render_block_splitting_mail, "person": _render_block_splitting_command}


def _render_nonblank_text(text: str, *, whole: bool) -> Iterator[RenderedBlock]:
    if text.strip():
        yield {"type": "text", **_build_truncated_text_fields(text.strip(), whole=whole)}


def _render_mail(mail_match: re.Match[str], *, whole: bool) -> RenderedBlock:
    summary = _SUMMARY.search(mail_match["about"])
    return {
        "type": "letter",
        "sender": mail_match["sender"],
        "verified": 'verified="no"' not in mail_match["about"],
        "summary": unescape(summary[2]) if summary else "",
        **_build_truncated_text_fields(mail_match["words"], whole=whole),
    }


def _get_entry_author(entry: TranscriptMessageEntry) -> str:
    """Return who wrote the entry."""
    if entry.message.role == "assistant":
        return "model"
    if any(isinstance(block, ToolResultBlock) for block in entry.message.content):
        return "tool"
    if entry.message.text.lstrip().startswith("<teammate-message"):
        return "agent"
    return "runtime" if entry.meta or entry.summary else "person"


def _render_content_block(block: ContentBlock, *, whole: bool) -> RenderedBlock:
    match block:
        case TextBlock(text=text):
            return {"type": "text", **_build_truncated_text_fields(text, whole=whole)}
        case ThinkingBlock(thinking=text):
            return {"type": "thinking", **_build_truncated_text_fields(text, whole=whole)}
        case RedactedThinkingBlock():
            return {"type": "thinking", "text": "(hidden by the provider)"}
        case ImageBlock():
            return _render_image(block, whole=whole)
        case ToolUseBlock():
            return _render_tool_call(block, whole=whole)
        case ToolResultBlock(tool_use_id=call, is_error=is_error):
            truncated = _build_truncated_text_fields(extract_tool_result_text(block), whole=whole)
            return {"type": "tool_result", "tool_use_id": call, "is_error": is_error, **truncated}


def _build_truncated_text_fields(text: str, *, whole: bool) -> RenderedBlock:
    """Truncate the text; `cut` is its full length."""
    if whole or len(text) <= LONG:
        return {"text": text}
    return {"text": text[:LONG], "cut": len(text)}


def _render_image(block: ImageBlock, *, whole: bool) -> RenderedBlock:
    source = block.source
    if not isinstance(source, Base64ImageSource):
        # The page makes no request to other hosts, so an image behind a URL is only named.
        return {"type": "image", "url": source.url}
    rendered: RenderedBlock = {"type": "image", "media_type": source.media_type}
    if whole or len(source.data) <= LONG_PICTURE:
        return {**rendered, "data": source.data}
    return {**rendered, "cut": len(source.data)}


def _render_tool_call(block: ToolUseBlock, *, whole: bool) -> RenderedBlock:
    rendered: RenderedBlock = {"type": "tool_use", "id": block.id, "name": block.name}
    if (edit_diff := _format_edit_call_diff(block.name, block.input)) is not None:
        rendered["diff"] = edit_diff
    length = 0 if whole else len(encode_json(block.input))
    if length <= LONG:
        return {**rendered, "input": block.input}
    return {**rendered, "input": _shorten_json_value(block.input), "cut": length}


def _shorten_json_value(value: Any) -> Any:
    """Truncate each long text and each long list in the value."""
    match value:
        case str():
            return value if len(value) <= LONG // 4 else value[: LONG // 4] + "…"
        case Mapping():
            return {str(key): _shorten_json_value(each) for key, each in list(value.items())[:50]}
        case list() | tuple():
            return [_shorten_json_value(each) for each in value[:50]]
        case _:
            return value


def _format_edit_call_diff(tool: str, tool_input: Mapping[str, Any]) -> str | None:
    """Return the diff of a call that edits a file, as far as its input shows."""
    match tool, tool_input:
        case "Edit", {"old_string": str(old), "new_string": str(new)}:
            return format_unified_diff(old, new)
        case "MultiEdit", {"edits": [*edits]}:
            parts = (_format_edit_call_diff("Edit", each) for each in edits if isinstance(each, Mapping))
            return "\n".join(part for part in parts if part)
        case "Write", {"content": str(new)}:
            return format_unified_diff("", new) if new else ""
        case _:
            return None
