"""`shoal mcp` changes files that people and Claude Code wrote: comments, trust and `.claude.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal_process import ShoalProgram

from git_repository import run_git

LOCAL_TEXT = """{
  // my own servers
  "mcpServers": {
    "old": {"command": "old"}, // remove some day
    "kept": {"command": "kept"},
  },
  "permissions": {"allow": ["Bash(make:*)"]}, /* builds */
}
"""


async def list_enabled(shoal: ShoalProgram) -> dict[str, bool]:
    rows = json.loads((await shoal("mcp", "ls", "--json")).out)
    return {row["name"]: row["enabled"] for row in rows}


def write_claude_json(home: Path, content: dict[str, Any]) -> Path:
    path = home / ".claude.json"
    path.write_text(json.dumps(content, indent=2))
    return path


@pytest.mark.spec("CMP-083", "CMP-084")
async def test_servers_are_added_and_removed_in_files_with_comments_and_trust_stays(
    shoal: ShoalProgram, project: Path
) -> None:
    path = project / ".claude/settings.local.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(LOCAL_TEXT)
    assert (await shoal("trust")).code == 0
    added = await shoal("mcp", "add", "new", "-e", "A=1", "--", "new", "-x", "y")
    assert (added.code, "not valid JSON" in added.err) == (0, False)
    removed = await shoal("mcp", "remove", "old")
    assert (removed.code, removed.err) == (0, "")
    text = path.read_text()
    assert all(each in text for each in ("// my own servers", "// remove some day", "/* builds */"))
    assert '"old"' not in text
    assert await list_enabled(shoal) == {"kept": True, "new": True}
    assert "not trusted" not in (await shoal("trust", "--show")).text


@pytest.mark.spec("CMP-084")
async def test_a_removal_does_not_trust_what_was_not_trusted(shoal: ShoalProgram, project: Path) -> None:
    path = project / ".claude/settings.local.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(LOCAL_TEXT)
    assert (await shoal("mcp", "remove", "old")).code == 0
    assert await list_enabled(shoal) == {"kept": False}


@pytest.mark.spec("CMP-084")
async def test_a_broken_file_is_refused_before_any_file_changes(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    (project / ".mcp.json").write_text('{"mcpServers": {"a": {"command": "x"}}')
    own = home / "settings.json"
    own.write_text(before := '{"mcpServers": {"a": {"command": "x"}}}')
    ran = await shoal("mcp", "remove", "a")
    assert (ran.code, own.read_text()) == (1, before)
    assert f"{project / '.mcp.json'}:1: not valid JSON" in ran.err


@pytest.mark.spec("CMP-012", "CMP-084")
async def test_servers_in_claude_json_are_removed_by_scope(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    server = {"type": "stdio", "command": "there"}
    entry = {"mcpServers": {"near": server, "both": server}, "history": [{"display": "x"}]}
    content: dict[str, Any] = {"numStartups": 3, "mcpServers": {"far": server, "both": server}}
    content["projects"] = {"/x": {"mcpServers": {"near": server}}, str(project): entry}
    path = write_claude_json(home, content)
    assert str(path) in (await shoal("mcp", "remove", "near")).text
    assert str(path) in (await shoal("mcp", "remove", "far")).text
    twice = await shoal("mcp", "remove", "both")
    assert (twice.code, "--scope local or --scope user" in twice.err) == (1, True)
    assert (await shoal("mcp", "remove", "-s", "user", "both")).code == 0
    assert await list_enabled(shoal) == {"both": True}
    assert (await shoal("mcp", "remove", "both")).code == 0
    del content["mcpServers"], entry["mcpServers"]
    assert json.loads(path.read_text()) == content
    assert "no MCP server" in (await shoal("mcp", "remove", "near")).err


@pytest.mark.spec("CMP-084")
async def test_choices_on_project_servers_are_forgotten_wherever_they_are(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    servers = {name: {"command": "x"} for name in ("yes", "no", "off")}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    choices = {"enabledMcpjsonServers": ["yes", "off"], "disabledMcpjsonServers": ["no"]}
    path = write_claude_json(home, {"projects": {str(project): {**choices, "history": []}}})
    local = project / ".claude/settings.local.json"
    local.parent.mkdir(exist_ok=True)
    local.write_text('{"disabledMcpjsonServers": ["off"], // not now\n "language": "French"}')
    assert await list_enabled(shoal) == {"yes": True, "off": False, "no": False}
    assert "asks again" in (await shoal("mcp", "reset-project-choices")).text
    assert json.loads(path.read_text()) == {"projects": {str(project): {"history": []}}}
    assert local.read_text().split() == ["{", "//", "not", "now", '"language":', '"French"}']
    assert await list_enabled(shoal) == {"yes": False, "off": False, "no": False}
    assert (await shoal("trust")).code == 0
    assert all((await list_enabled(shoal)).values())
    (home / "settings.json").write_text('{\n "enableAllProjectMcpServers": true\n}')
    remaining = await shoal("mcp", "reset-project-choices")
    assert f"{home / 'settings.json'}:2" in remaining.text
    assert "asks again" not in remaining.text


@pytest.mark.spec("CMP-012", "CMP-087")
async def test_a_subdirectory_has_the_servers_of_its_repository(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    run_git(project, "init", "-q")
    inner = project / "packages/api"
    inner.mkdir(parents=True)
    server = {"command": "there"}
    entries: dict[str, Any] = {str(project): {"mcpServers": {"local": server, "twice": server}}}
    entries[str(inner)] = {"mcpServers": {"twice": {"command": "nearer"}}}
    entries[str(project / "packages-of-others")] = {"mcpServers": {"foreign": server}}
    write_claude_json(home, {"projects": entries})
    (project / ".mcp.json").write_text('{"mcpServers": {"shared": {"command": "there"}}}')
    (project.parent / ".mcp.json").write_text('{"mcpServers": {"outside": {"command": "there"}}}')
    inside = ShoalProgram(inner)
    listed = {"local": True, "twice": True, "shared": False}
    assert await list_enabled(inside) == listed
    # One answer counts in the whole repository, and is revoked everywhere too.
    assert (await shoal("trust")).code == 0
    assert await list_enabled(inside) == {**listed, "shared": True}
    assert (await inside("trust", "--revoke")).code == 0
    assert not (await list_enabled(shoal))["shared"]
    worktree = project / ".claude/worktrees/feat"
    worktree.mkdir(parents=True)
    (worktree / ".git").write_text(f"gitdir: {project}/.git/worktrees/feat\n")
    assert (await list_enabled(ShoalProgram(worktree)))["local"]
    assert (await inside("mcp", "remove", "twice")).code == 0
    assert await list_enabled(inside) == {"local": True, "shared": False}
