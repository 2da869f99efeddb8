"""Line numbers of keys and list entries in JSON text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shoal.wire.json_codec import decode_json

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def find_json_list_entry_lines(text: str, keys: Sequence[str]) -> list[int]:
    """Return the lines of a list's entries, in order."""
    found: list[int] = []
    position = line = 0
    for path, offset in _walk_json_keys(text):
        if len(path) == len(keys) + 1 and [str(step) for step in path[:-1]] == list(keys):
            line += text.count("\n", position, offset)
            position = offset
            found.append(line + 1)
    return found


def find_json_key_line(text: str, keys: Sequence[str]) -> int:
    """Return the line of a key or list entry; if it is missing, of the nearest parent."""
    best, depth = 0, 0
    for path, offset in _walk_json_keys(text):
        if depth < len(path) <= len(keys) and [str(step) for step in path] == list(keys[: len(path)]):
            best, depth = offset, len(path)
    return text.count("\n", 0, best) + 1


def _walk_json_keys(text: str) -> Iterator[tuple[list[str | int], int]]:
    """Yield the path and start of every key and every list entry in valid JSON."""
    path: list[str | int] = []
    tokens = list(_TOKEN.finditer(text))
    symbols = [token.group() for token in tokens]
    for token, symbol, next_symbol in zip(tokens, symbols, [*symbols[1:], ""], strict=False):
        in_list = bool(path) and isinstance(path[-1], int)
        if symbol in ("}", "]"):
            path.pop()
        elif symbol == "," and in_list:
            path[-1] = int(path[-1]) + 1
        elif symbol not in (",", ":"):
            if next_symbol == ":":
                path[-1] = decode_json(symbol.encode(errors="surrogatepass"))
            if next_symbol == ":" or in_list:
                yield path, token.start()
            if symbol in ("{", "["):
                path.append("" if symbol == "{" else 0)
