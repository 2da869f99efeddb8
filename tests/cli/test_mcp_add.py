"""`shoal mcp` with the words and orders of arguments that Claude Code accepts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from shoal_process import ShoalProgram

from shoal.surfaces.cli.mcp_commands import order_mcp_add_arguments

ROGUE = Path(__file__).parents[1] / "mcp_client" / "rogue_server.py"


@pytest.mark.spec("CMP-083")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("-s user docs -- npx -y docs", "-s user -- docs npx -y docs"),
        ("docs -s user -- npx -y docs", "-s user -- docs npx -y docs"),
        ("docs npx -y docs -s x", "-- docs npx -y docs -s x"),
        ("-e A=1 B=2 docs -- cmd", "-e A=1 -e B=2 -- docs cmd"),
        ("--transport http docs https://x.y/mcp -s user", "--transport http -s user -- docs https://x.y/mcp"),
        ("docs --env A=1 -- cmd --env B=2", "--env A=1 -- docs cmd --env B=2"),
    ],
)
def test_options_are_found_before_and_behind_the_name(given: str, expected: str) -> None:
    assert order_mcp_add_arguments(given.split()) == expected.split()


@pytest.mark.spec("CMP-083")
async def test_a_server_is_added_to_the_file_of_its_scope(
    shoal: ShoalProgram, home: Path, project: Path
) -> None:
    local = await shoal("mcp", "add", "near", "-e", "A=1", "B=2", "--", "npx", "-y", "near-server")
    assert local.code == 0, local.err
    stored = json.loads((project / ".claude" / "settings.local.json").read_text())
    assert stored["mcpServers"] == {
        "near": {"command": "npx", "args": ["-y", "near-server"], "env": {"A": "1", "B": "2"}}
    }
    options = ("-H", "X-Key: abc", "-s", "user")
    web = await shoal("mcp", "add", "-t", "http", "web", "https://127.0.0.1:9/mcp", *options)
    assert web.code == 0, web.err
    own = json.loads((home / "settings.json").read_text())["mcpServers"]
    assert own["web"]["headers"] == {"X-Key": "abc"}
    shared = await shoal("mcp", "add-json", "shared", '{"command": "there"}', "-s", "project")
    assert "shoal trust" in shared.text
    assert "shared" in json.loads((project / ".mcp.json").read_text())["mcpServers"]
    rows = {row["name"]: row["enabled"] for row in json.loads((await shoal("mcp", "ls", "--json")).out)}
    assert rows == {"near": True, "web": True, "shared": False}
    unknown = await shoal("mcp", "add", "--nonsense", "x", "y")
    assert unknown.code == 2
    assert "--nonsense" in unknown.err


@pytest.mark.spec("CMP-084", "CMP-085")
@pytest.mark.needs("mcp")
async def test_the_commands_of_claude_code_work(shoal: ShoalProgram, home: Path, project: Path) -> None:
    servers = {
        "plain": {"command": sys.executable, "args": [str(ROGUE), "plain"]},
        "socket": {"type": "ws", "url": "ws://127.0.0.1:9"},
    }
    (home / "settings.json").write_text(json.dumps({"mcpServers": servers}))
    listed = await shoal("mcp", "list")
    assert f"plain: {sys.executable} {ROGUE} plain - connected" in listed.text
    assert "type is 'ws'" in listed.err
    assert "command" in (await shoal("mcp", "get", "plain")).text
    assert (await shoal("mcp", "add", "-s", "user", "far", "http://127.0.0.1:9/mcp")).code == 0
    assert "You are not logged in to far" in (await shoal("mcp", "logout", "far")).text
    (project / ".mcp.json").write_text('{"mcpServers": {"shared": {"command": "there"}}}')
    assert (await shoal("trust")).code == 0
    assert json.loads((await shoal("mcp", "get", "shared", "--json")).out)["enabled"]
    assert (await shoal("mcp", "reset-project-choices")).code == 0
    assert not json.loads((await shoal("mcp", "get", "shared", "--json")).out)["enabled"]
    assert "Removed" in (await shoal("mcp", "remove", "plain")).text


@pytest.mark.spec("CMP-087")
@pytest.mark.parametrize(
    "approval", [{"enableAllProjectMcpServers": True}, {"enabledMcpjsonServers": ["shared"]}]
)
async def test_own_settings_approve_servers_of_the_project_and_shared_ones_do_not(
    shoal: ShoalProgram, home: Path, project: Path, approval: dict[str, object]
) -> None:
    (project / ".mcp.json").write_text('{"mcpServers": {"shared": {"command": "there"}}}')
    (project / ".claude").mkdir(exist_ok=True)
    (project / ".claude" / "settings.json").write_text(json.dumps(approval))
    assert not json.loads((await shoal("mcp", "get", "shared", "--json")).out)["enabled"]
    (home / "settings.json").write_text(json.dumps(approval))
    assert json.loads((await shoal("mcp", "get", "shared", "--json")).out)["enabled"]
