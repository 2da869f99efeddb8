"""Converts results of MCP servers to tool output: text, images, links and data."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import mcp_types

from shoal.core.conversation.messages import ImageBlock, TextBlock
from shoal.core.conversation.tools import ToolContext, ToolOutput
from shoal.core.ports import ResultStore
from shoal.tools.images import image_from_base64
from shoal.tools.tool_texts import format_tool_text, load_tool_text

MAX_IMAGES = 10


def convert_mcp_call_result(result: mcp_types.CallToolResult, context: ToolContext) -> ToolOutput:
    """Convert a call result. Long texts stay whole here; the conversation stores them by reference."""
    converter = _McpResultContentConverter(context.results, context.call_id)
    blocks = converter.convert_blocks(result.content)
    data = result.structured_content
    if data is not None and not result.content:
        blocks = (TextBlock(text=json.dumps(data, ensure_ascii=False, indent=1)),)
    return ToolOutput(
        content=_simplify_single_text_block(blocks),
        is_error=bool(result.is_error),
        data=None if data is None else {"structured": data},
    )


def convert_mcp_resource_result(result: mcp_types.ReadResourceResult, context: ToolContext) -> ToolOutput:
    converter = _McpResultContentConverter(context.results, context.call_id)
    embedded = [mcp_types.EmbeddedResource(type="resource", resource=each) for each in result.contents]
    return ToolOutput(
        content=_simplify_single_text_block(converter.convert_blocks(embedded))
        or load_tool_text("mcp", "empty_resource")
    )


def _simplify_single_text_block(
    blocks: tuple[TextBlock | ImageBlock, ...],
) -> str | tuple[TextBlock | ImageBlock, ...]:
    first = blocks[0] if len(blocks) == 1 else None
    return first.text if isinstance(first, TextBlock) else blocks or ""


def format_mcp_prompt_result(result: mcp_types.GetPromptResult) -> str:
    """Join the messages of a prompt into one text, with roles other than user named."""
    paragraphs = []
    for message in result.messages:
        text = _extract_prompt_text(message.content)
        paragraphs.append(text if message.role == "user" else f"[{message.role}] {text}")
    return "\n\n".join(paragraphs)


def _extract_prompt_text(block: Any) -> str:
    match block:
        case mcp_types.TextContent(text=text):
            return text
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents(text=text, uri=uri)):
            return f"[{uri}]\n{text}"
        case mcp_types.ResourceLink():
            return _format_resource_link(block)
        case _:
            return f"[{getattr(block, 'type', 'content')} that is not text]"


class _McpResultContentConverter:
    def __init__(self, results: ResultStore, call: str) -> None:
        self._results = results
        self._call = call
        self._images = self._stored_files = 0

    def convert_blocks(self, content: Sequence[Any]) -> tuple[TextBlock | ImageBlock, ...]:
        """Convert the content; join adjacent texts, so that their total length can be bounded."""
        converted = [self._convert_block(each) for each in content]
        joined: list[TextBlock | ImageBlock] = []
        for is_text, group in groupby(converted, key=lambda block: isinstance(block, TextBlock)):
            if is_text:
                joined.append(TextBlock(text="\n".join(b.text for b in group if isinstance(b, TextBlock))))
            else:
                joined += group
        return tuple(joined)

    def _convert_block(self, block: Any) -> TextBlock | ImageBlock:
        match block:
            case mcp_types.TextContent(text=text):
                return TextBlock(text=text)
            case mcp_types.ImageContent(data=data, mime_type=media_type):
                return self._convert_base64_content(data, media_type)
            case mcp_types.AudioContent(data=data, mime_type=media_type):
                return self._convert_base64_content(data, media_type)
            case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents() as resource):
                return TextBlock(text=f"[{resource.uri}]\n{resource.text}")
            case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents() as resource):
                return self._convert_base64_content(
                    resource.blob, resource.mime_type or "application/octet-stream"
                )
            case mcp_types.ResourceLink():
                return TextBlock(text=_format_resource_link(block))
            case _:
                return TextBlock(text=format_tool_text("mcp", "unknown_content", kind=type(block).__name__))

    def _convert_base64_content(self, data: str, media_type: str) -> TextBlock | ImageBlock:
        if (
            media_type.startswith("image/")
            and self._images < MAX_IMAGES
            and (image := image_from_base64(data)) is not None
        ):
            self._images += 1
            return image
        try:
            content = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return TextBlock(text=format_tool_text("mcp", "invalid_base", media_type=media_type))
        self._stored_files += 1
        suffix = re.sub(r"[^a-z0-9]", "", media_type.rpartition("/")[2].lower())[:10] or "bin"
        name = re.sub(r"[^A-Za-z0-9_-]", "_", self._call)[:80]
        path = self._results.save_result(f"{name}-{self._stored_files}.{suffix}", content)
        return TextBlock(
            text=format_tool_text(
                "mcp", "saved_content", media_type=media_type, size=f"{len(content):,}", path=path
            )
        )


def _format_resource_link(link: mcp_types.ResourceLink) -> str:
    description = f": {link.description}" if link.description else ""
    return format_tool_text("mcp", "resource_link", name=link.name, uri=link.uri, description=description)
