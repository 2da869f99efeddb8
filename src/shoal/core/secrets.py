"""What must not be written down: the values of known variables, and texts shaped like keys and tokens.

Everything that keeps a record of a run asks here. It is asked for every line, so nothing is searched with
regular expressions: a key holds a long run of letters and digits, which hardly any other text does, and
only where there is such a run is looked closer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

_RUN = 13
"""Letters and digits in a row that make a closer look worth it; one more than in any part of a UUID."""
_SHORTEST = 8
"""Characters of a value that is looked for; shorter ones occur by chance."""
_HEAD = 8
"""Characters at a value's start that count as the value where the text is cut behind them."""
_FARTHEST_BACK = 64
_LONGEST_KEY_BLOCK = 64 * 1024

_NAMES = frozenset(
    (
        "KEY",
        "APIKEY",
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "CREDENTIAL",
        "CREDENTIALS",
        "PAT",
    )
)
# The marks keys begin with, and what follows in a real one. The mark is shown: it says what was there.
# They are compiled when first met: most runs meet none.
_SHAPES: Final = {
    mark: tail
    for marks, tail in (
        ((b"sk-",), rb"[A-Za-z0-9_\-]{20,}"),
        ((b"sk_live_", b"rk_live_", b"glpat-"), rb"[A-Za-z0-9_\-]{16,}"),
        ((b"ghp_", b"gho_", b"ghs_", b"ghu_", b"npm_", b"hf_"), rb"[A-Za-z0-9]{30,}"),
        ((b"github_pat_",), rb"[A-Za-z0-9_]{30,}"),
        ((b"xoxb-", b"xoxp-", b"xoxa-", b"xoxs-", b"xoxe-"), rb"[A-Za-z0-9\-]{10,}"),
        ((b"pypi-",), rb"[A-Za-z0-9_\-]{40,}"),
        ((b"AKIA", b"ASIA"), rb"[A-Z0-9]{16}(?![A-Z0-9])"),
        ((b"AIza",), rb"[A-Za-z0-9_\-]{35}"),
        ((b"eyJ",), rb"[A-Za-z0-9_\-]{10,}\.eyJ[A-Za-z0-9_\-]{10,}(?:\.[A-Za-z0-9_\-]*)?"),
    )
    for mark in marks
}
_BEGINNINGS = frozenset(mark[:2] for mark in _SHAPES)
_BEARER, _BEARER_TOKEN = b"earer ", rb"[A-Za-z0-9_\-.~+/=]{12,}"
_BEGIN, _END, _PRIVATE = b"-----BEGIN ", b"-----END ", b"PRIVATE KEY"
# In JSON the lines of a block are parted by a backslash and an n.
_BREAK = rb"(?:\s|\\[nrt])*"
_BLOCK = rb"-*" + _BREAK + rb"(?:(?:[A-Za-z0-9+/=]{8,}|(?:Proc-Type|DEK-Info)[^\\\n]*)" + _BREAK + rb")*"


def _table(more: bytes) -> bytes:
    return bytes(97 if chr(code).isalnum() or code in more else 32 for code in range(128)) + b" " * 128


_ALPHANUMERIC, _WORD = _table(b""), _table(b"_-")
_LONG_RUN = b"a" * _RUN
_BLANK, _BACKSLASH = b" \\"


def is_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret."""
    return not _NAMES.isdisjoint(name.upper().split("_")) or name == "ANTHROPIC_CUSTOM_HEADERS"


class Secrets:
    """The secrets of a session, and what its records hold in their place."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Of `environ` the values whose names say that they are secrets."""
        known = [
            (_raw(value), name)
            for name, value in (environ or {}).items()
            if len(value) >= _SHORTEST and is_secret(name) and not _is_harmless(value)
        ]
        # The longest first: one may hold another.
        known.sort(key=lambda pair: len(pair[0]), reverse=True)
        spelled = [
            (each[:_HEAD], each, f"[redacted: {name}]".encode())
            for value, name in known
            for each in dict.fromkeys((value, _in_json(value)))
        ]
        self._runny = [each for each in spelled if _LONG_RUN in each[1].translate(_ALPHANUMERIC)]
        self._other = [each for each in spelled if each not in self._runny]

    def redacted(self, text: str) -> str:
        given = text.encode("utf-8", "surrogatepass")
        clean = self.redacted_bytes(given)
        if clean is given:
            return text
        try:
            return clean.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:  # a value that is not UTF-8 itself stood across a character
            return clean.decode("utf-8", "replace")

    def redacted_bytes(self, text: bytes) -> bytes:
        """The very same object where there is nothing to redact."""
        for head, value, instead in self._other:
            if head in text:
                text = _without_value(text, value, instead)
        flat = text.translate(_ALPHANUMERIC)
        run = flat.find(_LONG_RUN)
        if run < 0:
            return text
        before = text
        for head, value, instead in self._runny:
            if head in text:
                text = _without_value(text, value, instead)
        if _PRIVATE in text:
            text = _without_blocks(text)
        if text is not before:
            flat = text.translate(_ALPHANUMERIC)
            run = flat.find(_LONG_RUN)
        return _without_shapes(text, flat, run)


