"""The public SDK of the original program drives Shoal and reads its messages about agents."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from reply_scripts import make_agent_call, make_bash_call, script_replies
from shoal_process import MODEL, ShoalProgram

from shoal.testing import messages_server

pytestmark = pytest.mark.needs("claude_agent_sdk")


@pytest.fixture
def cli(tmp_path: Path) -> Path:
    script = tmp_path / "shoal"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m shoal "$@"\n')
    script.chmod(0o700)
    return script


async def test_the_sdk_reads_every_line_of_a_run_with_a_background_agent(
    shoal: ShoalProgram, project: Path, cli: Path
) -> None:
    import claude_agent_sdk as sdk

    steps = script_replies(
        {"match": "begin", "tools": [make_agent_call("one", background=True) | {"id": "call_one"}]},
        {"match": "job one", "tools": [make_bash_call("echo some work")]},
        {"match": "some work", "text": "one reports"},
        {"match": "<task-notification>", "text": "I was woken."},
        {"match": "works in the background", "text": "Started."},
    )
    async with messages_server(steps) as server:
        shoal.use_server(server)
        options = sdk.ClaudeAgentOptions(
            cli_path=cli,
            cwd=project,
            env=dict(os.environ) | shoal.env,
            model=MODEL,
            permission_mode="bypassPermissions",
        )
        messages = [message async for message in sdk.query(prompt="begin", options=options)]
    started, *_ = (item for item in messages if isinstance(item, sdk.TaskStartedMessage))
    assert (started.description, started.tool_use_id) == ("do one", "call_one")
    progress, *_ = (item for item in messages if isinstance(item, sdk.TaskProgressMessage))
    assert progress.task_id == started.task_id
    (ended,) = (item for item in messages if isinstance(item, sdk.TaskNotificationMessage))
    assert (ended.task_id, ended.status) == (started.task_id, "completed")
    theirs = [item for item in messages if isinstance(item, sdk.AssistantMessage) and item.parent_tool_use_id]
    assert {item.parent_tool_use_id for item in theirs} == {"call_one"}
    results = [item.result for item in messages if isinstance(item, sdk.ResultMessage)]
    assert results[-1] == "I was woken."
