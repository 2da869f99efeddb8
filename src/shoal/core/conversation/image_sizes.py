"""Size of images in pixels, from their first bytes."""

from __future__ import annotations

MAX_IMAGE_SIDE = 8_000
"""Pixels per side that every provider accepts."""
_MAX_JPEG_STEPS = 10_000
"""Markers and padding bytes before the size; more of them would only cost time."""
_JPEG_SIZE_MARKERS = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})


def measure_image(content: bytes) -> tuple[int, int] | None:
    """Return the width and height of a PNG, JPEG, GIF or WebP image; None if they cannot be read."""
    if content.startswith(b"\x89PNG\r\n\x1a\n") and len(content) >= 24:
        return _read_big_endian(content, 16, 4), _read_big_endian(content, 20, 4)
    if content.startswith(b"GIF8") and len(content) >= 10:
        return _read_little_endian(content, 6, 2), _read_little_endian(content, 8, 2)
    if content.startswith(b"\xff\xd8"):
        return _measure_jpeg(content)
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP" and len(content) >= 30:
        return _measure_webp(content)
    return None


def is_image_too_large(content: bytes) -> bool:
    """Return True if a side is longer than providers accept, or if it has no pixels."""
    size = measure_image(content)
    return size is not None and not 0 < min(size) <= max(size) <= MAX_IMAGE_SIDE


def _measure_jpeg(content: bytes) -> tuple[int, int] | None:
    position = 2
    for _ in range(_MAX_JPEG_STEPS):
        if position + 9 > len(content):
            return None
        if content[position] != 0xFF:
            return None
        marker = content[position + 1]
        if marker == 0xFF:  # padding
            position += 1
        elif marker in _JPEG_SIZE_MARKERS:
            return _read_big_endian(content, position + 7, 2), _read_big_endian(content, position + 5, 2)
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # markers without a length
            position += 2
        else:
            position += 2 + _read_big_endian(content, position + 2, 2)
    return None


def _measure_webp(content: bytes) -> tuple[int, int] | None:
    match content[12:16]:
        case b"VP8X":
            return _read_little_endian(content, 24, 3) + 1, _read_little_endian(content, 27, 3) + 1
        case b"VP8L":
            bits = _read_little_endian(content, 21, 4)
            return (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1
        case b"VP8 ":
            return _read_little_endian(content, 26, 2) & 0x3FFF, _read_little_endian(content, 28, 2) & 0x3FFF
        case _:
            return None


def _read_big_endian(content: bytes, start: int, length: int) -> int:
    return int.from_bytes(content[start : start + length], "big")


def _read_little_endian(content: bytes, start: int, length: int) -> int:
    return int.from_bytes(content[start : start + length], "little")
