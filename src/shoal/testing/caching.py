"""A provider's prompt cache: requests read earlier prefixes and write their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from shoal.core.usage import Usage
from shoal.testing.replies import Body

_encode = msgspec.json.Encoder().encode
_BYTES_PER_TOKEN = 4


class _Place(Struct, frozen=True):
    """End of one block of a request, with the prefix up to it."""

    digest: bytes
    size: int
    marked: bool


class PrefixCache:
    """Prefix caching as the Messages API does it.

    An entry ends at a block with `cache_control`, and covers every byte of tools, system and messages up to
    there; the marks themselves do not count. A request reads the longest entry that ends at one of its own
    marks or at most `lookback` blocks before it. It writes one at each of its marks, unless the prefix has
    fewer than `minimum` tokens. Each model has its own cache; other thinking settings invalidate the
    messages. Entries do not expire. A token is four bytes.
    """

    def __init__(self, *, minimum: int = 0, lookback: int = 20) -> None:
        self._minimum = minimum
        self._lookback = lookback
        self._entries: set[bytes] = set()

    def usage(self, body: Body, output_tokens: int) -> Usage:
        """Return the usage of this request, and cache its prefixes."""
        places = list(_places(body))
        marks = [index for index, place in enumerate(places) if place.marked]
        read = max((self._found(places, mark) for mark in marks), default=0)
        written = max(read, self._tokens(places[marks[-1]]) if marks else 0)
        self._entries.update(
            places[mark].digest for mark in marks if self._tokens(places[mark]) >= max(1, self._minimum)
        )
        if written < self._minimum:
            written = read
        return Usage(
            input_tokens=self._tokens(places[-1]) - written if places else 0,
            output_tokens=output_tokens,
            cache_creation_input_tokens=written - read,
            cache_read_input_tokens=read,
        )

    def _found(self, places: list[_Place], mark: int) -> int:
        for place in reversed(places[max(0, mark - self._lookback) : mark + 1]):
            if place.digest in self._entries:
                return self._tokens(place)
        return 0

    def _tokens(self, place: _Place) -> int:
        return place.size // _BYTES_PER_TOKEN


def _places(body: Body) -> Iterator[_Place]:
    so_far = sha256(_encode(body.get("model")))
    size = 0
    for part, block in _blocks(body):
        if part == "thinking":
            so_far.update(_encode(block))
            continue
        content = _encode([part, {key: value for key, value in block.items() if key != "cache_control"}])
        so_far.update(content)
        size += len(content)
        yield _Place(so_far.digest(), size, "cache_control" in block)


def _blocks(body: Body) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the blocks in the order in which a provider reads them."""
    yield from (("tools", tool) for tool in body.get("tools", ()))
    yield from (("system", block) for block in _as_blocks(body.get("system") or ()))
    yield "thinking", {"thinking": body.get("thinking"), "how": body.get("output_config")}
    for message in body["messages"]:
        yield from ((message["role"], block) for block in _as_blocks(message["content"]))


def _as_blocks(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
