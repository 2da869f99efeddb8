"""Names of models, what is known about them, and what is not."""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any

import pytest
from model_kit import asking, http, saying

from shoal.core.clock import SystemClock
from shoal.core.errors import SettingsError, UnknownModel
from shoal.core.requests import unheard
from shoal.core.usage import ModelCard, Price, Usage
from shoal.models.catalogue import PROVIDERS, card_of, resolve, similar, version_of
from shoal.models.chat_api import ChatModel
from shoal.models.messages_api import MessagesModel
from shoal.models.providers import Access, find_ollama, make_model
from shoal.models.responses_api import ResponsesModel
from shoal.testing import chat_server


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
        ("gpt-5.5", "openai", "gpt-5.5"),
        ("o3", "openai", "o3"),
        ("openai:my-finetune", "openai", "my-finetune"),
        ("ollama:qwen3:8b", "ollama", "qwen3:8b"),
        ("llama3.2:3b", "ollama", "llama3.2:3b"),
        ("gpt-oss:20b", "ollama", "gpt-oss:20b"),
        ("openrouter:anthropic/claude-sonnet-4.5", "openrouter", "anthropic/claude-sonnet-4.5"),
        ("deepseek/deepseek-chat", "openrouter", "deepseek/deepseek-chat"),
    ],
)
def test_a_name_says_who_is_asked_for_what(name: str, provider: str, model: str) -> None:
    assert resolve(name)[:2] == (provider, model)


@pytest.mark.parametrize("alias", ["opus", "sonnet", "haiku"])
def test_an_alias_is_a_priced_model_of_each_provider_that_has_them(alias: str) -> None:
    for provider in ("anthropic", "openai", "openrouter"):
        named, bare = resolve(f"{provider}:{alias}"), resolve(alias, provider=provider)
        assert named == bare
        assert named.provider == provider
        assert named.id != alias
        assert named.card.price is not None
    assert resolve(alias).provider == "anthropic"
    assert alias in resolve(alias).id


def test_a_person_can_give_aliases_and_models_of_their_own() -> None:
    models = {"my-model": {"input": 1, "output": 2.5, "window": 9_000, "tools": False, "provider": "openai"}}
    provider, model, card = resolve("fast", models=models, aliases={"fast": "my-model"})
    assert (provider, model) == ("openai", "my-model")
    assert card == ModelCard(
        id="my-model", provider="openai", window=9_000, tools=False, price=Price(input=1, output=2.5)
    )


def test_a_persons_row_changes_only_what_it_says() -> None:
    ours = resolve("claude-sonnet-4-5").card
    theirs = resolve("claude-sonnet-4-5", models={"anthropic:claude-sonnet-4-5": {"window": 1_000_000}}).card
    assert theirs.window == 1_000_000
    assert theirs.price == ours.price


@pytest.mark.parametrize("row", [{"inptu": 1}, {"input": "cheap"}, 7])
def test_a_row_that_cannot_be_used_is_named(row: Any) -> None:
    with pytest.raises(SettingsError, match=r'"my-model".*Known fields are input'):
        resolve("my-model", models={"my-model": row})


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("sonet", "sonnet"), ("cluade-sonnet-4-5", "claude-sonnet-4-5"), ("gpt5.5", "gpt-5.5")],
)
def test_a_name_nobody_knows_comes_with_those_it_may_have_been(typo: str, meant: str) -> None:
    with pytest.raises(UnknownModel, match=re.escape(meant)) as caught:
        resolve(typo)
    assert all(provider in str(caught.value) for provider in PROVIDERS)
    assert meant in similar(f"anthropic:{typo}")


def test_a_snapshot_is_its_model_and_a_new_release_is_not() -> None:
    assert (
        card_of("anthropic", "claude-sonnet-4-5-20250929").price
        == card_of("anthropic", "claude-sonnet-4-5").price
    )
    assert card_of("openai", "gpt-5.5-2026-04-23").price == card_of("openai", "gpt-5.5").price
    unreleased = card_of("anthropic", "claude-sonnet-9-9")
    assert unreleased.price is None
    assert unreleased.window == 200_000


