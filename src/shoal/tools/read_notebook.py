"""Notebooks formatted for a model: cells with their ids, sources and outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from shoal.core.messages import Image, Text
from shoal.core.tools import Outcome
from shoal.tools.pictures import picture

_LONGEST_OUTPUT = 10_000
_LONGEST_ALL = 100_000
_MOST_IMAGES = 10
_LARGEST_IMAGE = 1_000_000
_COLOURS = re.compile("\x1b\\[[0-9;]*m")


def notebook_outcome(content: bytes) -> Outcome | None:
    """Return the notebook's cells, or None if it is not a notebook and can be read as text."""
    try:
        notebook = json.loads(content)
        cells = notebook["cells"]
        parts = [part for number, cell in enumerate(cells) for part in _cell(number, cell)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not parts:
        return Outcome(content="(a notebook without cells)")
    return Outcome(content=_joined(parts))


def cell_name(number: int, cell: Mapping[str, Any]) -> str:
    """Return the cell's id, or its position, like `cell-3`, in notebooks that have no ids."""
    return str(cell.get("id") or f"cell-{number}")


def _cell(number: int, cell: Mapping[str, Any]) -> Iterator[str | Image]:
    opening = f"<cell id={cell_name(number, cell)} type={cell['cell_type']}>"
    yield f"{opening}\n{_joined_text(cell['source'])}\n</cell>"
    for output in cell.get("outputs", ()):
        yield from _output(output)


def _output(output: Mapping[str, Any]) -> Iterator[str | Image]:
    if output["output_type"] == "stream":
        yield _told(f"output ({output.get('name', 'stdout')})", _joined_text(output["text"]))
    elif output["output_type"] == "error":
        yield _told("error", "\n".join(output.get("traceback") or [f"{output['ename']}: {output['evalue']}"]))
    else:
        data = output.get("data", {})
        if "text/plain" in data:
            yield _told("output", _joined_text(data["text/plain"]))
        for media_type in ("image/png", "image/jpeg"):
            if media_type in data:
                yield _picture(_joined_text(data[media_type]).replace("\n", ""))


def _picture(data: str) -> str | Image:
    if len(data) > _LARGEST_IMAGE:
        return f"(a picture of {len(data):,} characters of base64 left out)"
    return picture(data) or "(a picture that is none left out)"


def _told(what: str, text: str) -> str:
    text = _COLOURS.sub("", text)
    if len(text) > _LONGEST_OUTPUT:
        text = f"{text[:_LONGEST_OUTPUT]}\n[cut: {_LONGEST_OUTPUT:,} of {len(text):,} characters shown]"
    return f"<{what}>\n{text}\n</{what.split(maxsplit=1)[0]}>"


def _joined_text(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)


def _joined(parts: list[str | Image]) -> str | tuple[Text | Image, ...]:
    blocks: list[Text | Image] = []
    texts: list[str] = []
    room, pictures = _LONGEST_ALL, _MOST_IMAGES
    for number, part in enumerate(parts):
        if isinstance(part, Image):
            pictures -= 1
            if pictures >= 0:
                blocks.extend((Text(text="\n".join(texts)), part) if texts else (part,))
                texts = []
            continue
        if len(part) > room:
            texts.append(f"[Cut: {len(parts) - number} more cells and outputs. Use Grep for the rest.]")
            break
        room -= len(part)
        texts.append(part)
    if not blocks:
        return "\n".join(texts)
    return (*blocks, Text(text="\n".join(texts))) if texts else tuple(blocks)
