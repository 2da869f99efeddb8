"""Mode `auto` behaves like `default`: rules apply, other calls need an answer, no other model is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import shoal
from agent_scripts import call_tool, run_all_turns, script_agents, spawn_agent
from hook_helpers import HookInputLog, make_settings
from shoal.core.conversation.messages import ToolResultBlock
from shoal.core.events import ModelRequestSent


@pytest.mark.spec("CMP-029", "CMP-030", "CMP-031", "CMP-033")
async def test_rules_decide_in_auto_mode_and_other_calls_are_denied(
    project: Path, hook_log: HookInputLog
) -> None:
    hooks = json.loads(make_settings({"PermissionDenied": hook_log.build_logging_command()}))["hooks"]
    rules = {"deny": ["Bash(curl:*)"], "ask": ["Bash(git push:*)"], "allow": ["Bash", "Write(notes/**)"]}
    settings = json.dumps({"hooks": hooks, "permissions": rules})
    calls = [
        call_tool("Bash", "b1", command="curl http://127.0.0.1:9/x"),
        call_tool("Bash", "b2", command="git push"),
        call_tool("Bash", "b3", command="python3 -c 'print(6 * 7)'"),
        call_tool("Write", "w1", file_path="notes/a.txt", content="kept"),
        call_tool("Write", "w2", file_path="other.txt", content="lost"),
    ]
    model = script_agents(lead=[*calls, "done"])
    sent: list[ModelRequestSent] = []
    async with shoal.open(cwd=project, model=model, settings=settings, mode="auto") as session:
        session.subscribe(lambda event: sent.append(event) if isinstance(event, ModelRequestSent) else None)
        await run_all_turns(session, "lead go")
        results = {
            block.tool_use_id: str(block.content)
            for message in session.messages
            for block in message.content
            if isinstance(block, ToolResultBlock)
        }
        assert session.messages[-1].text == "done"
    assert "Bash(curl:*)" in results["b1"]
    assert "was not run" in results["b2"]
    assert results["b3"].strip() == "42"
    assert (project / "notes" / "a.txt").read_text() == "kept"
    assert not (project / "other.txt").exists()
    assert len(sent) == len(calls) + 1
    denied = [each["tool_input"].get("command") for each in hook_log.read_inputs("PermissionDenied")]
    assert "curl http://127.0.0.1:9/x" in denied


@pytest.mark.spec("CMP-034")
async def test_the_mode_of_an_agent_applies_below_a_lead_in_auto_mode(project: Path) -> None:
    agents = {"editor": {"description": "edits", "prompt": "Edit.", "permissionMode": "acceptEdits"}}
    model = script_agents(
        lead=[
            call_tool("Write", "w1", file_path="lead.txt", content="x"),
            spawn_agent("child", subagent_type="editor"),
            "done",
        ],
        child=[call_tool("Write", "w2", file_path="child.txt", content="x"), "edited"],
    )
    async with shoal.open(cwd=project, model=model, mode="auto", agents=agents) as session:
        await run_all_turns(session, "lead go")
    assert not (project / "lead.txt").exists()
    assert (project / "child.txt").exists()