def test_an_unknown_model_has_no_price_and_a_local_one_costs_nothing() -> None:
    assert card_of("openai", "my-finetune").price is None
    local = card_of("ollama", "qwen3:8b").price
    assert local is not None
    assert local.of(Usage(input_tokens=10**6, output_tokens=10**6, cache_read_input_tokens=10**6)) == 0


def test_a_routed_model_costs_what_it_costs_at_home() -> None:
    routed = card_of("openrouter", "anthropic/claude-sonnet-4.5")
    assert routed.price == card_of("anthropic", "claude-sonnet-4-5").price
    assert card_of("openrouter", "openai/gpt-5.5").window == card_of("openai", "gpt-5.5").window


def test_a_long_prompt_costs_its_own_price_from_the_first_token() -> None:
    price = card_of("anthropic", "claude-haiku-5-5").price
    assert price is not None
    assert price.of(Usage(input_tokens=100_000)) == pytest.approx(0.01)
    assert price.of(Usage(input_tokens=50_000, cache_read_input_tokens=50_001)) == pytest.approx(
        (50_000 * 0.5 + 50_001 * 0.05) / 1e6
    )


@pytest.mark.parametrize(
    ("model", "version"),
    [
        ("claude-sonnet-4-5-20250929", (4, 5)),
        ("claude-opus-5", (5, 0)),
        ("claude-3-7-sonnet-20250219", (3, 7)),
        ("gpt-5.6-sol", (5, 6)),
        ("gpt-4o", (0, 0)),
        ("tiny", (0, 0)),
    ],
)
def test_a_version_is_read_from_the_name(model: str, version: tuple[int, int]) -> None:
    assert version_of(model) == version


def test_each_provider_is_made_into_its_kind_of_model() -> None:
    for provider, kind in {
        "anthropic": MessagesModel,
        "openai": ChatModel,
        "openai-responses": ResponsesModel,
        "openrouter": ChatModel,
        "ollama": ChatModel,
    }.items():
        card = card_of(provider, "m")
        model = make_model(provider, card, Access(), clock=SystemClock())
        assert isinstance(model, kind)
        assert model.card == card
    with pytest.raises(UnknownModel, match="base URL"):
        make_model("vllm", card_of("openai", "m"), Access(), clock=SystemClock())


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
async def test_a_base_url_may_end_where_people_end_it(suffix: str) -> None:
    async with chat_server(["Hi."]) as server:
        access = Access(base_url=server.url + suffix)
        model = make_model("openai", card_of("openai", "m"), access, clock=SystemClock())
        assert (await model.reply(asking("Hi."), unheard)).message.text == "Hi."
        await model.aclose()
        assert "authorization" not in server.requests[0].headers


async def test_a_running_ollama_is_found_with_its_models() -> None:
    async with chat_server([], models=("qwen3:8b", "llama3.2:3b")) as server:
        assert await find_ollama(server.url) == ["qwen3:8b", "llama3.2:3b"]
        assert await find_ollama(f"{server.url}/v1") == ["qwen3:8b", "llama3.2:3b"]


@pytest.mark.parametrize(
    "answer", [b"", http(b"{}"), http(b"[]"), http(b"x"), http(b"{}", status=404), b"220 smtp"]
)
async def test_something_else_on_that_port_is_no_ollama(answer: bytes) -> None:
    async with saying(answer) as url:
        assert await find_ollama(url) == []


async def test_looking_for_an_ollama_takes_no_time_when_nobody_answers() -> None:
    async with saying(http(b"")[:-4], b"never sent", hang_up=False) as silent:
        began = time.monotonic()
        assert await find_ollama(silent) == []
        assert time.monotonic() - began < 4
    assert await find_ollama("http://127.0.0.1:1") == []
    with contextlib.suppress(ValueError):
        assert await find_ollama("not an address") == []
