"""Sources of MCP server configuration, their precedence, and permission rules for MCP tools."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from mcp_helpers import (
    join_notes,
    list_result_texts,
    list_tool_results,
    make_rogue_config,
    map_statuses,
    open_session,
)

import shoal
from agent_scripts import call_tool, read_events, run_all_turns, script_agents, spawn_agent
from server_scripts import join_conversation, run_provider
from server_scripts import open_process_session as fleet_opened
from shoal.app.definitions.agent_trust import find_project_escalations
from shoal.app.settings.mcp_files import load_mcp_servers
from shoal.app.settings.settings import load_settings
from shoal.app.settings.settings_trust import forget_project_trust, save_project_trust_decision
from shoal.core.conversation.messages import ToolResultBlock, extract_tool_result_text
from shoal.core.errors import SettingsError
from shoal.core.extensions.mcp_servers import (
    McpHttpConfig,
    McpStdioConfig,
    format_mcp_tool_name,
    format_mcp_tool_prefix,
)
from shoal.wire.mcp_codec import (
    UnsetMcpConfigVariableError,
    expand_mcp_server_variables,
    parse_mcp_server,
    parse_mcp_servers,
)
from team_scripts import spawn_member

pytestmark = pytest.mark.needs("mcp")
WAIT = json.dumps({"shoal": {"mcp_wait": 60}})


def write_config(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.fixture
def home() -> Path:
    return Path(os.environ["SHOAL_HOME"])


def test_variables_are_expanded_from_the_environment() -> None:
    given = {
        "command": "${BIN:-python}",
        "args": ["--key=${KEY}", "${EMPTY:-none}", "$PLAIN", 5],
        "env": {"A": "${KEY}-${KEY}", "ON": True},
        "cwd": "${DIR:-sub}",
    }
    server = expand_mcp_server_variables(parse_mcp_server("s", given, "here"), {"KEY": "k", "EMPTY": ""})
    assert server.connection == McpStdioConfig(
        command="python",
        args=("--key=k", "none", "$PLAIN", "5"),
        env={"A": "k-k", "ON": "true"},
        cwd="sub",
    )
    web = parse_mcp_server(
        "w", {"url": "https://x/${P}", "headers": {"Authorization": "Bearer ${T}"}}, "here"
    )
    with pytest.raises(UnsetMcpConfigVariableError, match="P, which is not set"):
        expand_mcp_server_variables(web, {"T": "t"})
    assert expand_mcp_server_variables(web, {"T": "t", "P": "p"}).connection == McpHttpConfig(
        url="https://x/p", headers={"Authorization": "Bearer t"}
    )


def test_each_broken_entry_is_reported_and_the_others_stay() -> None:
    read = parse_mcp_servers(
        {
            "good": {"command": "x"},
            "text": "x",
            "args": {"command": "x", "args": "y"},
            "env": {"command": "x", "env": {"A": [1]}},
            "url": {"type": "http", "url": "ftp://x"},
            "": {"command": "x"},
        },
        lambda name: f"file:{name}",
    )
    assert [server.name for server in read.servers] == ["good"]
    assert [name for name, _ in read.problems] == ["text", "args", "env", "url", ""]
    assert all(why.startswith("file:") for _, why in read.problems)


@pytest.mark.spec("MCP-01")
def test_tool_names_are_valid_for_every_provider_and_unique_per_server() -> None:
    assert format_mcp_tool_name("my server!", "do.it now") == "mcp__my_server__do_it_now"
    assert format_mcp_tool_prefix("a__b") == "mcp__a_b__"
    long = [format_mcp_tool_name("s" * 80, "t" * n) for n in (80, 81)]
    assert long[0] != long[1]
    assert all(len(name) <= 64 for name in long)


@pytest.mark.spec("MCP-01", "HOM-03")
async def test_servers_of_a_project_start_only_when_trusted_and_unchanged(tmp_path: Path, home: Path) -> None:
    write_config(home / "settings.json", {"mcpServers": {"mine": make_rogue_config("plain", "home")}})
    file = tmp_path / ".mcp.json"
    write_config(
        file,
        {"mcpServers": {"theirs": make_rogue_config("plain", "project")}, "permissions": {"allow": ["Bash"]}},
    )
    lead = [call_tool("mcp__mine__echo"), call_tool("mcp__theirs__echo"), "done"]

    async def run() -> tuple[list[str], dict[str, str], list[str]]:
        async with shoal.open(
            cwd=tmp_path, model=script_agents(lead=lead), skip_permissions=True, settings=WAIT
        ) as session:
            await run_all_turns(session)
            return list_result_texts(session), map_statuses(session), session.notes

    said, standing, told = await run()
    assert said[0] == "home"
    assert "There is no tool" in said[1]
    assert standing == {"mine": "connected", "theirs": "disabled"}
    assert any("mcpServers.theirs" in note and "shoal trust" in note for note in told)
    settings = load_settings(cwd=tmp_path)
    assert settings.permissions.entries.allow == (), "a server file is no settings file"
    save_project_trust_decision(settings, tmp_path, trusted=True)
    assert await run() == (["home", "project"], {"theirs": "connected", "mine": "connected"}, [])
    write_config(file, {"mcpServers": {"theirs": make_rogue_config("plain", "other")}})
    assert (await run())[1] == {"mine": "connected", "theirs": "disabled"}


def test_server_sources_have_a_precedence_and_servers_can_be_disabled(tmp_path: Path, home: Path) -> None:
    def names(**more: Any) -> dict[str, str]:
        found = load_mcp_servers(load_settings(cwd=tmp_path), cwd=tmp_path, **more)
        assert not found.problems
        return {server.name: server.connection.command for server in found.servers}  # type: ignore[union-attr]

    write_config(home / "settings.json", {"mcpServers": {"a": {"command": "home"}, "b": {"command": "home"}}})
    write_config(tmp_path / ".mcp.json", {"mcpServers": {"b": {"command": "dir"}, "c": {"command": "dir"}}})
    save_project_trust_decision(load_settings(cwd=tmp_path), tmp_path, trusted=True)
    assert names() == {"b": "dir", "c": "dir", "a": "home"}
    write_config(tmp_path / "extra.json", {"mcpServers": {"a": {"command": "flag"}}})
    assert names(given=["extra.json"])["a"] == "flag"
    assert names(given=["extra.json"], strict=True) == {"a": "flag"}
    assert names(given=['{"mcpServers": {}}'], strict=True) == {}
    off = {"mcpServers": {"a": {"command": "home"}}, "disabledMcpjsonServers": ["c", "a"]}
    write_config(home / "settings.json", off)
    assert names() == {"b": "dir", "a": "home"}
    for wrong in ("nowhere.json", "{", '{"mcpServers": []}'):
        with pytest.raises(SettingsError):
            names(given=[wrong])


@pytest.mark.parametrize("content", ["{", "[]", '{"mcpServers": 5}', "\udcff"])
async def test_a_broken_project_file_is_reported_and_other_servers_work(tmp_path: Path, content: str) -> None:
    (tmp_path / ".mcp.json").write_text(content, errors="surrogateescape")
    async with shoal.open(cwd=tmp_path, model=script_agents(lead=["done"])) as session:
        assert await run_all_turns(session) == "done"
        assert any(".mcp.json" in note for note in session.notes)


@pytest.mark.spec("MCP-01", "USR-13")
async def test_agents_refer_to_servers_or_define_them_and_project_servers_need_trust(
    tmp_path: Path, home: Path
) -> None:
    own = json.dumps(make_rogue_config("plain", "own"))
    file = tmp_path / ".claude" / "agents" / "sly.md"
    write_config(
        file,
        f"---\nname: sly\ndescription: d\nmcpServers:\n  - evil: {own}\n---\nWork.",
    )
    write_config(
        home / "agents" / "fair.md",
        f"---\nname: fair\ndescription: d\ntools: Read\nmcpServers:\n  - shared\n  - mine: {own}\n---\nWork.",
    )
    write_config(
        tmp_path / ".claude" / "agents" / "lost.md",
        "---\nname: lost\ndescription: d\nmcpServers: [elsewhere]\n---\nWork.",
    )
    child = [call_tool("mcp__shared__echo", "s"), call_tool("mcp__mine__echo", "m"), join_result_texts]
    kinds = ("sly", "fair", "lost")
    lead = [*(spawn_agent("child", f"c-{kind}", subagent_type=kind) for kind in kinds), "done"]
    servers = {"shared": make_rogue_config("plain", "common"), "other": make_rogue_config("plain")}

    async def run() -> list[str]:
        async with open_session(tmp_path, script_agents(lead=lead, child=child), servers) as session:
            await run_all_turns(session)
            return list_result_texts(session)

    sly, fair, lost = await run()
    assert "only a trusted project can start programs" in sly
    assert "shoal trust" in sly
    assert "common / own" in fair
    assert "mcp__other__echo" not in fair
    assert "elsewhere (it is not configured" in lost
    settings = load_settings(cwd=tmp_path)
    (widening,) = find_project_escalations(settings, tmp_path)
    assert (widening.key, widening.location) == ("mcpServers.evil", f"{file}:4")
    save_project_trust_decision(settings, tmp_path, trusted=True, escalations=[widening])
    assert "was not started" not in (await run())[0]
    file.write_text(file.read_text().replace("own", "other"))
    assert "only a trusted project can start programs" in (await run())[0]
    forget_project_trust(settings.home, tmp_path)
    assert [each.trust for each in find_project_escalations(settings, tmp_path)] == ["unasked"]


def join_result_texts(request: Any) -> str:
    blocks = [block for message in request.messages for block in message.content]
    return " / ".join(
        extract_tool_result_text(block) for block in blocks if isinstance(block, ToolResultBlock)
    )


@pytest.mark.parametrize(
    ("allowed", "denied", "runs"),
    [
        (["mcp__a"], [], [True, True, False]),
        (["mcp__a__echo"], [], [True, False, False]),
        (["mcp__a__*", "mcp__b"], ["mcp__a__pid"], [True, None, True]),
        (["mcp__a", "mcp__b__echo"], ["mcp__b"], [True, True, None]),
    ],
)
async def test_permission_rules_apply_to_a_server_and_to_one_of_its_tools(
    tmp_path: Path, allowed: list[str], denied: list[str], runs: list[bool | None]
) -> None:
    lead = [call_tool("mcp__a__echo"), call_tool("mcp__a__pid"), call_tool("mcp__b__echo"), "done"]
    options = {"allowed_tools": allowed, "disallowed_tools": denied, "skip_permissions": False}
    servers = {"a": make_rogue_config("plain", "ran"), "b": make_rogue_config("plain", "ran")}
    async with open_session(tmp_path, script_agents(lead=lead), servers, **options) as session:
        await run_all_turns(session)
        said, results = list_result_texts(session), list_tool_results(session)
    for text, result, expected in zip(said, results, runs, strict=True):
        assert result.is_error is not (expected is True)
        assert ("There is no tool named" in text) is (expected is None)


async def test_an_agent_gets_only_the_server_tools_it_names(tmp_path: Path) -> None:
    options = {"available_tools": ["Read", "mcp__a__echo", "mcp__b"]}
    servers = {
        "a": make_rogue_config("plain"),
        "b": make_rogue_config("plain"),
        "c": make_rogue_config("plain"),
    }
    async with open_session(tmp_path, script_agents(lead=["done"]), servers, **options) as session:
        await run_all_turns(session)
        assert list(session.agent.tools) == ["Read", "mcp__a__echo", "mcp__b__echo", "mcp__b__pid"]


@pytest.mark.slow
@pytest.mark.spec("MCP-01", "USR-13")
async def test_a_process_member_has_the_servers_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"mcpServers": {"a": make_rogue_config("plain", "the sea")}}
    async with (
        run_provider(
            monkeypatch,
            lead=[call_tool("TeamCreate", team_name="crew"), spawn_member("ann"), "Wait.", "Good."],
            ann=[call_tool("mcp__a__echo", text="calls"), "Done."],
        ) as server,
        fleet_opened(tmp_path, mcp_config=[config]) as session,
        asyncio.timeout(60),
    ):
        await run_all_turns(session, "Go.")
        assert "is not available" not in join_notes(read_events(session))
    assert any("the sea calls" in join_conversation(each.body) for each in server.requests)


async def test_a_key_that_a_file_gives_to_a_server_is_in_no_record(tmp_path: Path, home: Path) -> None:
    key = "q8Zk2mW9xP4rT7vB"
    server = {**make_rogue_config("plain", key), "env": {"SEA_API_KEY": key}}
    write_config(home / "settings.json", {"mcpServers": {"a": server}, "shoal": {"mcp_wait": 60}})
    model = script_agents(lead=[call_tool("mcp__a__echo"), "done"])
    async with shoal.open(cwd=tmp_path, model=model, skip_permissions=True) as session:
        await run_all_turns(session)
        assert list_result_texts(session) == [key]
    (journal,) = home.glob("shoal/runs/*/journal.jsonl")
    assert key not in journal.read_text()
