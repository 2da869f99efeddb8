"""Plugins: their sources, their namespaced components, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import call_tool, read_events, run_all_turns, script_agents, spawn_agent
from shoal.app.definitions.plugin_set import PluginSet, load_plugins
from shoal.app.settings import settings_trust
from shoal.app.settings.settings import Settings, load_settings
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import SettingsError
from shoal.core.events import AgentStarted
from team_scripts import get_home


def write_plugin(root: Path, name: str = "harbour", /, **manifest: Any) -> Path:
    (root / ".claude-plugin").mkdir(parents=True)
    written = json.dumps({"name": name, "version": "1.2", "description": "Ships.", **manifest}, indent=1)
    (root / ".claude-plugin/plugin.json").write_text(written)
    (root / "agents").mkdir()
    (root / "agents/pilot.md").write_text(
        "---\nname: pilot\ndescription: Brings ships in.\ntools: Read\neffort: high\n---\n"
        "You pilot. Charts are in ${CLAUDE_PLUGIN_ROOT}/charts.\n"
    )
    return root


def load_project_settings(project: Path, given: str | None = None) -> Settings:
    return load_settings(cwd=project, given=given, managed=())


def load_project_plugins(project: Path, *flags: Path, given: str | None = None) -> PluginSet:
    return load_plugins(load_project_settings(project, given), project, flags)


def list_plugin_names(plugins: PluginSet) -> list[str]:
    return [plugin.name for plugin in plugins.all]


@pytest.mark.spec("DEF-11")
async def test_a_plugin_agent_runs_under_the_plugins_namespace(tmp_path: Path) -> None:
    root = write_plugin(tmp_path / "elsewhere/harbour")
    project = tmp_path / "project"
    project.mkdir()
    system: list[str] = []
    lists: list[str] = []

    def lead(request: ModelRequest) -> Any:
        lists.extend(tool.description for tool in request.tools if tool.name == "Agent")
        return spawn_agent("You", "c1", subagent_type="harbour:pilot")

    def pilot(request: ModelRequest) -> str:
        system.append(request.system)
        return "moored"

    model = script_agents(lead=[lead, "end"], You=[pilot])
    async with shoal.open(cwd=project, model=model, plugin_dirs=[root]) as session:
        await run_all_turns(session)
    (started,) = [event for event in read_events(session) if isinstance(event, AgentStarted)]
    assert (started.kind, started.tools) == ("harbour:pilot", ("Read",))
    assert f"Charts are in {os.path.realpath(root)}/charts." in system[0]
    assert "harbour:pilot: Brings ships in." in lists[0]


def test_plugins_come_from_flags_settings_and_the_home(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    write_plugin(get_home() / "plugins/first", "first")
    (get_home() / "plugins/marketplaces/foreign").mkdir(parents=True)
    write_plugin(get_home() / "mine/second", "second")
    (get_home() / "settings.json").write_text(json.dumps({"shoal": {"plugins": ["mine/second"]}}))
    third = write_plugin(tmp_path / "third", "third")
    plugins = load_project_plugins(project, third)
    assert [(each.name, each.offered) for each in plugins.all] == [
        ("third", "flag"),
        ("second", "settings"),
        ("first", "home"),
    ]
    assert plugins.all[1].origin == f"{get_home() / 'settings.json'}:1"
    assert plugins.startup_notes == ()


def test_an_unreadable_plugin_directory_is_reported(tmp_path: Path) -> None:
    (get_home() / "plugins").write_text("not a directory")
    (note,) = load_project_plugins(tmp_path).startup_notes
    assert note == f"{get_home() / 'plugins'}: cannot be read: Not a directory"


def test_of_two_plugins_with_one_name_the_first_is_used_and_the_other_reported(tmp_path: Path) -> None:
    write_plugin(get_home() / "plugins/one")
    write_plugin(get_home() / "plugins/two")
    plugins = load_project_plugins(tmp_path)
    assert [each.root.name for each in plugins.all] == ["one"]
    assert (
        "two/.claude-plugin/plugin.json:1: another plug-in has the name harbour" in plugins.startup_notes[0]
    )


def test_plugin_hooks_and_servers_have_the_plugin_directory_filled_in(tmp_path: Path) -> None:
    root = write_plugin(tmp_path / "it's here")
    (root / "hooks").mkdir()
    hook = {"type": "command", "command": 'echo "${CLAUDE_PLUGIN_ROOT}"'}
    (root / "hooks/hooks.json").write_text(
        json.dumps({"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [hook]}]}}, indent=1)
    )
    (root / ".mcp.json").write_text(
        json.dumps({"mcpServers": {"tides": {"command": "${CLAUDE_PLUGIN_ROOT}/serve", "args": ["-v"]}}})
    )
    for place in ("skills/mooring", "commands", "more"):
        (root / place).mkdir(parents=True)
    plugins = load_project_plugins(tmp_path, root)
    (hooks,) = plugins.build_hook_documents()
    command = hooks.raw["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{os.path.realpath(root)}\n"
    assert hooks.locate_key(("hooks", "PreToolUse")).endswith("hooks.json:3")
    (servers,) = plugins.build_mcp_documents()
    assert servers.raw["mcpServers"] == {
        "plugin:harbour:tides": {
            "command": f"{os.path.realpath(root)}/serve",
            "args": ["-v"],
            "env": {
                "CLAUDE_PLUGIN_ROOT": os.path.realpath(root),
                "CLAUDE_PLUGIN_DATA": str(get_home() / "plugins" / "data" / "harbour"),
            },
        }
    }
    assert plugins.list_skill_dirs() == (("harbour", Path(os.path.realpath(root)) / "skills"),)
    assert plugins.list_command_dirs() == (("harbour", Path(os.path.realpath(root)) / "commands"),)


async def test_plugin_hooks_run(tmp_path: Path) -> None:
    root, project = write_plugin(tmp_path / "it's here"), tmp_path / "project"
    project.mkdir()
    (root / "hooks").mkdir()
    (root / "refuse.sh").write_text("echo 'the harbour is closed' >&2\nexit 2\n")
    hook = {"type": "command", "command": 'sh "${CLAUDE_PLUGIN_ROOT}/refuse.sh"'}
    hooks = {"PreToolUse": [{"matcher": "Write", "hooks": [hook]}]}
    (root / "hooks/hooks.json").write_text(json.dumps({"hooks": hooks}))
    results: list[str] = []

    def end(request: ModelRequest) -> str:
        results.extend(str(block) for block in request.messages[-1].content)
        return "end"

    model = script_agents(lead=[call_tool("Write", "w1", file_path="x.txt", content="x"), end])
    async with shoal.open(cwd=project, model=model, plugin_dirs=[root], skip_permissions=True) as session:
        await run_all_turns(session)
    assert "the harbour is closed" in results[0]
    assert not (project / "x.txt").exists()


@pytest.mark.spec("SKL-01")
async def test_plugin_skills_run_under_the_plugins_namespace(tmp_path: Path) -> None:
    root, project = write_plugin(tmp_path / "harbour"), tmp_path / "project"
    project.mkdir()
    (root / "skills/mooring").mkdir(parents=True)
    (root / "commands").mkdir()
    text = "---\nname: mooring\ndescription: How to moor.\n---\nThrow the line first.\n"
    (root / "skills/mooring/SKILL.md").write_text(text)
    (root / "commands/berth.md").write_text("Find a berth for $ARGUMENTS.\n")
    results: list[str] = []

    def end(request: ModelRequest) -> str:
        results.append(str(request.messages))
        return "end"

    model = script_agents(lead=[call_tool("Skill", "s1", skill="harbour:mooring"), end])
    async with shoal.open(cwd=project, model=model, plugin_dirs=[root], skip_permissions=True) as session:
        await run_all_turns(session)
        assert "harbour:berth" in [each.name for each in session.runtime.knowledge.list_slash_commands()]
    assert "Throw the line first." in results[0]


def test_paths_in_the_manifest_are_added_to_the_default_paths(tmp_path: Path) -> None:
    root = write_plugin(
        tmp_path / "plugin", skills="./more", hooks={"Stop": []}, mcpServers="./conf/servers.json"
    )
    for place in ("skills", "more", "conf"):
        (root / place).mkdir()
    (root / "conf/servers.json").write_text('{"tides": {"url": "http://127.0.0.1:1/mcp"}}')
    plugins = load_project_plugins(tmp_path, root)
    assert [place.name for _, place in plugins.list_skill_dirs()] == ["skills", "more"]
    assert plugins.build_hook_documents()[0].raw == {"hooks": {"Stop": []}}
    assert list(plugins.build_mcp_documents()[0].raw["mcpServers"]) == ["plugin:harbour:tides"]


@pytest.mark.parametrize("how", ["manifest", "absolute", "link", "linked manifest", "linked directory"])
def test_a_plugin_path_outside_its_directory_is_refused_and_reported(tmp_path: Path, how: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "spy.md").write_text("---\nname: spy\ndescription: x\n---\nx\n")
    given: dict[str, Any] = {
        "manifest": {"agents": "../outside"},
        "absolute": {"mcpServers": str(outside / "servers.json")},
    }.get(how, {})
    root = write_plugin(tmp_path / "plugin", **given)
    if how == "link":
        (root / "agents/spy.md").symlink_to(outside / "spy.md")
    if how == "linked directory":
        (root / "skills").symlink_to(outside)
    if how == "linked manifest":
        manifest = root / ".claude-plugin/plugin.json"
        manifest.rename(outside / "plugin.json")
        manifest.symlink_to(outside / "plugin.json")
    with pytest.raises(SettingsError, match="outside the plug-in") as refused:
        load_project_plugins(tmp_path, root)
    assert str(root) in str(refused.value)
    (get_home() / "plugins").mkdir(parents=True, exist_ok=True)
    root.rename(get_home() / "plugins/harbour")
    plugins = load_project_plugins(tmp_path)
    assert plugins.all == ()
    assert "outside the plug-in" in plugins.startup_notes[0]


def test_a_symlink_within_the_plugin_is_allowed(tmp_path: Path) -> None:
    root = write_plugin(tmp_path / "plugin")
    (root / "agents/mate.md").symlink_to("pilot.md")
    assert list_plugin_names(load_project_plugins(tmp_path, root)) == ["harbour"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"name": "a b"}', "plugin.json:1: name: 'a b' is not a valid"),
        ('{\n "version": 3,\n "name": "x"\n}', "plugin.json:2: version: expected a string"),
        ('{"name": "x",\n}', "plugin.json:2: not valid JSON"),
        ("", "plugin.json:1: name: it is missing"),
        ("[]", "plugin.json:1: expected a JSON object"),
        ('{"description": "d"}', "plugin.json:1: name: it is missing"),
    ],
)
def test_a_bad_manifest_is_reported_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    root = write_plugin(tmp_path / "plugin")
    (root / ".claude-plugin/plugin.json").write_text(text)
    with pytest.raises(SettingsError) as refused:
        load_project_plugins(tmp_path, root)
    assert problem in str(refused.value)


def test_a_bad_plugin_component_does_not_disable_the_others(tmp_path: Path) -> None:
    root = write_plugin(tmp_path / "plugin")
    (root / ".mcp.json").write_text("{\n  nonsense")
    plugins = load_project_plugins(tmp_path, root)
    assert plugins.list_agent_dirs()
    assert plugins.build_mcp_documents() == ()
    assert ".mcp.json:2: not valid JSON" in str(plugins.faults[0])


def test_a_project_plugin_needs_trust_again_after_a_change(tmp_path: Path) -> None:
    project = tmp_path / "project"
    root = write_plugin(project / "plugins/harbour")
    (project / ".claude").mkdir()
    (project / ".claude/settings.json").write_text(json.dumps({"shoal": {"plugins": ["plugins/harbour"]}}))
    plugins = load_project_plugins(project)
    assert (list_plugin_names(plugins), [each.name for each in plugins.untrusted]) == ([], ["harbour"])
    assert "not trusted" in plugins.startup_notes[0]
    settings = load_project_settings(project)
    settings_trust.save_project_trust_decision(
        settings, project, trusted=True, escalations=(*settings.findings.escalations, *plugins.escalations)
    )
    assert list_plugin_names(load_project_plugins(project)) == ["harbour"]
    (root / "script.sh").write_text("echo other")
    assert list_plugin_names(load_project_plugins(project)) == []
    plugins = load_project_plugins(project)
    settings_trust.save_project_trust_decision(
        load_project_settings(project), project, trusted=True, escalations=plugins.escalations
    )
    assert list_plugin_names(load_project_plugins(project)) == ["harbour"]
    settings_trust.forget_project_trust(get_home(), project)
    assert list_plugin_names(load_project_plugins(project)) == []


def test_user_settings_do_not_make_a_project_plugin_trusted(tmp_path: Path) -> None:
    project = tmp_path / "project"
    root = write_plugin(project / "plugins/harbour")
    given = json.dumps({"shoal": {"plugins": [str(root)]}})
    assert list_plugin_names(load_project_plugins(project, given=given)) == []
    assert list_plugin_names(load_project_plugins(project, root)) == ["harbour"]
    assert list_plugin_names(load_project_plugins(tmp_path / "elsewhere", given=given)) == ["harbour"]
