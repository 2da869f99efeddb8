"""Line numbers of keys and list entries in JSON text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shoal.wire.content import load

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def lines_in(text: str, keys: Sequence[str]) -> list[int]:
    """Return the lines of a list's entries, in order."""
    found: list[int] = []
    at = line = 0
    for steps, start in _steps(text):
        if len(steps) == len(keys) + 1 and [str(step) for step in steps[:-1]] == list(keys):
            line += text.count("\n", at, start)
            at = start
            found.append(line + 1)
    return found


def line_of(text: str, keys: Sequence[str]) -> int:
    """Return the line of a key or list entry; if it is missing, of the nearest parent."""
    best, depth = 0, 0
    for steps, start in _steps(text):
        if depth < len(steps) <= len(keys) and [str(step) for step in steps] == list(keys[: len(steps)]):
            best, depth = start, len(steps)
    return text.count("\n", 0, best) + 1


def _steps(text: str) -> Iterator[tuple[list[str | int], int]]:
    """Yield the path and start of every key and every list entry in valid JSON."""
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
