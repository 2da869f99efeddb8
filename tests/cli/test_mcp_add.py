"""`shoal mcp` with the words and orders of arguments that Claude Code accepts."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from shoal_process import ShoalProgram

from git_repository import run_git
from shoal.app.settings.settings_writer import edit_claude_json
from shoal.core.errors import LockUnavailable
from shoal.stores.files.locks.foreign_lock import hold_foreign_lock
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
    stored = json.loads((home / ".claude.json").read_text())
    assert (home / ".claude.json").stat().st_mode & 0o077 == 0
    assert not [path for path in project.rglob("*") if path.is_file()]
    assert stored["projects"][str(project)]["mcpServers"] == {
        "near": {"command": "npx", "args": ["-y", "near-server"], "env": {"A": "1", "B": "2"}}
    }
    options = ("-H", "X-Key: abc", "-s", "user")
    web = await shoal("mcp", "add", "-t", "http", "web", "https://127.0.0.1:9/mcp", *options)
    assert web.code == 0, web.err
    own = json.loads((home / ".claude.json").read_text())["mcpServers"]
    assert own["web"]["headers"] == {"X-Key": "abc"}
    assert not (home / "settings.json").exists()
    shared = await shoal("mcp", "add-json", "shared", '{"command": "there"}', "-s", "project")
    assert "shoal trust" not in shared.text
    assert "shared" in json.loads((project / ".mcp.json").read_text())["mcpServers"]
    rows = {row["name"]: row["enabled"] for row in json.loads((await shoal("mcp", "ls", "--json")).out)}
    assert rows == {"near": True, "web": True, "shared": True}
    unknown = await shoal("mcp", "add", "--nonsense", "x", "y")
    assert unknown.code == 2
    assert "--nonsense" in unknown.err


@pytest.mark.spec("CMP-083")
@pytest.mark.parametrize("scope", ["local", "user", "project"])
async def test_an_existing_server_is_not_replaced(shoal: ShoalProgram, home: Path, scope: str) -> None:
    first = await shoal("mcp", "add", "-s", scope, "-e", "TOKEN=abc", "near", "--", "old")
    assert first.code == 0, first.err
    again = (
        ("add", "near", "-s", scope, "--", "new"),
        ("add-json", "near", '{"command": "new"}', "-s", scope),
    )
    for words in again:
        refused = await shoal("mcp", *words)
        assert refused.code == 1
        assert "There is already an MCP server near in " in refused.err
        assert f"shoal mcp remove near --scope {scope}" in refused.err
    assert json.loads((await shoal("mcp", "get", "near", "--json")).out)["command"] == "old"
    assert (await shoal("mcp", "remove", "near", "--scope", scope)).code == 0
    assert (await shoal("mcp", *again[0])).code == 0
    other = "user" if scope == "local" else "local"
    assert (await shoal("mcp", "add", "near", "-s", other, "--", "other")).code == 0


@pytest.mark.spec("CMP-083")
@pytest.mark.parametrize("name", ["bad name", "", "a.b", "ä", "a\nb", "mcp:x", "x/y"])
async def test_a_name_with_other_characters_is_refused(
    shoal: ShoalProgram, home: Path, project: Path, name: str
) -> None:
    for words in (("add", name, "--", "there"), ("add-json", name, '{"command": "there"}')):
        refused = await shoal("mcp", *words)
        assert (refused.code, "only letters, digits, hyphens and underscores" in refused.err) == (1, True)
    assert not (home / ".claude.json").exists()


@pytest.mark.spec("CMP-083")
async def test_a_server_in_the_settings_of_the_same_scope_is_not_hidden(
    shoal: ShoalProgram, home: Path, project: Path
) -> None:
    local = project / ".claude/settings.local.json"
    local.parent.mkdir(exist_ok=True)
    servers = {"near": {"command": "old", "env": {"TOKEN": "abc"}}, "kept": {"command": "kept"}}
    local.write_text(json.dumps({"mcpServers": servers}))
    assert (await shoal("trust")).code == 0
    (home / ".claude.json").write_text(
        json.dumps(before := {"numStartups": 3, "projects": {"/x": {"history": []}}})
    )
    refused = await shoal("mcp", "add", "near", "--", "new")
    assert (refused.code, f"an MCP server near in {local}" in refused.err) == (1, True)
    assert (await shoal("mcp", "remove", "near", "--scope", "local")).code == 0
    ran = await shoal("mcp", "add", "near", "--", "new")
    assert f"Added the MCP server near to {home / '.claude.json'}." in ran.text
    assert json.loads(local.read_text()) == {"mcpServers": {"kept": {"command": "kept"}}}
    stored = json.loads((home / ".claude.json").read_text())
    assert stored["projects"].pop(str(project))["mcpServers"]["near"]["command"] == "new"
    assert stored == before
    rows = {row["name"]: row["enabled"] for row in json.loads((await shoal("mcp", "ls", "--json")).out)}
    assert rows == {"near": True, "kept": True}
    (home / ".claude.json").write_text('{"projects": []}')
    refused = await shoal("mcp", "add", "near", "--", "new")
    assert (refused.code, "projects is not an object" in refused.err) == (1, True)


@pytest.mark.spec("CMP-083", "CMP-084")
async def test_a_server_for_all_projects_is_where_claude_code_finds_it(
    shoal: ShoalProgram, home: Path
) -> None:
    own, path = home / "settings.json", home / ".claude.json"
    own.write_text(json.dumps({"model": "x"}))
    before = {"numStartups": 3, "projects": {"/x": {"history": ["é"]}}}
    path.write_text(json.dumps(before, indent=4, ensure_ascii=False))
    path.chmod(0o640)
    given = {"type": "http", "url": "https://127.0.0.1:9/mcp", "oauth": {"authServerMetadataUrl": "x"}}
    ran = await shoal("mcp", "add-json", "web", json.dumps(given), "-s", "user")
    assert f"Added the MCP server web to {path}." in ran.text
    assert json.loads(path.read_text()) == {**before, "mcpServers": {"web": given}}
    assert '\n    "numStartups": 3' in path.read_text()
    assert (path.stat().st_mode & 0o777, json.loads(own.read_text())) == (0o640, {"model": "x"})
    assert [each.name for each in home.iterdir() if each.name.startswith(".claude")] == [".claude.json"]
    shown = json.loads((await shoal("mcp", "get", "web", "--json")).out)
    assert (shown["url"], shown["origin"].startswith(str(path))) == (given["url"], True)
    assert f"Removed the MCP server web from {path}." in (await shoal("mcp", "remove", "web")).text
    assert json.loads(path.read_text()) == before


@pytest.mark.spec("CMP-083")
@pytest.mark.parametrize("content", ['{"mcpServers": {', "[]", '{"mcpServers": []}'])
async def test_a_damaged_state_file_is_refused_and_left_as_it_is(
    shoal: ShoalProgram, home: Path, content: str
) -> None:
    path = home / ".claude.json"
    path.write_text(content)
    ran = await shoal("mcp", "add", "-s", "user", "web", "--", "there")
    assert (ran.code, str(path) in ran.err, "by hand" in ran.err) == (1, True, True)
    assert path.read_text() == content
    if content.endswith("{"):
        for words in (("ls",), ("remove", "web"), ("reset-project-choices",)):
            assert f"Cannot read {path}" in (await shoal("mcp", *words)).err


@pytest.mark.spec("CMP-083")
async def test_a_linked_state_file_is_not_changed(shoal: ShoalProgram, home: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.json"
    target.write_text("{}")
    (home / ".claude.json").symlink_to(target)
    ran = await shoal("mcp", "add", "-s", "user", "web", "--", "there")
    assert (ran.code, "is a symbolic link" in ran.err, str(target) in ran.err) == (1, True, True)
    assert (target.read_text(), (home / ".claude.json").is_symlink()) == ("{}", True)


@pytest.mark.spec("CMP-083")
def test_a_change_of_claude_code_during_an_edit_is_kept(tmp_path: Path) -> None:
    path = tmp_path / ".claude.json"
    path.write_text('{"numStartups": 1}')
    changes = iter(['{"numStartups": 2}'])

    def add_server(raw: dict[str, object]) -> None:
        raw["mcpServers"] = {"web": {"command": "there"}}
        if (content := next(changes, None)) is not None:
            path.write_text(content)

    edit_claude_json(path, add_server)
    assert json.loads(path.read_text()) == {"numStartups": 2, "mcpServers": {"web": {"command": "there"}}}
    lock = path.with_name(".claude.json.lock")
    lock.mkdir()
    before = path.read_text()
    with (
        pytest.raises(LockUnavailable, match="another program holds the lock"),
        hold_foreign_lock(path, timeout=0),
    ):
        raise AssertionError
    os.utime(lock, (0, 0))
    edit_claude_json(path, lambda raw: raw.pop("numStartups"))
    assert (path.read_text() != before, lock.exists()) == (True, False)

    def steal_lock(_: dict[str, object]) -> None:
        lock.rmdir()
        (path.with_name("other")).mkdir()
        lock.mkdir()

    with pytest.raises(LockUnavailable, match="took over the lock"):
        edit_claude_json(path, steal_lock)
    assert lock.exists()


async def test_servers_added_at_the_same_time_are_all_kept(shoal: ShoalProgram, home: Path) -> None:
    names = [f"s{number}" for number in range(4)]
    ran = await asyncio.gather(*(shoal("mcp", "add", "-s", "user", name, "--", "there") for name in names))
    assert [each.code for each in ran] == [0] * 4
    assert sorted(json.loads((home / ".claude.json").read_text())["mcpServers"]) == names


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


@pytest.mark.spec("CMP-087")
@pytest.mark.parametrize(
    ("is_trusted", "state", "is_approved"),
    [
        (True, "ignored", True),
        (False, "ignored", False),
        (True, "tracked", False),
        (True, "tracked through a link", False),
    ],
)
async def test_the_local_file_approves_servers_if_it_is_the_users_own(
    shoal: ShoalProgram, home: Path, project: Path, is_trusted: bool, state: str, is_approved: bool
) -> None:
    (project / ".mcp.json").write_text('{"mcpServers": {"shared": {"command": "sh"}}}')
    directory = project / ("shared" if "link" in state else ".claude")
    directory.mkdir()
    (directory / "settings.local.json").write_text('{"enabledMcpjsonServers": ["shared"]}')
    if "link" in state:
        (project / ".claude").symlink_to("shared")
    run_git(project, "init", "-q")
    if state != "ignored":
        run_git(project, "add", "-A")
    trust = {"projects": {str(project): {"hasTrustDialogAccepted": is_trusted}}}
    (home / ".claude.json").write_text(json.dumps(trust))
    assert json.loads((await shoal("mcp", "get", "shared", "--json")).out)["enabled"] is is_approved
    items = json.loads((await shoal("doctor", "--claude", "--json")).out)["items"]
    uses = {each["item"]: each["use"] for each in items}
    assert (uses["enabledMcpjsonServers"] == "used") is is_approved
    assert (uses["mcpServers.shared"] == "used") is is_approved


@pytest.mark.spec("CMP-083")
async def test_a_shared_server_that_the_user_adds_is_trusted_but_not_the_servers_of_others(
    shoal: ShoalProgram, project: Path
) -> None:
    async def list_enabled() -> dict[str, bool]:
        listed = json.loads((await shoal("mcp", "ls", "--json")).out)
        return {row["name"]: row["enabled"] for row in listed}

    for name in ("one", "two"):
        added = await shoal("mcp", "add", name, "-s", "project", "-e", "A=1", "--", "prog", name)
        assert "shoal trust" not in added.text, added.text
    assert await list_enabled() == {"one": True, "two": True}
    path = project / ".mcp.json"
    content = json.loads(path.read_text())
    content["mcpServers"]["of-others"] = {"command": "evil"}
    path.write_text(json.dumps(content))
    assert await list_enabled() == {"one": False, "two": False, "of-others": False}
    added = await shoal("mcp", "add", "three", "-s", "project", "--", "prog")
    assert "shoal trust" in added.text
    assert await list_enabled() == {"one": False, "two": False, "of-others": False, "three": False}
