"""MCP servers that a plug-in brings, under its name and from its directory."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from mcp_kit import HERE, WAITS, answers, statuses

import shoal
from cast import all_turns, cast, use

pytestmark = pytest.mark.needs("mcp")


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
    model = cast(lead=[use("mcp__coast_harbour__where", "w1"), "end"])
    async with shoal.open(
        cwd=project,
        model=model,
        plugin_dirs=[root],
        skip_permissions=True,
        settings=json.dumps({"shoal": WAITS}),
    ) as session:
        await all_turns(session)
        assert statuses(session) == {"coast:harbour": "connected"}
    assert answers(session) == [f"{os.path.realpath(project)} {os.path.realpath(root)}"]
