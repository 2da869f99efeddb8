"""Line numbers of keys and list entries in JSON text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from shoal.core.text.lazy_patterns import compile_on_first_use
from shoal.wire.json_codec import decode_json

_MAX_CACHED_LENGTH = 100_000
"""Maximum number of characters of a text whose keys are cached."""
_TOKEN = compile_on_first_use(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def find_json_list_entry_lines(text: str, keys: Sequence[str]) -> list[int]:
    """Return the lines of a list's entries, in order."""
    found: list[int] = []
    position = line = 0
    wanted = tuple(keys)
    for path, offset in _iter_json_keys(text):
        if len(path) == len(wanted) + 1 and path[:-1] == wanted:
            line += text.count("\n", position, offset)
            position = offset
            found.append(line + 1)
    return found


def find_json_key_line(text: str, keys: Sequence[str]) -> int:
    """Return the line of a key or list entry; if it is missing, of the nearest parent."""
    best, depth = 0, 0
    wanted = tuple(keys)
    for path, offset in _iter_json_keys(text):
        if depth < len(path) <= len(wanted) and path == wanted[: len(path)]:
            best, depth = offset, len(path)
    return text.count("\n", 0, best) + 1


def _iter_json_keys(text: str) -> Iterable[tuple[tuple[str, ...], int]]:
    """Return the path and start of every key and list entry; files of usual size are read only once."""
    return _list_json_keys(text) if len(text) < _MAX_CACHED_LENGTH else _walk_json_keys(text)


@lru_cache(maxsize=8)
def _list_json_keys(text: str) -> tuple[tuple[tuple[str, ...], int], ...]:
    return tuple(_walk_json_keys(text))


def _walk_json_keys(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
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
                yield tuple(map(str, path)), token.start()
            if symbol in ("{", "["):
                path.append("" if symbol == "{" else 0)
