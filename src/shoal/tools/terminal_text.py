"""Converts a program's terminal output to plain text, incrementally."""

from __future__ import annotations

import codecs
import re

from shoal.core.text.lazy_patterns import compile_on_first_use

_ESCAPE = compile_on_first_use(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colors, cursor moves
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links
    r"|[PX^_][^\x1b]*\x1b\\"  # strings for the terminal
    r"|[ -/]*[0-~])"
)
# May continue in the next chunk: the start of an escape sequence, or the first half of a line end.
_UNFINISHED = compile_on_first_use(r"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)|\r)\Z")
_MAX_ESCAPE_CHARACTERS = 4096
_LINE_END = re.compile(r"\r\n?")
_CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if code not in (9, 10)} | {0: "\ufffd"}


class TerminalTextDecoder:
    """Decodes UTF-8 (invalid bytes become U+FFFD) and drops escape codes and control characters."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._pending = ""

    def decode(self, data: bytes, *, final: bool = False) -> str:
        text = self._pending + self._decoder.decode(data, final)
        self._pending = ""
        if "\x1b" in text or text.endswith("\r"):
            text = _ESCAPE.sub("", text)
            unfinished = (
                None if final else _UNFINISHED.search(text, max(0, len(text) - _MAX_ESCAPE_CHARACTERS))
            )
            if unfinished is not None:
                self._pending = text[unfinished.start() :]
                text = text[: unfinished.start()]
        if "\r" in text:
            text = _LINE_END.sub("\n", text)
        return text.translate(_CONTROLS)


def decode_terminal_text(data: bytes) -> str:
    return TerminalTextDecoder().decode(data, final=True)
