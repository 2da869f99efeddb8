"""Validated images: providers reject a whole conversation for one invalid image."""

from __future__ import annotations

import base64
import binascii

from shoal.core.conversation.image_sizes import is_image_too_large
from shoal.core.conversation.messages import Base64ImageSource, ImageBlock

MAX_BASE64_CHARACTERS = 5 << 20
"""Limit set by providers, in base64 characters."""
MAX_IMAGE_BYTES = 3_750_000
"""Limit set by providers, in bytes."""
MAX_INPUT_BYTES = 50 << 20
"""Largest file that Shoal reads to scale it down."""
MAX_INPUT_CHARACTERS = MAX_INPUT_BYTES // 3 * 4
_MAGIC_NUMBERS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


def detect_image_type(start: bytes) -> str | None:
    """Return the media type from the first bytes, or None if it is not a supported image."""
    if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for mark, media_type in _MAGIC_NUMBERS if start.startswith(mark)), None)


def image_from_base64(data: str) -> ImageBlock | None:
    """Build an image from base64, with the detected type; None if providers would not accept it."""
    if len(data) > MAX_INPUT_CHARACTERS:
        return None
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    media_type = detect_image_type(content)
    if media_type is None:
        return None
    if len(data) > MAX_BASE64_CHARACTERS or is_image_too_large(content):
        from shoal.tools.fitted_images import UnfittingImage, fit_image

        fitted = fit_image(content, media_type, max_bytes=MAX_IMAGE_BYTES)
        if isinstance(fitted, UnfittingImage):
            return None
        media_type, data = fitted.media_type, base64.b64encode(fitted.content).decode()
    return ImageBlock(source=Base64ImageSource(media_type=media_type, data=data))
