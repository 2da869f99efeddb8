"""MCP servers that the definition of the lead's agent describes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp_helpers import list_result_texts, make_rogue_config, map_statuses

import shoal
from agent_scripts import call_tool, run_all_turns, script_agents, spawn_agent
from shoal.app.settings import settings_files
from shoal.core.conversation.model_requests import ModelRequest
from team_scripts import get_home

pytestmark = [pytest.mark.spec("CMP-007", "CMP-094"), pytest.mark.needs("mcp")]


def write_agent(directory: Path, *fields: str) -> Path:
    path = directory / "agents" / "sailor.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    server = json.dumps({"own": make_rogue_config("plain")})
    lines = ["name: sailor", "description: d", f"mcpServers: [{server}]", *fields]
    path.write_text("\n".join(["---", *lines, "---", "You sail.", ""]))
    return path


async def start_lead(
    project: Path, settings: dict[str, Any] | None = None, **options: Any
) -> tuple[dict[str, str], list[str]]:
    given = {"agent": "sailor", "settings": json.dumps(settings or {}), **options}
    async with shoal.open(cwd=project, model=script_agents(lead=["done"]), **given) as session:
        await run_all_turns(session)
        return map_statuses(session), [note for note in session.notes if "sailor" in note]


@pytest.mark.parametrize("by_setting", [True, False])
@pytest.mark.parametrize("tools", ["", "tools: [Read, Agent]"])
async def test_the_lead_and_its_agents_use_the_servers_of_its_definition(
    tmp_path: Path, by_setting: bool, tools: str
) -> None:
    write_agent(get_home(), tools)
    if by_setting:
        (get_home() / "settings.json").write_text(json.dumps({"agent": "sailor"}))
    seen: list[list[str]] = []

    def call_own_server(request: ModelRequest) -> Any:
        seen.append([each.name for each in request.tools])
        return call_tool("mcp__own__echo", text="ahoy")

    model = script_agents(
        lead=[call_own_server, spawn_agent("child"), "done"], child=[call_own_server, "done"]
    )
    agent = None if by_setting else "sailor"
    async with shoal.open(cwd=tmp_path, model=model, agent=agent, skip_permissions=True) as session:
        await run_all_turns(session)
        assert map_statuses(session) == {"own": "connected"}
        assert not [note for note in session.notes if "sailor" in note]
    assert all("mcp__own__echo" in names for names in seen)
    assert ("Write" in seen[0]) is not bool(tools)
    assert len(seen) == 2
    assert "ahoy" in list_result_texts(session)[0]


async def test_the_server_of_the_definition_replaces_a_configured_one(tmp_path: Path) -> None:
    write_agent(get_home())
    servers = {"own": make_rogue_config("fails"), "other": make_rogue_config("plain")}
    statuses, notes = await start_lead(tmp_path, {"mcpServers": servers, "shoal": {"mcp_wait": 20}})
    assert (statuses, notes) == ({"own": "connected", "other": "connected"}, [])


@pytest.mark.spec("CMP-088")
@pytest.mark.parametrize(
    ("settings", "options", "reason"),
    [
        ({"deniedMcpServers": [{"serverName": "own"}]}, {}, "allowedMcpServers or deniedMcpServers"),
        ({"allowedMcpServers": []}, {}, "allowedMcpServers or deniedMcpServers"),
        ({"disabledMcpServers": ["own"]}, {}, "disabledMcpServers in the settings disables it"),
        ({}, {"strict_mcp_config": True}, "strict_mcp_config= allows only the servers in mcp_config="),
    ],
)
async def test_a_server_that_settings_or_flags_forbid_is_not_started(
    tmp_path: Path, settings: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
    path = write_agent(get_home())
    statuses, notes = await start_lead(tmp_path, settings, **options)
    assert statuses == {}
    (note,) = notes
    assert note.startswith(f"The agent sailor ({path}) runs without one of its servers: ")
    assert reason in note


@pytest.mark.spec("CMP-004", "CMP-005")
@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"managed-mcp.json": {"mcpServers": {}}}, "only the servers in"),
        (
            {"managed-settings.json": {"strictPluginOnlyCustomization": ["mcp"]}},
            "strictPluginOnlyCustomization",
        ),
        (
            {
                "managed-settings.json": {
                    "allowManagedMcpServersOnly": True,
                    "allowedMcpServers": [{"serverName": "x"}],
                }
            },
            "allowedMcpServers or deniedMcpServers",
        ),
    ],
)
async def test_a_server_that_managed_files_forbid_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, Any], reason: str
) -> None:
    managed = tmp_path / "etc"
    managed.mkdir()
    for name, content in files.items():
        (managed / name).write_text(json.dumps(content))
    monkeypatch.setattr(settings_files, "MANAGED_FILES", (managed / "managed-settings.json",))
    write_agent(get_home())
    project = tmp_path / "project"
    project.mkdir()
    statuses, notes = await start_lead(project)
    assert (statuses, len(notes), reason in notes[0]) == ({}, 1, True)


async def test_a_server_of_an_untrusted_project_is_not_started(tmp_path: Path) -> None:
    write_agent(tmp_path / ".claude")
    statuses, notes = await start_lead(tmp_path)
    assert (statuses, "shoal trust" in notes[0]) == ({}, True)


@pytest.mark.parametrize("by_flag", [True, False])
async def test_a_strict_flag_also_binds_other_agents_but_not_those_that_a_flag_describes(
    tmp_path: Path, by_flag: bool
) -> None:
    write_agent(get_home())
    described = {
        "sailor": {"description": "d", "prompt": "p", "mcpServers": [{"own": make_rogue_config("plain")}]}
    }
    options: dict[str, Any] = {"agents": described} if by_flag else {}
    child = [call_tool("mcp__own__echo", text="ahoy"), "done"]
    model = script_agents(lead=[spawn_agent("child", subagent_type="sailor"), "done"], child=child)
    async with shoal.open(
        cwd=tmp_path, model=model, strict_mcp_config=True, skip_permissions=True, **options
    ) as session:
        await run_all_turns(session)
    refusal = "--strict-mcp-config allows only the servers in --mcp-config"
    assert (refusal in list_result_texts(session)[0]) is not by_flag
