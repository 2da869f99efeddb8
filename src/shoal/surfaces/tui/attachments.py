"""Attachments of a prompt: folded pasted texts, and images named by their path."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

from shoal.core.conversation.messages import Base64ImageSource, ImageBlock, Message, TextBlock
from shoal.tools.fitted_images import UnfittingImage, fit_image
from shoal.tools.images import MAX_IMAGE_BYTES, MAX_INPUT_BYTES

LONG_LINES = 10
LONG_TEXT = 1_000
"""Number of lines or characters at which a pasted text is folded."""
_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
_PATH = re.compile(r"""'([^']+)'|"([^"]+)"|((?:\\.|\S)+)""")


class PastedTextPlaceholders:
    """Long pasted texts by the placeholder shown in their place."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def fold_into_placeholder(self, text: str) -> str:
        """Return the placeholder for a long text; a short text is returned unchanged."""
        lines = text.count("\n") + 1
        if lines <= LONG_LINES and len(text) <= LONG_TEXT:
            return text
        size = f"{lines} lines" if lines > 1 else f"{len(text)} characters"
        mark = f"[pasted {size}]"
        number = 2
        while mark in self._texts and self._texts[mark] != text:
            mark = f"[pasted {size}, no. {number}]"
            number += 1
        self._texts[mark] = text
        return mark

    def unfold_placeholders(self, text: str) -> str:
        for mark, full_text in self._texts.items():
            text = text.replace(mark, full_text)
        return text

    def clear(self) -> None:
        self._texts.clear()


def build_prompt_message(text: str, root: Path, *, images: bool) -> tuple[Message, list[str]]:
    """Return the prompt with the images it names, and notes about images that are not sent."""
    content: list[TextBlock | ImageBlock] = [TextBlock(text=text)]
    warnings: list[str] = []
    for path in _find_image_paths(text, root):
        if not images:
            warnings.append(f"{path.name} was not sent because this model does not accept images.")
            continue
        try:
            if path.stat().st_size > MAX_INPUT_BYTES:
                warnings.append(
                    f"{path.name} was not sent because it is larger than "
                    f"{MAX_INPUT_BYTES // 1024 // 1024} MB."
                )
                continue
            data = path.read_bytes()
        except OSError as error:
            warnings.append(f"{path.name} was not sent: {error.strerror}.")
            continue
        fitted = fit_image(data, _TYPES[path.suffix.lower()], max_bytes=MAX_IMAGE_BYTES)
        if isinstance(fitted, UnfittingImage):
            warnings.append(f"{path.name} was not sent because {fitted.reason.removesuffix('.')}.")
            continue
        source = Base64ImageSource(
            media_type=fitted.media_type, data=base64.b64encode(fitted.content).decode()
        )
        content.append(ImageBlock(source=source))
    return Message(role="user", content=tuple(content)), warnings


def _find_image_paths(text: str, root: Path) -> Iterator[Path]:
    seen_paths: set[Path] = set()
    for single, double, bare in _PATH.findall(text):
        word = single or double or re.sub(r"\\(.)", r"\1", bare)
        word = word.removeprefix("file://").removeprefix("@")
        if Path(word).suffix.lower() not in _TYPES:
            continue
        try:
            path = (root / Path(word).expanduser()).resolve()
            exists = path.is_file()
        except (OSError, RuntimeError, ValueError):
            continue
        if exists and path not in seen_paths:
            seen_paths.add(path)
            yield path
