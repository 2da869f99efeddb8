"""Converts results of MCP servers to tool output: text, images, links and data."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import mcp_types as types

from shoal.core.messages import Image, Text
from shoal.core.ports import Results
from shoal.core.tools import Outcome, Site
from shoal.tools.pictures import picture

MOST_IMAGES = 10


def outcome(result: types.CallToolResult, site: Site) -> Outcome:
    """Convert a call result. Long texts stay whole here; the conversation stores them by reference."""
    parts = _Parts(site.results, site.call_id)
    blocks = parts.blocks(result.content)
    data = result.structured_content
    if data is not None and not result.content:
        blocks = (Text(text=json.dumps(data, ensure_ascii=False, indent=1)),)
    return Outcome(
        content=_plainest(blocks),
        is_error=bool(result.is_error),
        data=None if data is None else {"structured": data},
    )


def resource_outcome(result: types.ReadResourceResult, site: Site) -> Outcome:
    parts = _Parts(site.results, site.call_id)
    embedded = [types.EmbeddedResource(type="resource", resource=each) for each in result.contents]
    return Outcome(content=_plainest(parts.blocks(embedded)) or "The resource is empty.")


def _plainest(blocks: tuple[Text | Image, ...]) -> str | tuple[Text | Image, ...]:
    first = blocks[0] if len(blocks) == 1 else None
    return first.text if isinstance(first, Text) else blocks or ""


def prompt_text(result: types.GetPromptResult) -> str:
    """Join the messages of a prompt into one text, with roles other than user named."""
    said = []
    for message in result.messages:
        text = _text_of(message.content)
        said.append(text if message.role == "user" else f"[{message.role}] {text}")
    return "\n\n".join(said)


def _text_of(block: Any) -> str:
    match block:
        case types.TextContent(text=text):
            return text
        case types.EmbeddedResource(resource=types.TextResourceContents(text=text, uri=uri)):
            return f"[{uri}]\n{text}"
        case types.ResourceLink():
            return _link(block)
        case _:
            return f"[{getattr(block, 'type', 'content')} that is no text]"


class _Parts:
    def __init__(self, results: Results, call: str) -> None:
        self._results = results
        self._call = call
        self._images = self._kept = 0

    def blocks(self, content: Sequence[Any]) -> tuple[Text | Image, ...]:
        """Convert the content; join adjacent texts, so that their total length can be bounded."""
        found = [self._block(each) for each in content]
        joined: list[Text | Image] = []
        for is_text, group in groupby(found, key=lambda block: isinstance(block, Text)):
            if is_text:
                joined.append(Text(text="\n".join(b.text for b in group if isinstance(b, Text))))
            else:
                joined += group
        return tuple(joined)

    def _block(self, block: Any) -> Text | Image:
        match block:
            case types.TextContent(text=text):
                return Text(text=text)
            case types.ImageContent(data=data, mime_type=kind):
                return self._bytes(data, kind)
            case types.AudioContent(data=data, mime_type=kind):
                return self._bytes(data, kind)
            case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
                return Text(text=f"[{resource.uri}]\n{resource.text}")
            case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
                return self._bytes(resource.blob, resource.mime_type or "application/octet-stream")
            case types.ResourceLink():
                return Text(text=_link(block))
            case _:
                return Text(text=f"[content of a kind that is not known: {type(block).__name__}]")

    def _bytes(self, data: str, kind: str) -> Text | Image:
        if kind.startswith("image/") and self._images < MOST_IMAGES and (shown := picture(data)) is not None:
            self._images += 1
            return shown
        try:
            content = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return Text(text=f"[{kind}: the server sent no valid base64]")
        self._kept += 1
        ending = re.sub(r"[^a-z0-9]", "", kind.rpartition("/")[2].lower())[:10] or "bin"
        name = re.sub(r"[^A-Za-z0-9_-]", "_", self._call)[:80]
        path = self._results.keep(f"{name}-{self._kept}.{ending}", content)
        return Text(text=f"[{kind}, {len(content):,} bytes, kept in {path}]")


def _link(link: types.ResourceLink) -> str:
    about = f": {link.description}" if link.description else ""
    return f"[resource {link.name} ({link.uri}){about} – read it with ReadMcpResourceTool]"
