"""The mock provider's prompt cache: what counts as the same prefix, and what a request may mark."""

from __future__ import annotations

from typing import Any

import httpx

from shoal.core.usage import Usage
from shoal.testing import Answer, PrefixCache, messages_server
from shoal.testing.replies import overloaded

MARK = {"cache_control": {"type": "ephemeral"}}
LONG = "word " * 400


def text(words: str, *, marked: bool = False) -> dict[str, Any]:
    return {"type": "text", "text": words, **(MARK if marked else {})}


def body(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": list(blocks)}], **more}


def test_a_prefix_is_written_up_to_the_last_mark_and_read_by_the_next_request() -> None:
    cache = PrefixCache()
    first = cache.usage(body(text(LONG, marked=True), text("one")), 5)
    second = cache.usage(body(text(LONG, marked=True), text("another")), 5)
    assert first.cache_creation_input_tokens > 500
    assert first.cache_read_input_tokens == 0
    assert second.cache_read_input_tokens == first.cache_creation_input_tokens
    assert second.cache_creation_input_tokens == 0
    assert 0 < second.input_tokens < 20
    assert second.output_tokens == 5


def test_one_byte_before_the_mark_makes_another_prefix() -> None:
    cache = PrefixCache()
    cache.usage(body(text(LONG), text("a", marked=True)), 1)
    assert cache.usage(body(text(LONG + "."), text("a", marked=True)), 1).cache_read_input_tokens == 0


def test_without_a_mark_nothing_is_read_or_written() -> None:
    cache = PrefixCache()
    cache.usage(body(text(LONG, marked=True)), 1)
    used = cache.usage(body(text(LONG)), 1)
    assert used == Usage(input_tokens=used.prompt_tokens, output_tokens=1)
    assert used.prompt_tokens > 500


def test_an_entry_is_found_only_so_many_blocks_before_a_mark() -> None:
    far = [text("x") for _ in range(5)]
    for lookback, found in ((5, False), (6, True)):
        cache = PrefixCache(lookback=lookback)
        cache.usage(body(text(LONG, marked=True)), 1)
        used = cache.usage(body(text(LONG), *far, text("end", marked=True)), 1)
        assert bool(used.cache_read_input_tokens) is found


def test_a_prefix_below_the_minimum_is_not_kept() -> None:
    cache = PrefixCache(minimum=1_000)
    first = cache.usage(body(text(LONG, marked=True)), 1)
    second = cache.usage(body(text(LONG, marked=True)), 1)
    assert first == second
    assert first.cache_creation_input_tokens == 0


def test_another_model_or_other_thinking_does_not_share_the_messages() -> None:
    cache = PrefixCache()
    system = [text(LONG, marked=True)]
    cache.usage(body(text("hi", marked=True), system=system), 1)
    other = cache.usage(body(text("hi", marked=True), system=system, model="n"), 1)
    thinking = {"type": "enabled", "budget_tokens": 2_000}
    thinks = cache.usage(body(text("hi", marked=True), system=system, thinking=thinking), 1)
    assert other.cache_read_input_tokens == 0
    assert thinks.cache_read_input_tokens > 500, "tools and system are still there"
    assert thinks.cache_creation_input_tokens > 0, "the messages are not"


async def test_a_server_with_a_cache_tells_its_client_what_was_read() -> None:
    sent = body(text(LONG, marked=True), text("one"))
    headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    mind = [overloaded(), "first", "second", Answer(usage=Usage(input_tokens=7))]
    async with (
        messages_server(mind, cache=PrefixCache()) as server,
        httpx.AsyncClient(base_url=server.url, headers=headers) as http,
    ):
        await http.post("/v1/messages", json=sent)
        used = [(await http.post("/v1/messages", json=sent)).json()["usage"] for _ in range(3)]
    assert [each["cache_read_input_tokens"] > 500 for each in used] == [False, True, False]
    assert used[2]["input_tokens"] == 7


async def test_a_fifth_mark_is_refused_as_the_provider_refuses_it() -> None:
    sent = body(*(text(str(n), marked=True) for n in range(5)))
    headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    async with (
        messages_server([]) as server,
        httpx.AsyncClient(base_url=server.url, headers=headers) as http,
    ):
        answer = await http.post("/v1/messages", json=sent)
    assert answer.status_code == 400
    assert "A maximum of 4 blocks" in answer.text
