"""Key presses decoded from the bytes that a terminal sends."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct


class TypedText(Struct, frozen=True):
    text: str


class PastedText(Struct, frozen=True):
    text: str


class NamedKeyPress(Struct, frozen=True):
    name: str


KeyPress: TypeAlias = TypedText | PastedText | NamedKeyPress

_CONTROL_KEYS = {
    "\r": "enter",
    "\n": "enter",
    "\x01": "home",
    "\x02": "to-background",
    "\x03": "interrupt",
    "\x04": "end-of-input",
    "\x05": "end",
    "\x06": "right",
    "\x07": "Ctrl-G",
    "\x08": "backspace",
    "\x09": "tab",
    "\x0b": "kill-to-end",
    "\x0c": "redraw",
    "\x0e": "down",
    "\x10": "up",
    "\x12": "Ctrl-R",
    "\x13": "Ctrl-S",
    "\x15": "kill-to-start",
    "\x17": "kill-word",
    "\x7f": "backspace",
}
_ESCAPE_SEQUENCES = {
    "[A": "up",
    "[B": "down",
    "[C": "right",
    "[D": "left",
    "[H": "home",
    "[F": "end",
    "[1~": "home",
    "[7~": "home",
    "[4~": "end",
    "[8~": "end",
    "[3~": "delete",
    "OA": "up",
    "OB": "down",
    "OC": "right",
    "OD": "left",
    "OH": "home",
    "OF": "end",
    "[1;5C": "word-right",
    "[1;5D": "word-left",
    "[1;3C": "word-right",
    "[1;3D": "word-left",
    "b": "word-left",
    "f": "word-right",
    "t": "Alt-T",
    "[Z": "back-tab",
    "\r": "newline",
    "\n": "newline",
    "\x7f": "kill-word",
}
_PASTE, _PASTE_END = "\x1b[200~", "\x1b[201~"
_ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.|[^\[O])", re.DOTALL)
_PLAIN = re.compile(r"[^\x00-\x1f\x7f]+")


class TerminalKeyDecoder:
    """Keeps incomplete input: a character or a sequence may arrive in two reads.

    An escape waits for what follows; the reader calls `flush_escape` when nothing did.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def decode_key_presses(self, data: bytes) -> Iterator[KeyPress]:
        text = self._rest + self._decode(data)
        self._rest = ""
        position = 0
        while position < len(text):
            if text.startswith(_PASTE, position):
                end = text.find(_PASTE_END, position)
                if end < 0:
                    self._rest = text[position:]
                    return
                yield PastedText(text[position + len(_PASTE) : end].replace("\r\n", "\n").replace("\r", "\n"))
                position = end + len(_PASTE_END)
            elif text[position] == "\x1b":
                match = _ESCAPE.match(text, position)
                if match is None:
                    self._rest = text[position:]
                    return
                if name := _ESCAPE_SEQUENCES.get(match[1]):
                    yield NamedKeyPress(name)
                position = match.end()
            elif plain_match := _PLAIN.match(text, position):
                yield TypedText(plain_match[0])
                position = plain_match.end()
            else:
                if name := _CONTROL_KEYS.get(text[position]):
                    yield NamedKeyPress(name)
                position += 1

    @property
    def has_pending_escape(self) -> bool:
        return self._rest == "\x1b"

    def flush_escape(self) -> Iterator[KeyPress]:
        """Return a pending escape as the escape key: nothing followed it."""
        if self.has_pending_escape:
            self._rest = ""
            yield NamedKeyPress("escape")
