"""MCP servers that a plug-in brings, under its name and from its directory."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from mcp_helpers import HERE, WAIT_SETTINGS, list_result_texts, map_statuses

import shoal
from agent_scripts import call_tool, run_all_turns, script_agents

pytestmark = pytest.mark.needs("mcp")


@pytest.mark.slow
@pytest.mark.spec("MCP-01")
async def test_the_server_of_a_plugin_starts_from_its_directory(tmp_path: Path) -> None:
    root, project = tmp_path / "the plugin", tmp_path / "project"
    (root / ".claude-plugin").mkdir(parents=True)
    project.mkdir()
    (root / ".claude-plugin/plugin.json").write_text('{"name": "coast"}')
    shutil.copy(HERE / "harbour_server.py", root / "server.py")
    server = {"command": sys.executable, "args": ["${CLAUDE_PLUGIN_ROOT}/server.py"]}
    server |= {"env": {"HARBOUR_WORD": "${CLAUDE_PLUGIN_ROOT}"}}
    (root / ".mcp.json").write_text(json.dumps({"mcpServers": {"harbour": server}}))
    model = script_agents(lead=[call_tool("mcp__plugin_coast_harbour__where", "w1"), "end"])
    async with shoal.open(
        cwd=project,
        model=model,
        plugin_dirs=[root],
        skip_permissions=True,
        settings=json.dumps({"shoal": WAIT_SETTINGS}),
    ) as session:
        await run_all_turns(session)
        assert map_statuses(session) == {"plugin:coast:harbour": "connected"}
    assert list_result_texts(session) == [f"{os.path.realpath(project)} {os.path.realpath(root)}"]
