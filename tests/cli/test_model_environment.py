"""Model names, credentials and request variables of Claude Code, seen in requests of the real program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reply_scripts import make_agent_call
from shoal_process import CliResult, ShoalProgram

from shoal.testing import messages_server
from shoal.testing.mock_replies import DelayedReplyFault, make_tool_call, make_unauthorized_fault
from shoal.testing.servers import MockServer

NOBODY = {"OLLAMA_HOST": "127.0.0.1:9"}
CLOUD_ID = "us.anthropic.claude-opus-4-1-20250805-v1:0"


def list_models(server: MockServer) -> list[str]:
    return [request.body["model"] for request in server.requests]


async def ask(shoal: ShoalProgram, *flags: str, **env: str) -> tuple[CliResult, MockServer]:
    async with messages_server(lambda _: "done") as server:
        shoal.use_server(server)
        ran = await shoal("-p", "hello", *flags, **(NOBODY | env))
    return ran, server


@pytest.mark.spec("CMP-051")
@pytest.mark.parametrize(
    ("name", "sent", "beta"),
    [
        ("best", "claude-fable-5-1", None),
        ("fable", "claude-fable-5-1", None),
        ("opusplan", "claude-sonnet-5-5", None),
        ("Opus", "claude-opus-5-5", None),
        ("OpusPlan", "claude-sonnet-5-5", None),
        ("sonnet[1m]", "claude-sonnet-5-5", None),
        ("claude-sonnet-4-5[1m]", "claude-sonnet-4-5", "context-1m-2025-08-07"),
    ],
)
async def test_aliases_name_models_and_never_reach_the_provider(
    shoal: ShoalProgram, name: str, sent: str, beta: str | None
) -> None:
    ran, server = await ask(shoal, "--model", name)
    assert ran.code == 0, ran.err
    assert list_models(server) == [sent]
    assert server.requests[0].headers.get("anthropic-beta") == beta


@pytest.mark.spec("CMP-051")
async def test_default_clears_a_configured_model(shoal: ShoalProgram, home: Path) -> None:
    (home / "settings.json").write_text(json.dumps({"model": "opus"}))
    _, server = await ask(shoal, "--model", "default")
    assert list_models(server) == ["claude-sonnet-5-5"]


@pytest.mark.spec("CMP-051")
async def test_opusplan_uses_opus_in_plan_mode_only(shoal: ShoalProgram) -> None:
    _, server = await ask(shoal, "--model", "opusplan", "--permission-mode", "plan")
    assert list_models(server) == ["claude-opus-5-5"]


@pytest.mark.spec("CMP-051")
async def test_an_agent_follows_its_own_mode_with_opusplan(shoal: ShoalProgram) -> None:
    agents = {"planner": {"description": "d", "prompt": "You plan.", "permissionMode": "plan"}}

    def reply(body: Any) -> Any:
        text = json.dumps(body["messages"])
        if "You plan." in json.dumps(body["system"]) or "tool_result" in text:
            return "done"
        call = make_agent_call("sketch", kind="planner", subagent_type="planner")
        return [make_tool_call(call["name"], **call["input"])]

    async with messages_server(reply) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "go", "--model", "opusplan", "--agents", json.dumps(agents), **NOBODY)
    assert ran.code == 0, ran.err
    assert list_models(server) == ["claude-sonnet-5-5", "claude-opus-5-5", "claude-sonnet-5-5"]


@pytest.mark.spec("CMP-052")
async def test_variables_set_what_an_alias_means(shoal: ShoalProgram, home: Path) -> None:
    env = {
        "ANTHROPIC_DEFAULT_SONNET_MODEL": "gateway-sonnet[1m]",
        "ANTHROPIC_SMALL_FAST_MODEL": "gateway-small",
    }
    _, server = await ask(shoal, **env)
    assert list_models(server) == ["gateway-sonnet"]
    assert server.requests[0].headers["anthropic-beta"] == "context-1m-2025-08-07"
    _, server = await ask(shoal, "--model", "haiku", **env)
    assert list_models(server) == ["gateway-small"]
    (home / "settings.json").write_text(json.dumps({"env": {"ANTHROPIC_DEFAULT_OPUS_MODEL": "gateway-opus"}}))
    _, server = await ask(shoal, "--model", "opusplan", "--permission-mode", "plan", **env)
    assert list_models(server) == ["gateway-opus"]


@pytest.mark.spec("CMP-052")
async def test_an_agents_alias_means_what_the_variable_says(shoal: ShoalProgram) -> None:
    agents = {"helper": {"description": "d", "prompt": "You help.", "model": "haiku"}}

    def reply(body: Any) -> Any:
        if "You help." in json.dumps(body["system"]) or "tool_result" in json.dumps(body["messages"]):
            return "done"
        return [make_tool_call("Agent", description="d", prompt="p", subagent_type="helper")]

    async with messages_server(reply) as server:
        shoal.use_server(server)
        env = {
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "gateway-haiku",
            "ANTHROPIC_DEFAULT_SONNET_MODEL": "gateway-sonnet",
        }
        ran = await shoal("-p", "go", "--agents", json.dumps(agents), **(NOBODY | env))
    assert ran.code == 0, ran.err
    assert list_models(server) == ["gateway-sonnet", "gateway-haiku", "gateway-sonnet"]


@pytest.mark.spec("CMP-052")
async def test_the_default_model_variable_gives_way_to_a_file(shoal: ShoalProgram, home: Path) -> None:
    _, server = await ask(shoal, ANTHROPIC_DEFAULT_MODEL="gateway-model")
    assert list_models(server) == ["gateway-model"]
    (home / "settings.json").write_text(json.dumps({"model": "claude-opus-4-8"}))
    _, server = await ask(shoal, ANTHROPIC_DEFAULT_MODEL="gateway-model")
    assert list_models(server) == ["claude-opus-4-8"]


@pytest.mark.spec("CMP-053")
@pytest.mark.parametrize(
    "name", [CLOUD_ID, "arn:aws:bedrock:us-east-1:1:inference-profile/x", "harbour:ship"]
)
async def test_an_unknown_prefix_is_refused_and_no_request_is_sent(shoal: ShoalProgram, name: str) -> None:
    async with messages_server(lambda _: "done") as local:
        ran = await shoal("-p", "hello", "--model", name, OLLAMA_HOST=local.url, ANTHROPIC_API_KEY="sk-x")
    assert ran.code == 1
    assert name in ran.err
    assert "ollama" in ran.err  # in the list of providers
    assert not local.requests


@pytest.mark.spec("CMP-053")
async def test_a_gateway_gets_the_cloud_id_unchanged(shoal: ShoalProgram) -> None:
    _, server = await ask(shoal, "--model", CLOUD_ID)
    assert list_models(server) == [CLOUD_ID]


@pytest.mark.parametrize(
    ("variable", "cloud"),
    [
        pytest.param("CLAUDE_CODE_USE_BEDROCK", "Amazon Bedrock", marks=pytest.mark.spec("CMP-054")),
        pytest.param("CLAUDE_CODE_USE_VERTEX", "Google Vertex AI", marks=pytest.mark.spec("CMP-055")),
        pytest.param("CLAUDE_CODE_USE_FOUNDRY", "Microsoft Foundry", marks=pytest.mark.spec("CMP-055")),
    ],
)
async def test_a_cloud_is_refused_by_name_although_a_key_is_set(
    shoal: ShoalProgram, variable: str, cloud: str
) -> None:
    ran, server = await ask(shoal, **{variable: "1"})
    assert ran.code != 0
    assert variable in ran.err
    assert cloud in ran.err
    for name in ("ANTHROPIC_BASE_URL and ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY", "--model openai:NAME"):
        assert name in " ".join(ran.err.split())
    assert "to a valid key" not in ran.err
    assert not server.requests


@pytest.mark.spec("CMP-056")
async def test_the_token_is_used_before_the_key(shoal: ShoalProgram) -> None:
    _, server = await ask(shoal, ANTHROPIC_AUTH_TOKEN="token-1")
    headers = server.requests[0].headers
    assert headers["authorization"] == "Bearer token-1"
    assert "x-api-key" not in headers


@pytest.mark.spec("CMP-056")
@pytest.mark.parametrize("flags", [(), ("--model", "opus")])
async def test_a_subscription_token_is_refused_with_advice(
    shoal: ShoalProgram, flags: tuple[str, ...]
) -> None:
    ran = await shoal("-p", "hello", *flags, **NOBODY, CLAUDE_CODE_OAUTH_TOKEN="sk-ant-oat-secret")
    assert ran.code != 0
    assert "CLAUDE_CODE_OAUTH_TOKEN" in ran.err
    assert "ANTHROPIC_API_KEY" in ran.err
    assert "oat-secret" not in ran.err


@pytest.mark.spec("CMP-056")
async def test_a_subscription_token_is_not_sent_to_a_gateway_and_that_is_said(shoal: ShoalProgram) -> None:
    token = "sk-ant-oat-secret"
    flags = ("--model", "sonnet")
    ran, server = await ask(shoal, *flags, CLAUDE_CODE_OAUTH_TOKEN=token, ANTHROPIC_API_KEY="")
    assert len(server.requests) == 1
    assert token not in str(server.requests[0].headers)
    assert f"does not send CLAUDE_CODE_OAUTH_TOKEN to {server.url}" in ran.err
    assert "ANTHROPIC_AUTH_TOKEN" in ran.err
    ran, _ = await ask(shoal, *flags, CLAUDE_CODE_OAUTH_TOKEN=token)
    assert "CLAUDE_CODE_OAUTH_TOKEN" not in ran.err


def write_key_helper(project: Path, settings: Path) -> Path:
    """Configure a helper that prints key-1, key-2 and so on, and return the file with one line per run."""
    runs = project / "runs"
    script = project / "helper.sh"
    script.write_text(f"echo run >> {runs}\necho key-$(wc -l < {runs} | tr -d ' ')\n")
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"apiKeyHelper": f"sh {script}"}))
    return runs


@pytest.mark.spec("CMP-057")
async def test_the_key_helper_gives_the_key_and_runs_again_when_it_is_refused(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    runs = write_key_helper(project, home / "settings.json")
    replies: list[Any] = [make_unauthorized_fault(), [make_tool_call("Read", file_path="helper.sh")], "done"]
    async with messages_server(replies) as server:
        ran = await shoal("-p", "hello", ANTHROPIC_BASE_URL=server.url, **NOBODY)
    assert ran.code == 0, ran.err
    sent = [(each.headers["x-api-key"], each.headers["authorization"]) for each in server.requests]
    assert sent == [("key-1", "Bearer key-1"), ("key-2", "Bearer key-2"), ("key-2", "Bearer key-2")]
    assert runs.read_text().count("run") == 2


@pytest.mark.spec("CMP-057")
async def test_the_key_helper_runs_again_after_its_time(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    write_key_helper(project, home / "settings.json")
    replies: list[Any] = [[make_tool_call("Read", file_path="helper.sh")], "done"]
    async with messages_server(replies) as server:
        env = {"CLAUDE_CODE_API_KEY_HELPER_TTL_MS": "1", "ANTHROPIC_BASE_URL": server.url}
        await shoal("-p", "hello", **env, **NOBODY)
    assert [each.headers["x-api-key"] for each in server.requests] == ["key-1", "key-2"]


@pytest.mark.spec("CMP-057")
async def test_a_projects_key_helper_runs_only_when_it_is_trusted(shoal: ShoalProgram, project: Path) -> None:
    runs = write_key_helper(project, project / ".claude" / "settings.json")
    async with messages_server(lambda _: "done") as server:
        env = {"ANTHROPIC_BASE_URL": server.url, **NOBODY}
        assert (await shoal("-p", "hello", **env)).code == 1
        assert not runs.exists()
        assert "apiKeyHelper" in (await shoal("trust", **env)).text
        assert (await shoal("-p", "hello", **env)).code == 0
    assert server.requests[-1].headers["x-api-key"] == "key-1"


@pytest.mark.spec("CMP-057")
@pytest.mark.parametrize("command", ["echo broken >&2; exit 3", "true", "printf 'a\\nb'"])
async def test_a_key_helper_without_a_key_is_explained(shoal: ShoalProgram, home: Path, command: str) -> None:
    (home / "settings.json").write_text(json.dumps({"apiKeyHelper": command}))
    ran = await shoal("-p", "hello", **NOBODY)
    assert ran.code != 0
    assert "apiKeyHelper" in ran.err
    assert "settings.json:1" in ran.err


@pytest.mark.spec("CMP-060")
async def test_headers_and_the_output_limit_are_sent_to_a_gateway(shoal: ShoalProgram) -> None:
    env = {
        # A name with such a letter would make the whole request unreadable.
        "ANTHROPIC_CUSTOM_HEADERS": "X-Team: harbour\nX-Route: a:b\nbroken line\nX-Größe: 1",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "1234",
    }
    ran, server = await ask(shoal, **env)
    assert ran.code == 0
    request = server.requests[0]
    assert (request.headers["x-team"], request.headers["x-route"]) == ("harbour", "a:b")
    assert request.body["max_tokens"] == 1234
    assert "ANTHROPIC_CUSTOM_HEADERS has a line" in ran.err


@pytest.mark.spec("CMP-060")
async def test_the_output_limit_applies_to_a_model_that_only_the_gateway_knows(shoal: ShoalProgram) -> None:
    names = {"ANTHROPIC_DEFAULT_OPUS_MODEL": "corporate-opus", "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "20000"}
    _, server = await ask(shoal, "--model", "opus", **names)
    assert list_models(server) == ["corporate-opus"]
    assert server.requests[0].body["max_tokens"] == 20_000


@pytest.mark.spec("CMP-060")
async def test_a_gateway_that_needs_only_headers_is_used_without_a_key(shoal: ShoalProgram) -> None:
    async with messages_server(lambda _: "done", strict=False) as server:
        env = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_CUSTOM_HEADERS": "X-Key: k"}
        ran = await shoal("-p", "hello", **env, **NOBODY)
    assert ran.code == 0, ran.err
    assert server.requests[0].headers["x-key"] == "k"


@pytest.mark.spec("CMP-060")
async def test_the_request_timeout_ends_a_slow_answer(shoal: ShoalProgram) -> None:
    settings = json.dumps({"shoal": {"outage_patience": 0.2}, "env": {"API_TIMEOUT_MS": "300"}})
    async with messages_server(lambda _: DelayedReplyFault(seconds=60.0)) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "hello", "--settings", settings, **NOBODY)
    assert ran.code != 0
    assert "0.3 s" in ran.err


@pytest.mark.spec("CMP-059")
@pytest.mark.parametrize(
    ("model", "settings", "thinking"),
    [
        ("sonnet", {}, {"type": "adaptive"}),
        ("claude-sonnet-4-5", {}, None),
        ("sonnet", {"alwaysThinkingEnabled": False}, None),
        ("sonnet", {"env": {"MAX_THINKING_TOKENS": "0"}}, None),
        ("sonnet", {"shoal": {"thinking_tokens": 0}}, None),
    ],
)
async def test_newer_models_think_by_default(
    shoal: ShoalProgram, home: Path, model: str, settings: dict[str, Any], thinking: Any
) -> None:
    (home / "settings.json").write_text(json.dumps(settings))
    _, server = await ask(shoal, "--model", model)
    assert server.requests[0].body.get("thinking") == thinking
    assert "output_config" not in server.requests[0].body
