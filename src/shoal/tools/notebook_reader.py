"""Notebooks formatted for a model: cells with their ids, sources and outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from shoal.core.conversation.messages import ImageBlock, TextBlock
from shoal.core.conversation.tools import ToolOutput
from shoal.tools.images import image_from_base64
from shoal.tools.tool_texts import format_tool_text

_MAX_OUTPUT_CHARACTERS = 10_000
_MAX_TOTAL_CHARACTERS = 100_000
_MAX_IMAGES = 10
_MAX_IMAGE_CHARACTERS = 1_000_000
_COLOUR_CODES = re.compile("\x1b\\[[0-9;]*m")


def format_notebook(content: bytes) -> ToolOutput | None:
    """Return the notebook's cells, or None if it is not a notebook and can be read as text."""
    try:
        notebook = json.loads(content)
        cells = notebook["cells"]
        parts = [part for number, cell in enumerate(cells) for part in _format_notebook_cell(number, cell)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not parts:
        return ToolOutput(content=format_tool_text("Read", "empty_notebook"))
    return ToolOutput(content=_join_notebook_parts(parts))


def get_notebook_cell_id(number: int, cell: Mapping[str, Any]) -> str:
    """Return the cell's id, or its position, like `cell-3`, in notebooks that have no ids."""
    return str(cell.get("id") or f"cell-{number}")


def _format_notebook_cell(number: int, cell: Mapping[str, Any]) -> Iterator[str | ImageBlock]:
    start_tag = f"<cell id={get_notebook_cell_id(number, cell)} type={cell['cell_type']}>"
    yield f"{start_tag}\n{_join_notebook_lines(cell['source'])}\n</cell>"
    for output in cell.get("outputs", ()):
        yield from _format_cell_output(output)


def _format_cell_output(output: Mapping[str, Any]) -> Iterator[str | ImageBlock]:
    if output["output_type"] == "stream":
        yield _format_output_section(
            f"output ({output.get('name', 'stdout')})", _join_notebook_lines(output["text"])
        )
    elif output["output_type"] == "error":
        yield _format_output_section(
            "error", "\n".join(output.get("traceback") or [f"{output['ename']}: {output['evalue']}"])
        )
    else:
        data = output.get("data", {})
        if "text/plain" in data:
            yield _format_output_section("output", _join_notebook_lines(data["text/plain"]))
        for media_type in ("image/png", "image/jpeg"):
            if media_type in data:
                yield _decode_notebook_image(_join_notebook_lines(data[media_type]).replace("\n", ""))


def _decode_notebook_image(data: str) -> str | ImageBlock:
    if len(data) > _MAX_IMAGE_CHARACTERS:
        return f"(an image of {len(data):,} base64 characters is omitted)"
    return image_from_base64(data) or "(an invalid image is omitted)"


def _format_output_section(label: str, text: str) -> str:
    text = _COLOUR_CODES.sub("", text)
    if len(text) > _MAX_OUTPUT_CHARACTERS:
        notice = f"[cut: {_MAX_OUTPUT_CHARACTERS:,} of {len(text):,} characters shown]"
        text = f"{text[:_MAX_OUTPUT_CHARACTERS]}\n{notice}"
    return f"<{label}>\n{text}\n</{label.split(maxsplit=1)[0]}>"


def _join_notebook_lines(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)


def _join_notebook_parts(parts: list[str | ImageBlock]) -> str | tuple[TextBlock | ImageBlock, ...]:
    blocks: list[TextBlock | ImageBlock] = []
    texts: list[str] = []
    characters_left, images_left = _MAX_TOTAL_CHARACTERS, _MAX_IMAGES
    for number, part in enumerate(parts):
        if isinstance(part, ImageBlock):
            images_left -= 1
            if images_left >= 0:
                blocks.extend((TextBlock(text="\n".join(texts)), part) if texts else (part,))
                texts = []
            continue
        if len(part) > characters_left:
            texts.append(format_tool_text("Read", "notebook_cut", count=len(parts) - number))
            break
        characters_left -= len(part)
        texts.append(part)
    if not blocks:
        return "\n".join(texts)
    return (*blocks, TextBlock(text="\n".join(texts))) if texts else tuple(blocks)
