"""Hooks that call a tool of an MCP server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp_helpers import WAIT_SETTINGS, list_result_texts, make_harbour_config, open_session

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
