"""Pictures that a model can be shown: providers refuse a whole conversation for one that is none."""

from __future__ import annotations

import base64
import binascii

from shoal.core.messages import Base64Source, Image

LARGEST = 5 << 20
"""Characters of base64: what providers take."""
_MARKS = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


def picture_type(start: bytes) -> str | None:
    """The media type, from how the content begins; None where it is no picture that can be shown."""
    if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for mark, media_type in _MARKS if start.startswith(mark)), None)


def picture(data: str) -> Image | None:
    """What somebody else sent as base64, as what it is, whatever they call it; None where it is none."""
    if len(data) > LARGEST:
        return None
    try:
        media_type = picture_type(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return None
    return None if media_type is None else Image(source=Base64Source(media_type=media_type, data=data))
