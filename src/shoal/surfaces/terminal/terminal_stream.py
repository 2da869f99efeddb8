"""Standard output and error of a terminal, without characters that Shoal never writes on purpose.

Text of models and programs is stripped where it is formatted. This is the last line of defense, for text that
was not. Escape sequences pass: Shoal's own colors are made of them.
"""

from __future__ import annotations

import re
import sys
from typing import Any, BinaryIO, TextIO

from shoal.core.text.lazy_patterns import compile_on_first_use

# C1 control characters, marks that change the reading order of text, and characters without width, except
# those in words and emoji; as text and as UTF-8.
_FORBIDDEN_TEXT = compile_on_first_use(
    "[\x80-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_FORBIDDEN_BYTES = compile_on_first_use(
    rb"\xc2[\x80-\x9f\xad]|\xd8\x9c|\xe1\xa0\x8e|\xe2\x80[\x8b\x8e\x8f\xaa-\xae]|\xe2\x81[\xa0-\xaf]|\xef\xbb\xbf"
    rb"|\xef\xbf[\xb9-\xbb]|\xf3\xa0[\x80\x81][\x80-\xbf]",
    re.DOTALL,
)
_UNFINISHED_BYTES = compile_on_first_use(
    rb"(?:\xc2|\xd8|\xe1\xa0?|\xe2[\x80\x81]?|\xef[\xbb\xbf]?|\xf3(?:\xa0[\x80\x81]?)?)\Z"
)


class TerminalByteStream:
    """Binary stream of a terminal."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._rest = b""
        """First bytes of a character that is not complete yet."""

    def write(self, data: bytes | bytearray | memoryview) -> int:
        content = self._rest + bytes(data)
        unfinished = _UNFINISHED_BYTES.search(content)
        end = len(content) if unfinished is None else unfinished.start()
        self._rest = content[end:]
        self._stream.write(_FORBIDDEN_BYTES.sub(b"", content[:end]))
        return len(data)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class TerminalTextStream:
    """Text stream of a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.buffer = TerminalByteStream(stream.buffer)

    def write(self, text: str) -> int:
        self._stream.write(text if text.isascii() else _FORBIDDEN_TEXT.sub("", text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guard_terminal_streams() -> None:
    """Replace standard output and error where they are a terminal."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, TerminalTextStream) and stream.isatty():
            setattr(sys, name, TerminalTextStream(stream))
