"""Plug-ins that Claude Code installed: used if settings enable them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import call_tool, run_all_turns, script_agents
from session_helpers import open_session
from shoal.app.definitions.plugin_set import PluginSet, load_plugins
from shoal.app.settings.settings import load_settings
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.scripted_model import ScriptedModel
from team_scripts import get_home


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    (path / ".claude").mkdir(parents=True)
    return path


def install_plugin(
    name: str, *, version: str = "1.0.0", marketplace: str = "tools", listed: bool = True
) -> Path:
    plugins = get_home() / "plugins"
    root = plugins / "cache" / marketplace / name / version
    (root / ".claude-plugin").mkdir(parents=True)
    (root / ".claude-plugin" / "plugin.json").write_text(json.dumps({"name": name, "version": version}))
    (root / "skills" / "tidy").mkdir(parents=True)
    (root / "skills" / "tidy" / "SKILL.md").write_text(
        f"---\nname: tidy\ndescription: Tidies with {name}\n---\nRun ${{CLAUDE_PLUGIN_ROOT}}/run.sh\n"
    )
    if listed:
        path = plugins / "installed_plugins.json"
        raw = json.loads(path.read_text()) if path.exists() else {"version": 2, "plugins": {}}
        raw["plugins"][f"{name}@{marketplace}"] = [
            {"scope": "user", "installPath": str(root), "version": version}
        ]
        path.write_text(json.dumps(raw))
    return root


def write_enabled(path: Path, **enabled: Any) -> None:
    entries = {f"{name}@tools": value for name, value in enabled.items()}
    path.write_text(json.dumps({"enabledPlugins": entries}))


def load(project: Path) -> PluginSet:
    return load_plugins(load_settings(cwd=project, managed=()), project)


@pytest.mark.spec("CMP-089")
async def test_an_installed_and_enabled_plugin_is_used_and_others_are_not(project: Path) -> None:
    root = install_plugin("broom")
    install_plugin("mop")
    install_plugin("unlisted", listed=False)
    write_enabled(get_home() / "settings.json", broom=True, mop=False, unlisted=True, absent=True)
    plugins = load(project)
    assert {plugin.name: plugin.root for plugin in plugins.all} == {"broom": root}
    for name in ("absent", "unlisted"):
        sentence = f"settings.json:1: the plug-in {name}@tools is enabled but not installed;"
        assert any(sentence in note for note in plugins.startup_notes)
    async with open_session(project, script_agents(lead=["done"])) as session:
        await run_all_turns(session)
        names = [skill.name for skill in session.runtime.knowledge.skills.list_skills_for_model()]
    assert [name for name in names if name.endswith(":tidy")] == ["broom:tidy"]


def list_names(project: Path, *records: dict[str, Any]) -> tuple[list[str], str]:
    """Return the plug-ins that are used, and the notes, with these entries for one plug-in."""
    path = get_home() / "plugins/installed_plugins.json"
    path.write_text(json.dumps({"version": 2, "plugins": {"broom@tools": records}}))
    plugins = load(project)
    return [plugin.name for plugin in plugins.all], " ".join(plugins.startup_notes)


@pytest.mark.spec("CMP-089")
def test_a_plugin_is_used_only_where_it_is_installed(project: Path) -> None:
    root = {"installPath": str(install_plugin("broom")), "version": "1.0.0"}
    write_enabled(get_home() / "settings.json", broom=True)
    here, there = str(project), str(project.parent)
    (project / ".git").mkdir()
    (project / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (project / ".git/objects").mkdir()
    (project / ".git/refs").mkdir()
    inner = project / "packages/api"
    inner.mkdir(parents=True)
    used = (["broom"], "")
    assert list_names(project, root | {"scope": "user"}) == used
    assert list_names(project, root) == used
    assert list_names(project, root | {"scope": "project", "projectPath": here}) == used
    assert list_names(inner, root | {"scope": "local", "projectPath": here}) == used
    for entry in ({"scope": "project", "projectPath": there}, {"scope": "project"}, {"scope": "local"},
                  {"scope": "other"}, {"scope": "user", "projectPath": there}):  # fmt: skip
        names, note = list_names(project, root | entry)
        assert (names, "broom@tools is enabled but not installed for this project" in note) == ([], True)
    names, note = list_names(project, {"scope": "user", "installPath": str(project / "gone")})
    assert (names, f"its directory {project / 'gone'} does not exist" in note) == ([], True)


@pytest.mark.spec("CMP-089")
@pytest.mark.parametrize("text", ["{", "[]", '{"version": 2}', '{"plugins": []}', "\ufeff{"])
def test_a_broken_list_of_installed_plugins_uses_none_and_is_reported(project: Path, text: str) -> None:
    install_plugin("broom")
    write_enabled(get_home() / "settings.json", broom=True)
    path = get_home() / "plugins/installed_plugins.json"
    path.write_text(text)
    plugins = load(project)
    assert plugins.all == ()
    (note,) = plugins.startup_notes
    assert f"{path}:1: the list of installed plug-ins" in note
    assert "no installed plug-in is used" in note


@pytest.mark.spec("CMP-089")
async def test_a_project_disables_a_plugin_at_once_and_enables_one_only_after_trust(project: Path) -> None:
    install_plugin("broom")
    install_plugin("mop")
    write_enabled(get_home() / "settings.json", broom=True)
    write_enabled(project / ".claude" / "settings.json", broom=False, mop=True)
    plugins = load(project)
    assert [plugin.name for plugin in plugins.all] == []
    assert [plugin.name for plugin in plugins.untrusted] == ["mop"]


@pytest.mark.spec("CMP-089")
def test_a_plugin_without_a_manifest_has_its_installed_name(project: Path) -> None:
    root = install_plugin("broom")
    (root / ".claude-plugin" / "plugin.json").unlink()
    write_enabled(get_home() / "settings.json", broom=True)
    assert [plugin.name for plugin in load(project).all] == ["broom"]


@pytest.mark.spec("CMP-091", "CMP-108")
async def test_skills_and_styles_of_a_plugin_are_used(project: Path) -> None:
    root = install_plugin("broom")
    skill, style = root / "skills/sweep/SKILL.md", root / "output-styles/loud.md"
    for path in (skill, style):
        path.parent.mkdir(parents=True, exist_ok=True)
    skill.write_text("---\nname: sweep\ndescription: d\n---\nKeep ${CLAUDE_PLUGIN_DATA}/x\n")
    style.write_text("---\nname: Loud\n---\nSHOUT\n")
    write_enabled(get_home() / "settings.json", broom=True)
    requests: list[str] = []

    def reply(request: ModelRequest) -> Any:
        requests.append(f"{request.system} {request.messages[-1]}")
        return "done" if len(requests) > 1 else call_tool("Skill", "s", skill="broom:sweep")

    settings = json.dumps({"outputStyle": "broom:loud"})
    async with shoal.open(cwd=project, model=ScriptedModel(reply), settings=settings) as session:
        await run_all_turns(session, "go")
    assert "SHOUT" in requests[0]
    assert f"Keep {get_home() / 'plugins/data/broom-tools'}/x" in requests[1]


@pytest.mark.spec("CMP-091")
def test_servers_and_hooks_of_a_plugin_know_its_data_directory(project: Path) -> None:
    root = install_plugin("broom")
    (root / ".mcp.json").write_text(
        json.dumps({"mcpServers": {"dust": {"command": "x", "args": ["${CLAUDE_PLUGIN_DATA}/db"]}}})
    )
    hook = {"type": "command", "command": "touch $CLAUDE_PLUGIN_DATA/x"}
    (root / "hooks").mkdir()
    (root / "hooks" / "hooks.json").write_text(json.dumps({"hooks": {"Stop": [{"hooks": [hook]}]}}))
    write_enabled(get_home() / "settings.json", broom=True)
    plugins = load(project)
    (servers,) = plugins.build_mcp_documents()
    data = get_home() / "plugins" / "data" / "broom-tools"
    assert servers.raw["mcpServers"]["plugin:broom:dust"]["args"] == [f"{data}/db"]
    assert data.is_dir()
    (hooks,) = plugins.build_hook_documents()
    assert f"CLAUDE_PLUGIN_DATA={data}" in hooks.raw["hooks"]["Stop"][0]["hooks"][0]["command"]
