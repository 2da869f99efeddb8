"""Key presses decoded from the bytes that a terminal sends."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct


class Typed(Struct, frozen=True):
    text: str


class Pasted(Struct, frozen=True):
    text: str


class Key(Struct, frozen=True):
    name: str


Press: TypeAlias = Typed | Pasted | Key

_CONTROLS = {
    "\r": "enter",
    "\n": "enter",
    "\x01": "home",
    "\x02": "to-background",
    "\x03": "interrupt",
    "\x04": "end-of-input",
    "\x05": "end",
    "\x06": "right",
    "\x08": "backspace",
    "\x09": "tab",
    "\x0b": "kill-to-end",
    "\x0c": "redraw",
    "\x0e": "down",
    "\x10": "up",
    "\x15": "kill-to-start",
    "\x17": "kill-word",
    "\x7f": "backspace",
}
_SEQUENCES = {
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
    "[Z": "back-tab",
    "\r": "newline",
    "\n": "newline",
    "\x7f": "kill-word",
}
_PASTE, _PASTE_END = "\x1b[200~", "\x1b[201~"
_ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.|[^\[O])", re.DOTALL)
_PLAIN = re.compile(r"[^\x00-\x1f\x7f]+")


class Keys:
    """Keeps incomplete input: a character or a sequence may arrive in two reads.

    An escape waits for what follows; the reader calls `flush_escape` when nothing did.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def presses(self, data: bytes) -> Iterator[Press]:
        text = self._rest + self._decode(data)
        self._rest = ""
        at = 0
        while at < len(text):
            if text.startswith(_PASTE, at):
                end = text.find(_PASTE_END, at)
                if end < 0:
                    self._rest = text[at:]
                    return
                yield Pasted(text[at + len(_PASTE) : end].replace("\r\n", "\n").replace("\r", "\n"))
                at = end + len(_PASTE_END)
            elif text[at] == "\x1b":
                found = _ESCAPE.match(text, at)
                if found is None:
                    self._rest = text[at:]
                    return
                if name := _SEQUENCES.get(found[1]):
                    yield Key(name)
                at = found.end()
            elif plain := _PLAIN.match(text, at):
                yield Typed(plain[0])
                at = plain.end()
            else:
                if name := _CONTROLS.get(text[at]):
                    yield Key(name)
                at += 1

    @property
    def holds_escape(self) -> bool:
        return self._rest == "\x1b"

    def alone(self) -> Iterator[Press]:
        """Return a pending escape as the escape key: nothing followed it."""
        if self.holds_escape:
            self._rest = ""
            yield Key("escape")
