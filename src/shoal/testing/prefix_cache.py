"""A provider's prompt cache: requests read earlier prefixes and write their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from shoal.core.budgets.usage import Usage
from shoal.testing.mock_replies import RequestBody

_encode = msgspec.json.Encoder().encode
_BYTES_PER_TOKEN = 4


class _PromptPrefixPoint(Struct, frozen=True):
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

    def charge_request(self, body: RequestBody, output_tokens: int) -> Usage:
        """Return the usage of this request, and cache its prefixes."""
        points = list(_iter_prefix_points(body))
        marks = [index for index, place in enumerate(points) if place.marked]
        read_tokens = max((self._find_cached_tokens(points, mark) for mark in marks), default=0)
        written_tokens = max(read_tokens, self._estimate_prefix_tokens(points[marks[-1]]) if marks else 0)
        self._entries.update(
            points[mark].digest
            for mark in marks
            if self._estimate_prefix_tokens(points[mark]) >= max(1, self._minimum)
        )
        if written_tokens < self._minimum:
            written_tokens = read_tokens
        return Usage(
            input_tokens=self._estimate_prefix_tokens(points[-1]) - written_tokens if points else 0,
            output_tokens=output_tokens,
            cache_creation_input_tokens=written_tokens - read_tokens,
            cache_read_input_tokens=read_tokens,
        )

    def _find_cached_tokens(self, points: list[_PromptPrefixPoint], mark: int) -> int:
        for point in reversed(points[max(0, mark - self._lookback) : mark + 1]):
            if point.digest in self._entries:
                return self._estimate_prefix_tokens(point)
        return 0

    def _estimate_prefix_tokens(self, point: _PromptPrefixPoint) -> int:
        return point.size // _BYTES_PER_TOKEN


def _iter_prefix_points(body: RequestBody) -> Iterator[_PromptPrefixPoint]:
    prefix_hash = sha256(_encode(body.get("model")))
    size = 0
    for part, block in _iter_prompt_blocks(body):
        if part == "thinking":
            prefix_hash.update(_encode(block))
            continue
        content = _encode([part, {key: value for key, value in block.items() if key != "cache_control"}])
        prefix_hash.update(content)
        size += len(content)
        yield _PromptPrefixPoint(prefix_hash.digest(), size, "cache_control" in block)


def _iter_prompt_blocks(body: RequestBody) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the blocks in the order in which a provider reads them."""
    yield from (("tools", tool) for tool in body.get("tools", ()))
    yield from (("system", block) for block in _to_content_blocks(body.get("system") or ()))
    yield "thinking", {"thinking": body.get("thinking"), "how": body.get("output_config")}
    for message in body["messages"]:
        yield from ((message["role"], block) for block in _to_content_blocks(message["content"]))


def _to_content_blocks(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
