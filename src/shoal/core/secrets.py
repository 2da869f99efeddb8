"""Redaction of secrets: the values of secret variables, and texts shaped like keys and tokens.

Every store of a run uses it for every line, so it does not search with regular expressions: a key holds a
long run of letters and digits, which hardly any other text does, and only such runs are inspected closer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

_RUN = 13
"""Letters and digits in a row that trigger a closer inspection; one more than any part of a UUID has."""
_SHORTEST = 8
"""Minimum length of a value that is redacted; shorter ones occur by chance."""
_HEAD = 8
"""Leading characters that count as the whole value if the text is cut right after them."""
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
# Prefixes of keys and the pattern that follows in a real one. The prefix is not redacted: it tells what was
# there. Patterns are compiled on first use: most runs need none.
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
# In JSON the lines of a block are separated by a backslash and an n.
_BREAK = rb"(?:\s|\\[nrt])*"
_BLOCK = rb"-*" + _BREAK + rb"(?:(?:[A-Za-z0-9+/=]{8,}|(?:Proc-Type|DEK-Info)[^\\\n]*)" + _BREAK + rb")*"


def _table(more: bytes) -> bytes:
    return bytes(97 if chr(code).isalnum() or code in more else 32 for code in range(128)) + b" " * 128


_ALPHANUMERIC, _WORD = _table(b""), _table(b"_-")
_LONG_RUN = b"a" * _RUN
_BLANK, _BACKSLASH = b" \\"


def is_secret(name: str) -> bool:
    """Return True if a variable of this name holds a secret."""
    return not _NAMES.isdisjoint(name.upper().split("_")) or name == "ANTHROPIC_CUSTOM_HEADERS"


class Secrets:
    """Replaces the secrets of a session in everything that is stored."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Redact the values in `environ` whose names mark them as secrets."""
        known = [
            (_raw(value), name)
            for name, value in (environ or {}).items()
            if len(value) >= _SHORTEST and is_secret(name) and not _is_harmless(value)
        ]
        # Longest first: one value may contain another.
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
        except UnicodeDecodeError:  # a value that is not UTF-8 itself ended inside a character
            return clean.decode("utf-8", "replace")

    def redacted_bytes(self, text: bytes) -> bytes:
        """Return the redacted text; the very same object if there is nothing to redact."""
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
    """Return the bytes of a variable; text that no variable can hold is encoded as stores encode it."""
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")


def _is_harmless(value: str) -> bool:
    """Return True for a path or a number, which is not a secret itself."""
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
    """Return the length of a value that the end of the text or of its string cut short; else 0."""
    size = _HEAD
    while size < len(value) and text[at + size : at + size + 1] == value[size : size + 1]:
        size += 1
    return size if text[at + size : at + size + 1] in (b"", b'"', b"\n") else 0


def _without_shapes(text: bytes, flat: bytes, run: int) -> bytes:
    """Redact keys. `flat` has a blank for each byte that is not alphanumeric; `run` is the first long run."""
    out: list[bytes] = []
    done = 0
    words = text.translate(_WORD)
    while run >= 0:
        # A key starts at the start of its word, which includes dashes and underscores.
        first = run - _FARTHEST_BACK if run > _FARTHEST_BACK else 0
        before = words.rfind(b" ", first, run)
        start = before + 1 if before >= 0 else first
        sign = text[start - 1] if start else 0
        if sign == _BACKSLASH and text[start : start + 1] in b"nrt":
            start += 1  # in JSON the letter belongs to an escape
        # Most long runs are in words that do not start like a key and do not follow `Bearer`.
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
    """Return the span of the secret part of a key that starts here, or None."""
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
"""Redactor without known values: it redacts only what has the shape of a key."""
