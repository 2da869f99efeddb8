"""Variables and keys of Claude Code that configure thinking, tools and models, seen in sessions."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from app_session_helpers import list_result_texts, run_prompt

from agent_scripts import call_tool, script_agents, spawn_agent
from shoal.app.options import Options
from shoal.app.session.session import Session
from shoal.app.settings.settings import load_settings
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import SettingsError, UnknownModel
from shoal.models.scripted_model import ScriptedModel
from shoal.testing import messages_server
from shoal.testing.mock_replies import make_overloaded_fault


class RecordedRequests:
    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    def reply(self, request: ModelRequest) -> str:
        self.requests.append(request)
        return "done"


def write_settings(**settings: Any) -> None:
    (Path(os.environ["SHOAL_HOME"]) / "settings.json").write_text(json.dumps(settings))


async def run_and_record(project: Path, **options: Any) -> ModelRequest:
    recorded = RecordedRequests()
    async with Session(Options(cwd=project, model=ScriptedModel(recorded.reply), **options)) as session:
        await run_prompt(session)
    return recorded.requests[-1]


async def run_command(project: Path, command: str, **more: Any) -> str:
    model = script_agents(go=[call_tool("Bash", command=command, **more), "done"])
    async with Session(Options(cwd=project, model=model, skip_permissions=True)) as session:
        await run_prompt(session)
        return "\n".join(list_result_texts(session.agent.conversation.messages))


@pytest.mark.spec("CMP-058")
async def test_the_effort_variable_overrides_the_flag_and_the_flag_the_file(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(effortLevel="low")
    assert (await run_and_record(project)).thinking_tokens == 1_024
    assert (await run_and_record(project, effort="medium")).thinking_tokens == 4_096
    monkeypatch.setenv("CLAUDE_CODE_EFFORT_LEVEL", "max")
    assert (await run_and_record(project, effort="medium")).thinking_tokens == 65_536
    assert (await run_and_record(project, thinking_tokens=7)).thinking_tokens == 7


@pytest.mark.spec("CMP-064")
def test_a_shell_that_cannot_be_used_is_reported(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CODE_SHELL", "/usr/bin/fish")
    (warning,) = load_settings(cwd=project).findings.warnings
    assert warning == "CLAUDE_CODE_SHELL is '/usr/bin/fish', but must be bash or zsh. It is ignored."


@pytest.mark.spec("CMP-111")
@pytest.mark.parametrize(("value", "is_reported"), [("perhaps", True), ("auto:5", False), ("FALSE", False)])
def test_an_unknown_value_for_the_tool_search_is_reported(
    project: Path, monkeypatch: pytest.MonkeyPatch, value: str, is_reported: bool
) -> None:
    monkeypatch.setenv("ENABLE_TOOL_SEARCH", value)
    warnings = load_settings(cwd=project).findings.warnings
    assert [each.startswith("ENABLE_TOOL_SEARCH is 'perhaps'") for each in warnings] == [True] * is_reported


@pytest.mark.spec("CMP-059")
async def test_thinking_follows_the_setting_and_the_variable_wins(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(alwaysThinkingEnabled=True)
    assert (await run_and_record(project)).thinking_tokens == 16_384
    write_settings(alwaysThinkingEnabled=False, shoal={"thinking_tokens": 5000})
    assert (await run_and_record(project)).thinking_tokens == 0
    monkeypatch.setenv("MAX_THINKING_TOKENS", "3000")
    assert (await run_and_record(project)).thinking_tokens == 3_000
    write_settings(alwaysThinkingEnabled=True, env={"MAX_THINKING_TOKENS": "0"})
    assert (await run_and_record(project)).thinking_tokens == 0


@pytest.mark.spec("CMP-059")
async def test_the_effort_of_agents_and_skills_does_not_override_the_variable(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_THINKING_TOKENS", "0")
    for file, text in (
        ("agents/thinker.md", "name: thinker\ndescription: d\neffort: high\n---\nThink."),
        ("skills/hard/SKILL.md", "name: hard\ndescription: d\neffort: high\n---\nThink."),
        ("skills/apart/SKILL.md", "name: apart\ndescription: d\neffort: high\ncontext: fork\n---\nThink."),
    ):
        path = project / ".claude" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"---\n{text}\n")
    requests: list[ModelRequest] = []
    calls = [
        call_tool("Agent", "a1", description="d", prompt="child", subagent_type="thinker"),
        call_tool("Skill", "s1", skill="apart"),
        call_tool("Skill", "s2", skill="hard"),
    ]

    def choose_reply(request: ModelRequest) -> Any:
        requests.append(request)
        is_lead = request.messages[0].text == "go"
        return calls.pop(0) if is_lead and calls else "done"

    options = Options(cwd=project, model=ScriptedModel(choose_reply), skip_permissions=True)
    async with Session(options) as session:
        await run_prompt(session, "go")
    assert [request.thinking_tokens for request in requests] == [0] * 6


@pytest.mark.spec("CMP-061")
async def test_variables_limit_shell_commands(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASH_DEFAULT_TIMEOUT_MS", "700000")
    monkeypatch.setenv("BASH_MAX_TIMEOUT_MS", "1000")
    request = await run_and_record(project)
    (bash,) = (tool for tool in request.tools if tool.name == "Bash")
    timeout = bash.input_schema["properties"]["timeout"]
    assert (timeout["maximum"], timeout["default"]) == (700_000, 700_000)
    monkeypatch.setenv("BASH_DEFAULT_TIMEOUT_MS", "50")
    assert "0.05 s" in await run_command(project, "sleep 30")
    monkeypatch.setenv("BASH_MAX_OUTPUT_LENGTH", "2000")
    monkeypatch.delenv("BASH_DEFAULT_TIMEOUT_MS")
    assert 1_000 < len(await run_command(project, "yes line | head -c 9000")) < 3_500


@pytest.mark.spec("CMP-062")
async def test_variables_limit_mcp_servers(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TIMEOUT", "200")
    monkeypatch.setenv("MCP_TOOL_TIMEOUT", "1500")
    monkeypatch.setenv("MAX_MCP_OUTPUT_TOKENS", "100")
    servers = {"mcpServers": {"slow": {"command": "sleep", "args": ["60"]}}}
    options = Options(cwd=project, model=ScriptedModel(["done"]), mcp_config=[servers])
    async with Session(options) as session:
        await run_prompt(session)
        (status,) = session.runtime.servers.list_statuses()
        assert "within 0.2 s" in status.detail
        assert session.runtime.settings.own.mcp_deadline == 1.5
        limits = session.agent.limits
        assert (limits.get_result_limit("mcp__a__b"), limits.get_result_limit("Read")) == (400, 100_000)


@pytest.mark.slow
@pytest.mark.spec("CMP-063")
async def test_fallback_models_are_used_in_order(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reply(body: Any) -> Any:
        return "done" if body["model"] == "third" else make_overloaded_fault()

    async with messages_server(reply) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")
        write_settings(fallbackModel=["anthropic:second", "anthropic:third"])
        async with Session(Options(cwd=project, model="anthropic:first")) as session:
            assert (await run_prompt(session)).text == "done"
        assert list(dict.fromkeys(each.body["model"] for each in server.requests)) == [
            "first",
            "second",
            "third",
        ]
        flag = "anthropic:fourth,anthropic:third"
        async with Session(Options(cwd=project, model="anthropic:third", fallback_model=flag)) as session:
            assert (await run_prompt(session)).text == "done"


@pytest.mark.spec("CMP-063")
async def test_only_available_models_are_used(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with messages_server(lambda _: "done") as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")
        write_settings(availableModels=["haiku"], modelOverrides={"claude-haiku-5-5": "gateway-haiku"})
        for name in ("opus", "claude-opus-4-8", "anthropic:sonnet"):
            with pytest.raises(UnknownModel, match="availableModels"):
                async with Session(Options(cwd=project, model=name)):
                    pass
        for model in (None, "haiku"):
            async with Session(Options(cwd=project, model=model)) as session:
                await run_prompt(session)
                with pytest.raises(UnknownModel, match=r"settings.json:1"):
                    await session.set_model("sonnet")
        assert [each.body["model"] for each in server.requests] == ["gateway-haiku", "gateway-haiku"]
        (project / ".claude").mkdir()
        (project / ".claude" / "settings.json").write_text('{"availableModels": ["opus", "haiku", "sonnet"]}')
        with pytest.raises(UnknownModel, match="availableModels"):
            async with Session(Options(cwd=project, model="sonnet")):
                pass
    write_settings(availableModels="haiku")
    with pytest.raises(SettingsError, match="availableModels: expected a list"):
        async with Session(Options(cwd=project, model="haiku")):
            pass


@pytest.mark.spec("CMP-064")
async def test_automatic_compaction_can_be_disabled(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def count_requests() -> int:
        recorded = RecordedRequests()
        settings = json.dumps({"shoal": {"compact_at": 0.0001}})
        options = Options(cwd=project, model=ScriptedModel(recorded.reply), settings=settings)
        async with Session(options) as session:
            for _ in range(3):
                await run_prompt(session)
        return len(recorded.requests)

    assert await count_requests() > 3
    write_settings(autoCompactEnabled=False)
    assert await count_requests() == 3
    write_settings()
    monkeypatch.setenv("DISABLE_AUTO_COMPACT", "1")
    assert await count_requests() == 3


@pytest.mark.spec("CMP-064")
async def test_the_shell_background_work_and_keys_of_children(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = project / "bash"
    shell.write_text('#!/bin/sh\ntouch shell-used\nexec /bin/bash "$@"\n')
    shell.chmod(0o755)
    monkeypatch.setenv("CLAUDE_CODE_SHELL", str(shell))
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session-1")
    assert "key=session" in await run_command(project, "echo key=${AWS_SESSION_TOKEN:0:7}")
    assert (project / "shell-used").exists()
    monkeypatch.setenv("CLAUDE_CODE_SUBPROCESS_ENV_SCRUB", "1")
    assert "key=." in await run_command(project, "echo key=$AWS_SESSION_TOKEN.")
    monkeypatch.setenv("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1")
    refused = await run_command(project, "touch made", run_in_background=True)
    assert "Background commands are disabled" in refused
    assert not (project / "made").exists()
    async with Session(Options(cwd=project, model=script_agents(go=["done"]))) as session:
        offered = {schema.name: schema for schema in session.agent.schemas.sent}
    assert "background" not in str([offered[name] for name in ("Bash", "Agent", "SendMessage")])
    assert "timeout" in offered["Bash"].input_schema["properties"]
    assert not {"BashOutput", "KillShell", "TaskOutput"} & set(offered)
    assert "TaskStop" in offered  # stops teammates
    children: list[ModelRequest] = []

    def reply_as_child(request: ModelRequest) -> str:
        children.append(request)
        return "x"

    model = script_agents(go=[spawn_agent("child", subagent_type="Bash"), "done"], child=[reply_as_child])
    async with Session(Options(cwd=project, model=model)) as session:
        await run_prompt(session)
    assert [tool.name for tool in children[0].tools] == ["Bash"]
    assert "BashOutput" not in str(children[0])


@pytest.mark.spec("CMP-064")
async def test_sessions_share_a_named_task_list(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CODE_TASK_LIST_ID", "harbour")
    make = script_agents(go=[call_tool("TaskCreate", subject="Paint the boat", description="d"), "done"])
    async with Session(Options(cwd=project, model=make)) as session:
        await run_prompt(session)
    look = script_agents(go=[call_tool("TaskList"), "done"])
    async with Session(Options(cwd=project, model=look)) as session:
        await run_prompt(session)
        assert "Paint the boat" in "\n".join(list_result_texts(session.agent.conversation.messages))


@pytest.mark.spec("CMP-116")
async def test_the_teammate_mode_of_the_shared_key_is_used(project: Path) -> None:
    async def read_mode() -> str:
        async with Session(Options(cwd=project, model=ScriptedModel(["done"]))) as session:
            return session.runtime.settings.own.teammate_mode

    write_settings(teammateMode="tmux")
    assert await read_mode() == "tmux"
    write_settings(teammateMode="tmux", shoal={"teammate_mode": "process"})
    assert await read_mode() == "process"
    write_settings(teammateMode="spaceship")
    assert await read_mode() == "auto"


def test_a_variable_that_cannot_be_read_is_a_warning(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASH_MAX_TIMEOUT_MS", "soon")

    settings = load_settings(cwd=project)
    assert any("BASH_MAX_TIMEOUT_MS is 'soon'" in warning for warning in settings.findings.warnings)
