"""`shoal models`: configured models, models of servers, and the test of a model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from shoal_process import CliResult, ShoalProgram

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import TextBlock
from shoal.testing import (
    MockReply,
    MockServer,
    chat_server,
    make_tool_call,
    messages_server,
    responses_server,
)
from shoal.testing.mock_replies import (
    DelayedReplyFault,
    HttpErrorFault,
    make_rate_limit_fault,
    make_unauthorized_fault,
    make_unknown_model_fault,
)

GOOD = MockReply(
    content=(TextBlock(text="ready"), make_tool_call("report", number=7)),
    usage=Usage(input_tokens=100, output_tokens=10),
)
NOBODY = {"OLLAMA_HOST": "127.0.0.1:9"}


async def list_models(shoal: ShoalProgram, *words: str, **env: str) -> dict[str, Any]:
    ran = await shoal("models", "ls", "--json", *words, **(NOBODY | env))
    assert ran.code == 0, ran.err
    return json.loads(ran.text)


async def test_providers_are_listed_with_the_source_of_their_key_and_their_models(
    shoal: ShoalProgram,
) -> None:
    async with (
        messages_server([], models=("claude-haiku-5-5",)) as server,
        chat_server([], models=("mine", "yours")) as own,
    ):
        env = {"ANTHROPIC_API_KEY": "sk-secret", "ANTHROPIC_BASE_URL": server.url}
        listing = await list_models(shoal, **env, OPENAI_BASE_URL=f"{own.url}/v1")
        output = (await shoal("models", "ls", **NOBODY, **env, OPENAI_BASE_URL=f"{own.url}/v1")).text
    providers = {row["name"]: row for row in listing["providers"]}
    assert providers["anthropic"]["key"] == "$ANTHROPIC_API_KEY"
    assert providers["anthropic"]["offered"] == ["claude-haiku-5-5"]
    assert providers["openai"]["offered"] == ["mine", "yours"]
    assert not providers["openrouter"]["configured"]
    assert not providers["ollama"]["configured"]
    models = {f"{row['provider']}:{row['id']}": row for row in listing["models"]}
    haiku = models["anthropic:claude-haiku-5-5"]
    assert (haiku["aliases"], haiku["offered"], haiku["window"]) == (["haiku"], True, 1_000_000)
    assert (haiku["input"], haiku["output"]) == (0.1, 0.5)
    assert models["anthropic:claude-opus-5-5"]["offered"] is False
    assert models["openai:mine"]["input"] is None
    assert "openai:mine" in output
    assert "openrouter" in output
    assert "sk-secret" not in output + json.dumps(listing)


async def test_the_default_own_models_and_own_aliases_are_marked(shoal: ShoalProgram, home: Path) -> None:
    own = {
        "model": "anthropic:opus",
        "aliases": {"fast": "openai:local-7"},
        "models": {"openai:local-7": {"input": 1, "output": 2, "window": 9000}},
    }
    (home / "settings.json").write_text(json.dumps({"shoal": own}))
    listing = await list_models(shoal)
    assert listing["default"] == "anthropic:opus"
    assert [row["id"] for row in listing["models"] if row["default"]] == ["claude-opus-5-5"]
    (row,) = [row for row in listing["models"] if row["id"] == "local-7"]
    assert (row["aliases"], row["input"], row["window"]) == (["fast"], 1, 9000)


@pytest.mark.slow
async def test_a_server_that_lists_its_models_too_slowly_is_skipped(shoal: ShoalProgram) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1"}
        async with asyncio.timeout(10):
            listing = await list_models(shoal, **env)
    (row,) = [row for row in listing["providers"] if row["name"] == "openai"]
    assert row["configured"]
    assert row["offered"] is None


async def test_without_configuration_the_next_steps_are_shown(shoal: ShoalProgram) -> None:
    ran = await shoal("models", "ls", **NOBODY)
    assert "shoal setup" in ran.text
    full_listing = await shoal("models", "ls", "--all", **NOBODY)
    assert "anthropic:claude-opus-5-5" in full_listing.text


async def run_model_test(
    shoal: ShoalProgram, replies: Any, *words: str, serve: Any = messages_server
) -> tuple[CliResult, MockServer]:
    server: MockServer
    async with serve([replies] if not isinstance(replies, list) else replies) as server:
        shoal.use_server(server)
        shoal.env |= {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "sk-for-tests"}
        ran = await shoal("models", "test", *words)
        return ran, server


async def test_a_working_model_is_reported_with_its_cost(shoal: ShoalProgram) -> None:
    ran, server = await run_model_test(shoal, GOOD, "--json")
    assert ran.code == 0, ran.err
    assert server.request_count == 1
    trial = json.loads(ran.text)["trial"]
    assert (trial["provider"], trial["model"]) == ("anthropic", "claude-sonnet-5-5")
    assert trial["streamed"]
    assert trial["called"]
    assert trial["usd"] == pytest.approx((100 * 2 + 10 * 10) / 1_000_000)
    assert 0 <= trial["first_seconds"] <= trial["seconds"]


@pytest.mark.parametrize(
    ("name", "serve"), [("openai:mine", chat_server), ("openai-responses:mine", responses_server)]
)
async def test_a_model_of_any_api_is_tested_by_its_name(shoal: ShoalProgram, name: str, serve: Any) -> None:
    ran, server = await run_model_test(shoal, GOOD, name, serve=serve)
    assert ran.code == 0, ran.err
    assert f"{name} answers" in ran.text
    assert "price unknown" in ran.text
    assert server.requests[0].body["model"] == "mine"


async def test_a_model_that_calls_no_tool_gets_a_warning(shoal: ShoalProgram) -> None:
    ran, _ = await run_model_test(shoal, "ready")
    assert ran.code == 0
    assert "did not call the tool" in ran.text


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (make_unauthorized_fault(), ["did not accept the key", "ANTHROPIC_API_KEY"]),
        (make_unknown_model_fault(), ["has no model", "--model"]),
        (HttpErrorFault(status=400, message="Your credit balance is too low"), ["credit balance"]),
    ],
)
async def test_an_error_of_the_model_test_is_reported_with_advice(
    shoal: ShoalProgram, fault: Any, words: list[str]
) -> None:
    ran, _ = await run_model_test(shoal, fault)
    assert ran.code == 1
    for word in words:
        assert word in ran.err
    assert "sk-for-tests" not in ran.err


async def test_the_model_test_waits_for_a_rate_limit(shoal: ShoalProgram) -> None:
    ran, server = await run_model_test(
        shoal, [make_rate_limit_fault(retry_after=0.01), [DelayedReplyFault(seconds=0.01), "ready"]]
    )
    assert ran.code == 0, ran.err
    assert server.request_count == 2
    assert "after 2 attempts" in ran.text


async def test_a_model_without_a_key_says_how_to_get_one(shoal: ShoalProgram) -> None:
    ran = await shoal("models", "test", "openrouter:a/b", "--json")
    assert ran.code == 1
    report = json.loads(ran.text)
    assert report["error"] == "Unauthorized"
    assert "shoal setup" in report["message"]


async def test_a_missing_model_has_the_error_name_that_programs_know(shoal: ShoalProgram) -> None:
    ran = await shoal("models", "test", "--json", **NOBODY)
    assert (ran.code, json.loads(ran.text)["error"]) == (1, "NoModel")
