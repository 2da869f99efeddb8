"""Images scaled down to a size that providers accept, with the optional package Pillow."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from msgspec import Struct

from shoal.core.conversation.image_sizes import is_image_too_large, measure_image
from shoal.tools.tool_texts import format_tool_text

MAX_SCALED_SIDE = 2_000
"""Longest side of a scaled image in pixels: providers accept it even in requests with many images."""
MAX_DECODED_PIXELS = 50_000_000
"""Images with more pixels are not decoded, because they would need too much memory."""
INSTALL_COMMAND = "pip install 'shoal[images]'"
_JPEG_QUALITY = 85


class FittedImage(Struct, frozen=True, kw_only=True):
    """Image that providers accept."""

    content: bytes
    media_type: str
    scaled_from: tuple[int, int] | None = None
    """Width and height before it was scaled; None if it is unchanged."""


class UnfittingImage(Struct, frozen=True, kw_only=True):
    """Image that providers would refuse."""

    reason: str
    """Clause after "because"."""


def fit_image(content: bytes, media_type: str, *, max_bytes: int) -> FittedImage | UnfittingImage:
    """Return the image, scaled down if a side has too many pixels or the file is too large."""
    if not is_image_too_large(content) and len(content) <= max_bytes:
        return FittedImage(content=content, media_type=media_type)
    width, height = measure_image(content) or (0, 0)
    size = f"is {width:,} x {height:,} pixels" if width and height else f"has {len(content):,} bytes"
    if not width or not height:  # a decoder might search such a file for minutes
        error = "its size in pixels cannot be read"
        return UnfittingImage(reason=format_tool_text("Read", "image_not_scaled", size=size, error=error))
    if width * height > MAX_DECODED_PIXELS:
        return UnfittingImage(reason=format_tool_text("Read", "image_too_large", size=size))
    try:
        from PIL import Image
    except ImportError:
        return UnfittingImage(
            reason=format_tool_text("Read", "image_needs_package", size=size, command=INSTALL_COMMAND)
        )
    try:
        with Image.open(BytesIO(content)) as image:
            scaled, scaled_type = _scale_image(image, max_bytes)
    except Exception as error:  # noqa: BLE001 - decoders raise errors of many types for invalid files
        return UnfittingImage(reason=format_tool_text("Read", "image_not_scaled", size=size, error=error))
    if len(scaled) > max_bytes:
        return UnfittingImage(reason=format_tool_text("Read", "image_still_large", size=f"{len(scaled):,}"))
    return FittedImage(content=scaled, media_type=scaled_type, scaled_from=(width, height))


def _scale_image(image: Any, max_bytes: int) -> tuple[bytes, str]:
    # JPEG images are decoded at a fraction of their size.
    image.draft(None, (MAX_SCALED_SIDE, MAX_SCALED_SIDE))
    has_alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    converted = image.convert("RGBA" if has_alpha else "RGB")
    converted.thumbnail((MAX_SCALED_SIDE, MAX_SCALED_SIDE))
    output = BytesIO()
    if image.format != "JPEG":
        converted.save(output, "PNG", optimize=True)
        if output.tell() <= max_bytes:
            return output.getvalue(), "image/png"
        output = BytesIO()
    converted.convert("RGB").save(output, "JPEG", quality=_JPEG_QUALITY)
    return output.getvalue(), "image/jpeg"
