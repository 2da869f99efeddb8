"""The prompt cache of the mock provider: equal prefixes, and limits of cache marks."""

from __future__ import annotations

from typing import Any

import httpx

from shoal.core.budgets.usage import Usage
from shoal.testing import MockReply, PrefixCache, messages_server
from shoal.testing.mock_replies import make_overloaded_fault

MARK = {"cache_control": {"type": "ephemeral"}}
LONG = "word " * 400


def make_text(words: str, *, marked: bool = False) -> dict[str, Any]:
    return {"type": "text", "text": words, **(MARK if marked else {})}


def make_cached_request(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": list(blocks)}], **more}


def test_a_prefix_is_cached_up_to_the_last_mark_and_read_by_the_next_request() -> None:
    cache = PrefixCache()
    first = cache.charge_request(make_cached_request(make_text(LONG, marked=True), make_text("one")), 5)
    second = cache.charge_request(make_cached_request(make_text(LONG, marked=True), make_text("another")), 5)
    assert first.cache_creation_input_tokens > 500
    assert first.cache_read_input_tokens == 0
    assert second.cache_read_input_tokens == first.cache_creation_input_tokens
    assert second.cache_creation_input_tokens == 0
    assert 0 < second.input_tokens < 20
    assert second.output_tokens == 5


def test_one_changed_byte_before_the_mark_makes_another_prefix() -> None:
    cache = PrefixCache()
    cache.charge_request(make_cached_request(make_text(LONG), make_text("a", marked=True)), 1)
    assert (
        cache.charge_request(
            make_cached_request(make_text(LONG + "."), make_text("a", marked=True)), 1
        ).cache_read_input_tokens
        == 0
    )


def test_without_a_mark_the_cache_is_not_used() -> None:
    cache = PrefixCache()
    cache.charge_request(make_cached_request(make_text(LONG, marked=True)), 1)
    used = cache.charge_request(make_cached_request(make_text(LONG)), 1)
    assert used == Usage(input_tokens=used.prompt_tokens, output_tokens=1)
    assert used.prompt_tokens > 500


def test_a_cache_entry_is_found_only_within_the_lookback_of_a_mark() -> None:
    far = [make_text("x") for _ in range(5)]
    for lookback, found in ((5, False), (6, True)):
        cache = PrefixCache(lookback=lookback)
        cache.charge_request(make_cached_request(make_text(LONG, marked=True)), 1)
        used = cache.charge_request(
            make_cached_request(make_text(LONG), *far, make_text("end", marked=True)), 1
        )
        assert bool(used.cache_read_input_tokens) is found


def test_a_prefix_below_the_minimum_is_not_cached() -> None:
    cache = PrefixCache(minimum=1_000)
    first = cache.charge_request(make_cached_request(make_text(LONG, marked=True)), 1)
    second = cache.charge_request(make_cached_request(make_text(LONG, marked=True)), 1)
    assert first == second
    assert first.cache_creation_input_tokens == 0


def test_another_model_or_thinking_setting_does_not_share_the_cache() -> None:
    cache = PrefixCache()
    system = [make_text(LONG, marked=True)]
    cache.charge_request(make_cached_request(make_text("hi", marked=True), system=system), 1)
    other = cache.charge_request(
        make_cached_request(make_text("hi", marked=True), system=system, model="n"), 1
    )
    thinking = {"type": "enabled", "budget_tokens": 2_000}
    thinks = cache.charge_request(
        make_cached_request(make_text("hi", marked=True), system=system, thinking=thinking), 1
    )
    assert other.cache_read_input_tokens == 0
    assert thinks.cache_read_input_tokens > 500, "tools and system are still there"
    assert thinks.cache_creation_input_tokens > 0, "the messages are not"


async def test_a_server_with_a_cache_reports_cache_usage_to_the_client() -> None:
    sent = make_cached_request(make_text(LONG, marked=True), make_text("one"))
    headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    script = [make_overloaded_fault(), "first", "second", MockReply(usage=Usage(input_tokens=7))]
    async with (
        messages_server(script, cache=PrefixCache()) as server,
        httpx.AsyncClient(base_url=server.url, headers=headers) as http,
    ):
        await http.post("/v1/messages", json=sent)
        used = [(await http.post("/v1/messages", json=sent)).json()["usage"] for _ in range(3)]
    assert [each["cache_read_input_tokens"] > 500 for each in used] == [False, True, False]
    assert used[2]["input_tokens"] == 7


async def test_a_fifth_cache_mark_is_refused() -> None:
    sent = make_cached_request(*(make_text(str(n), marked=True) for n in range(5)))
    headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    async with (
        messages_server([]) as server,
        httpx.AsyncClient(base_url=server.url, headers=headers) as http,
    ):
        answer = await http.post("/v1/messages", json=sent)
    assert answer.status_code == 400
    assert "A maximum of 4 blocks" in answer.text
