"""Names of models, what is known about them, and what is not."""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any

import pytest
from model_helpers import make_request, make_response, serve_responses

from shoal.core.budgets.usage import ModelCard, TokenPrice, Usage
from shoal.core.clock import SystemClock
from shoal.core.conversation.model_requests import ignore_stream_delta
from shoal.core.errors import SettingsError, UnknownModel
from shoal.models.catalogue import (
    PROVIDERS,
    get_model_card,
    parse_model_version,
    resolve_model,
    suggest_similar_model_names,
)
from shoal.models.chat_api import ChatCompletionsApiModel
from shoal.models.messages_api import MessagesApiModel
from shoal.models.providers import ProviderAccess, create_model, list_ollama_models
from shoal.models.responses_api import ResponsesApiModel
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
def test_a_model_name_selects_the_provider_and_the_model(name: str, provider: str, model: str) -> None:
    assert resolve_model(name)[:2] == (provider, model)


@pytest.mark.parametrize("alias", ["opus", "sonnet", "haiku"])
def test_an_alias_resolves_to_a_priced_model_of_each_provider(alias: str) -> None:
    for provider in ("anthropic", "openai", "openrouter"):
        named, bare = resolve_model(f"{provider}:{alias}"), resolve_model(alias, provider=provider)
        assert named == bare
        assert named.provider == provider
        assert named.id != alias
        assert named.card.price is not None
    assert resolve_model(alias).provider == "anthropic"
    assert alias in resolve_model(alias).id


def test_a_person_can_configure_aliases_and_models() -> None:
    models = {"my-model": {"input": 1, "output": 2.5, "window": 9_000, "tools": False, "provider": "openai"}}
    provider, model, card, _ = resolve_model("fast", models=models, aliases={"fast": "my-model"})
    assert (provider, model) == ("openai", "my-model")
    assert card == ModelCard(
        id="my-model", provider="openai", window=9_000, tools=False, price=TokenPrice(input=1, output=2.5)
    )


def test_a_configured_model_overrides_only_its_given_fields() -> None:
    ours = resolve_model("claude-sonnet-4-5").card
    theirs = resolve_model(
        "claude-sonnet-4-5", models={"anthropic:claude-sonnet-4-5": {"window": 1_000_000}}
    ).card
    assert theirs.window == 1_000_000
    assert theirs.price == ours.price


@pytest.mark.parametrize("row", [{"inptu": 1}, {"input": "cheap"}, 7])
def test_an_invalid_configured_model_is_named(row: Any) -> None:
    with pytest.raises(SettingsError, match=r'"my-model".*Known fields: input'):
        resolve_model("my-model", models={"my-model": row})


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("sonet", "sonnet"), ("cluade-sonnet-4-5", "claude-sonnet-4-5"), ("gpt5.5", "gpt-5.5")],
)
def test_an_unknown_model_name_is_refused_with_suggestions(typo: str, meant: str) -> None:
    with pytest.raises(UnknownModel, match=re.escape(meant)) as caught:
        resolve_model(typo)
    assert all(provider in str(caught.value) for provider in PROVIDERS)
    assert meant in suggest_similar_model_names(f"anthropic:{typo}")


def test_a_dated_snapshot_has_the_card_of_its_model_and_a_new_release_does_not() -> None:
    assert (
        get_model_card("anthropic", "claude-sonnet-4-5-20250929").price
        == get_model_card("anthropic", "claude-sonnet-4-5").price
    )
    assert get_model_card("openai", "gpt-5.5-2026-04-23").price == get_model_card("openai", "gpt-5.5").price
    unreleased = get_model_card("anthropic", "claude-sonnet-9-9")
    assert unreleased.price is None
    assert unreleased.window == 200_000


