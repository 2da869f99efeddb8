"""Hooks that call a tool of an MCP server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp_helpers import (
    WAIT_SETTINGS,
    list_result_texts,
    make_harbour_config,
    make_rogue_config,
    open_session,
)

from agent_scripts import call_tool, run_all_turns
from shoal.models.scripted_model import ScriptedModel

pytestmark = pytest.mark.needs("mcp")


def make_settings(event: str, matcher: str, **action: Any) -> str:
    hook = {"type": "mcp_tool", "server": "harbour", **action}
    hooks = {event: [{"matcher": matcher, "hooks": [hook]}]}
    return json.dumps({"hooks": hooks, "shoal": WAIT_SETTINGS})


@pytest.mark.spec("CMP-042")
async def test_the_text_of_an_mcp_tool_is_the_answer_of_a_hook(tmp_path: Path) -> None:
    settings = make_settings("UserPromptSubmit", "", tool="tide", input={"place": "${prompt}", "hour": 3})
    servers = {"harbour": make_harbour_config()}
    async with open_session(tmp_path, ScriptedModel(["done"]), servers, settings=settings) as session:
        await run_all_turns(session, "Kiel")
        texts = [message.text for message in session.agent.conversation.messages]
    assert "Kiel at 3: 4 m" in "\n".join(texts)


@pytest.mark.spec("CMP-042")
async def test_an_mcp_tool_that_fails_blocks_what_its_hook_guards(tmp_path: Path) -> None:
    settings = make_settings("PreToolUse", "Write", tool="wreck")
    model = ScriptedModel([call_tool("Write", "w1", file_path=str(tmp_path / "made"), content="x"), "done"])
    servers = {"harbour": make_harbour_config()}
    async with open_session(tmp_path, model, servers, settings=settings) as session:
        await run_all_turns(session, "begin")
        (result,) = list_result_texts(session)
    assert "mcp__harbour__wreck failed" in result
    assert not (tmp_path / "made").exists()


@pytest.mark.spec("CMP-040")
async def test_the_hook_limits_the_time_of_its_mcp_tool(tmp_path: Path) -> None:
    settings = json.loads(make_settings("PreToolUse", "Write", tool="echo", server="mute", timeout=1))
    settings["shoal"] = WAIT_SETTINGS | {"mcp_deadline": 0.1}
    model = ScriptedModel([call_tool("Write", "w1", file_path=str(tmp_path / "made"), content="x"), "done"])
    servers = {"mute": make_rogue_config("mute")}
    async with open_session(tmp_path, model, servers, settings=json.dumps(settings)) as session:
        await run_all_turns(session, "begin")
        (result,) = list_result_texts(session)
    assert "within 1 s" in result
    assert not (tmp_path / "made").exists()


@pytest.mark.spec("CMP-062", "CMP-086")
@pytest.mark.parametrize(
    ("server", "variable", "setting"),
    [
        ({"timeout": 100}, "", "the server's timeout"),
        ({}, "100", "MCP_TOOL_TIMEOUT"),
        ({}, "", "shoal.mcp_deadline"),
    ],
)
async def test_a_slow_call_names_the_setting_that_limits_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: dict[str, Any], variable: str, setting: str
) -> None:
    monkeypatch.setenv("MCP_TOOL_TIMEOUT", variable)
    servers = {"mute": make_rogue_config("mute") | server}
    settings = json.dumps({"shoal": WAIT_SETTINGS | {"mcp_deadline": 0.1}})
    model = ScriptedModel([call_tool("mcp__mute__echo"), "done"])
    async with open_session(tmp_path, model, servers, settings=settings) as session:
        await run_all_turns(session, "begin")
        (result,) = list_result_texts(session)
    assert result.endswith(f"did not answer within 0.1 s. To allow more time, increase {setting}.")