def _raw(value: str) -> bytes:
    """The bytes of a variable; what no variable can hold, as records spell it."""
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")


def _is_harmless(value: str) -> bool:
    """A path to a secret, or a number, is none."""
    return value.startswith(("/", "~/", "./")) or value.isdecimal()


def _in_json(value: bytes) -> bytes:
    return value.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n").replace(b"\t", b"\\t")


def _found(text: bytes, mark: bytes) -> Iterator[int]:
    at = text.find(mark)
    while at >= 0:
        yield at
        at = text.find(mark, at + 1)


def _without_value(text: bytes, value: bytes, instead: bytes) -> bytes:
    out: list[bytes] = []
    done = 0
    for at in _found(text, value[:_HEAD]):
        if at < done:
            continue
        size = len(value) if text.startswith(value, at) else _cut(text, at, value)
        if size:
            out += (text[done:at], instead)
            done = at + size
    return b"".join([*out, text[done:]]) if out else text


def _cut(text: bytes, at: int, value: bytes) -> int:
    """How much of the value stands here where the text, or the string it is in, ends within it; else 0."""
    size = _HEAD
    while size < len(value) and text[at + size : at + size + 1] == value[size : size + 1]:
        size += 1
    return size if text[at + size : at + size + 1] in (b"", b'"', b"\n") else 0


def _without_shapes(text: bytes, flat: bytes, run: int) -> bytes:
    """`flat` has a blank for each byte that is no letter or digit; `run` is where the first long run is."""
    out: list[bytes] = []
    done = 0
    words = text.translate(_WORD)
    while run >= 0:
        # A key starts where its word does, with its dashes and underscores.
        first = run - _FARTHEST_BACK if run > _FARTHEST_BACK else 0
        before = words.rfind(b" ", first, run)
        start = before + 1 if before >= 0 else first
        sign = text[start - 1] if start else 0
        if sign == _BACKSLASH and text[start : start + 1] in b"nrt":
            start += 1  # in JSON the letter is that of an escape
        # Most long runs stand in words that begin like no key and do not come after `Bearer`.
        if (sign == _BLANK or text[start : start + 2] in _BEGINNINGS) and start >= done:
            found = _key(text, start)
            if found is not None:
                out += (text[done : found[0]], b"[redacted]")
                done = found[1]
        end = flat.find(b" ", run)
        if end < 0:
            break
        run = flat.find(_LONG_RUN, max(done, end))
    return b"".join([*out, text[done:]]) if out else text


def _key(text: bytes, start: int) -> tuple[int, int] | None:
    """The secret part of the key that starts here, if one does."""
    if text[start : start + 2] in _BEGINNINGS:
        for mark, tail in _SHAPES.items():
            if text.startswith(mark, start) and (match := re.compile(tail).match(text, start + len(mark))):
                return match.span()
    if text[max(0, start - len(_BEARER)) : start] == _BEARER:
        match = re.compile(_BEARER_TOKEN).match(text, start)
        return match.span() if match else None
    return None


def _without_blocks(text: bytes) -> bytes:
    out: list[bytes] = []
    done = 0
    for at in _found(text, _BEGIN):
        kind = text.find(_PRIVATE, at, at + 60)
        if at < done or kind < 0:
            continue
        start = kind + len(_PRIVATE)
        end = text.find(_END, start, start + _LONGEST_KEY_BLOCK)
        if end < 0:
            match = re.compile(_BLOCK).match(text, start)
            end = match.end() if match else start
        out += (text[done:start], b"[redacted]")
        done = end
    return b"".join([*out, text[done:]]) if out else text


SHAPES_ALONE = Secrets()
"""For whoever knows no values: what has the shape of a key is redacted."""