@pytest.mark.spec("CMP-053")
@pytest.mark.parametrize(
    "name",
    [
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "anthropic.claude-sonnet-4-5-20250929-v1:0",
        "arn:aws:bedrock:us-east-1:1234:inference-profile/eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
    ],
)
def test_a_cloud_id_has_the_limits_of_the_model_that_it_names(name: str) -> None:
    card, named = get_model_card("anthropic", name), get_model_card("anthropic", "claude-sonnet-4-5")
    assert card.id == name
    assert (card.window, card.max_output) == (named.window, named.max_output) == (200_000, 64_000)
    assert (
        get_model_card("anthropic", "arn:aws:bedrock:us-east-1:1:application-inference-profile/x").price
        is None
    )


def test_an_unknown_model_has_no_price_and_a_local_one_costs_nothing() -> None:
    assert get_model_card("openai", "my-finetune").price is None
    local = get_model_card("ollama", "qwen3:8b").price
    assert local is not None
    assert (
        local.compute_cost(Usage(input_tokens=10**6, output_tokens=10**6, cache_read_input_tokens=10**6)) == 0
    )


def test_a_routed_model_has_the_price_of_its_original_provider() -> None:
    routed = get_model_card("openrouter", "anthropic/claude-sonnet-4.5")
    assert routed.price == get_model_card("anthropic", "claude-sonnet-4-5").price
    assert get_model_card("openrouter", "openai/gpt-5.5").window == get_model_card("openai", "gpt-5.5").window


def test_a_long_prompt_has_the_higher_price_for_all_its_tokens() -> None:
    price = get_model_card("anthropic", "claude-haiku-5-5").price
    assert price is not None
    assert price.compute_cost(Usage(input_tokens=100_000)) == pytest.approx(0.01)
    assert price.compute_cost(Usage(input_tokens=50_000, cache_read_input_tokens=50_001)) == pytest.approx(
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
def test_the_model_version_is_read_from_the_name(model: str, version: tuple[int, int]) -> None:
    assert parse_model_version(model) == version


def test_each_provider_gets_its_type_of_model() -> None:
    for provider, kind in {
        "anthropic": MessagesApiModel,
        "openai": ChatCompletionsApiModel,
        "openai-responses": ResponsesApiModel,
        "openrouter": ChatCompletionsApiModel,
        "ollama": ChatCompletionsApiModel,
    }.items():
        card = get_model_card(provider, "m")
        model = create_model(provider, card, ProviderAccess(), clock=SystemClock())
        assert isinstance(model, kind)
        assert model.card == card
    with pytest.raises(UnknownModel, match="base URL"):
        create_model("vllm", get_model_card("openai", "m"), ProviderAccess(), clock=SystemClock())


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
async def test_a_base_url_may_end_at_the_host_the_version_or_the_path(suffix: str) -> None:
    async with chat_server(["Hi."]) as server:
        access = ProviderAccess(base_url=server.url + suffix)
        model = create_model("openai", get_model_card("openai", "m"), access, clock=SystemClock())
        assert (await model.generate_reply(make_request("Hi."), ignore_stream_delta)).message.text == "Hi."
        await model.aclose()
        assert "authorization" not in server.requests[0].headers


async def test_a_running_ollama_server_is_found_with_its_models() -> None:
    async with chat_server([], models=("qwen3:8b", "llama3.2:3b")) as server:
        assert await list_ollama_models(server.url) == ["qwen3:8b", "llama3.2:3b"]
        assert await list_ollama_models(f"{server.url}/v1") == ["qwen3:8b", "llama3.2:3b"]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        make_response(b"{}"),
        make_response(b"[]"),
        make_response(b"x"),
        make_response(b"{}", status=404),
        b"220 smtp",
    ],
)
async def test_another_server_on_the_ollama_port_is_not_taken_for_ollama(answer: bytes) -> None:
    async with serve_responses(answer) as url:
        assert await list_ollama_models(url) == []


async def test_the_search_for_ollama_is_short_when_no_server_answers() -> None:
    async with serve_responses(make_response(b"")[:-4], b"never sent", close_connection=False) as silent:
        began = time.monotonic()
        assert await list_ollama_models(silent) == []
        assert time.monotonic() - began < 4
    assert await list_ollama_models("http://127.0.0.1:1") == []
    with contextlib.suppress(ValueError):
        assert await list_ollama_models("not an address") == []
