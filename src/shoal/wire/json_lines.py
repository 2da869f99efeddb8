"""On which line of a JSON text something stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shoal.wire.content import load

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def lines_in(text: str, keys: Sequence[str]) -> list[int]:
    """The lines of a list's entries, in order."""
    found: list[int] = []
    at = line = 0
    for steps, start in _steps(text):
        if len(steps) == len(keys) + 1 and [str(step) for step in steps[:-1]] == list(keys):
            line += text.count("\n", at, start)
            at = start
            found.append(line + 1)
    return found


def line_of(text: str, keys: Sequence[str]) -> int:
    """The line of a key or of a list's entry; where it is not there, of the nearest one above it."""
    best, depth = 0, 0
    for steps, start in _steps(text):
        if depth < len(steps) <= len(keys) and [str(step) for step in steps] == list(keys[: len(steps)]):
            best, depth = start, len(steps)
    return text.count("\n", 0, best) + 1


def _steps(text: str) -> Iterator[tuple[list[str | int], int]]:
    """Every key and every entry of a list in valid JSON: the way to it, and where it starts."""
    steps: list[str | int] = []
    tokens = list(_TOKEN.finditer(text))
    words = [token.group() for token in tokens]
    for token, word, following in zip(tokens, words, [*words[1:], ""], strict=False):
        in_list = bool(steps) and isinstance(steps[-1], int)
        if word in ("}", "]"):
            steps.pop()
        elif word == "," and in_list:
            steps[-1] = int(steps[-1]) + 1
        elif word not in (",", ":"):
            if following == ":":
                steps[-1] = load(word.encode(errors="surrogatepass"))
            if following == ":" or in_list:
                yield steps, token.start()
            if word in ("{", "["):
                steps.append("" if word == "{" else 0)
