"""Results of tool calls for PostToolUse hooks and SDK programs, in the shapes that Claude Code documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import call_tool, script_agents, spawn_agent
from hook_helpers import HookInputLog, make_settings
from session_helpers import collect_events

TODO = {"content": "Dig", "status": "pending", "activeForm": "Digging"}


async def list_responses(project: Path, hook_log: HookInputLog, *calls: Any) -> list[dict[str, Any]]:
    model = script_agents(lead=[*calls, "done"], child=["It is deep."])
    given = make_settings({"PostToolUse": hook_log.build_logging_command()})
    async with shoal.open(cwd=project, model=model, settings=given, skip_permissions=True) as session:
        await collect_events(session.run("lead"))
    return [each["tool_response"] for each in hook_log.read_inputs()]


def select(response: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    return {key: response.get(key) for key in expected}


@pytest.mark.spec("CMP-048")
async def test_hooks_get_the_documented_fields_of_each_tool(project: Path, hook_log: HookInputLog) -> None:
    path = str(project / "a.txt")
    calls = [
        call_tool("Write", "w1", file_path=path, content="one\ntwo\n"),
        call_tool("Write", "w2", file_path=path, content="one\ntwo\nthree\n"),
        call_tool("Edit", "e", file_path=path, old_string="two", new_string="2"),
        call_tool("Read", "r", file_path=path, offset=2, limit=1),
        call_tool("Bash", "b", command="echo out; echo err >&2; cd /"),
        call_tool("Glob", "g", pattern="*.txt"),
        call_tool("Grep", "s", pattern="three"),
        call_tool("TodoWrite", "t", todos=[TODO]),
        spawn_agent("child", "x"),
    ]
    expected: list[dict[str, Any]] = [
        {"type": "create", "filePath": path, "content": "one\ntwo\n", "success": True, "added": 2},
        {"type": "update", "filePath": path, "content": "one\ntwo\nthree\n", "success": True},
        {"filePath": path, "oldString": "two", "newString": "2", "replaceAll": False, "success": True},
        {
            "type": "text",
            "file": {"filePath": path, "content": "2", "numLines": 1, "startLine": 2, "totalLines": 3},
        },
        {"stdout": "out\nerr", "stderr": "", "interrupted": False, "isImage": False, "exit_code": 0},
        {"filenames": [path], "numFiles": 1, "truncated": False},
        {"mode": "files_with_matches", "filenames": [path], "numFiles": 1},
        {"newTodos": [TODO]},
        {
            "status": "completed",
            "prompt": "child",
            "content": [{"type": "text", "text": "It is deep."}],
            "totalToolUseCount": 0,
        },
    ]
    responses = await list_responses(project, hook_log, *calls)
    found = [select(response, each) for response, each in zip(responses, expected, strict=True)]
    assert found == expected


@pytest.mark.spec("CMP-048")
async def test_a_background_command_is_named_by_its_task(project: Path, hook_log: HookInputLog) -> None:
    (response,) = await list_responses(
        project, hook_log, call_tool("Bash", command="true", run_in_background=True)
    )
    assert response["backgroundTaskId"] == response["shell_id"]
