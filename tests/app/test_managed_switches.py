"""Switches of managed files that limit where rules, hooks, skills, agents and servers come from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import call_tool, run_all_turns
from shoal.app.settings import settings_files
from shoal.app.settings.settings import load_settings
from shoal.core.conversation.messages import ToolResultBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import SettingsError
from shoal.models.scripted_model import ScriptedModel

AGENT = "---\nname: {name}\ndescription: about {name}\n---\nWork.\n"
COMMAND = "python3 -c 'print(1)'"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def home() -> Path:
    return Path(os.environ["SHOAL_HOME"])


@pytest.fixture
def managed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "etc/managed-settings.json"
    monkeypatch.setattr(settings_files, "MANAGED_FILES", (path,))
    return path


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1))


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def run_script(project: Path, *script: Any, **options: Any) -> str:
    """Run a turn and return the result of its last tool call."""
    results = [""]
    lines = iter([*script, "done"])

    def choose_reply(request: ModelRequest) -> Any:
        content = request.messages[-1].content
        results.extend(str(block.content) for block in content if isinstance(block, ToolResultBlock))
        return next(lines)

    async with shoal.open(cwd=project, model=ScriptedModel(choose_reply), **options) as session:
        await run_all_turns(session, "go")
    return results[-1]


@pytest.mark.spec("CMP-005")
@pytest.mark.parametrize("is_limited", [True, False])
@pytest.mark.parametrize("source", ["user", "flag", "skill"])
async def test_with_managed_rules_only_no_other_rule_allows_a_call(
    project: Path, home: Path, managed_file: Path, source: str, is_limited: bool
) -> None:
    write_json(managed_file, {"allowManagedPermissionRulesOnly": is_limited})
    script, options = [call_tool("Bash", "b", command=COMMAND)], {}
    if source == "user":
        write_json(home / "settings.json", {"permissions": {"allow": ["Bash"]}})
    elif source == "flag":
        options = {"allowed_tools": ["Bash"]}
    else:
        front_matter = "name: helper\ndescription: d\nallowed-tools: Bash"
        write_text(home / "skills/helper/SKILL.md", f"---\n{front_matter}\n---\nHelp.\n")
        script.insert(0, call_tool("Skill", "s", skill="helper"))
    result = await run_script(project, *script, **options)
    assert ("was not run" in result) is is_limited


@pytest.mark.spec("CMP-005")
async def test_with_managed_rules_only_managed_rules_allow_and_other_rules_forbid(
    project: Path, home: Path, managed_file: Path
) -> None:
    rules = {"allowManagedPermissionRulesOnly": True, "permissions": {"allow": ["Bash(python3:*)"]}}
    write_json(managed_file, rules)
    call = call_tool("Bash", "b", command=COMMAND)
    assert "was not run" not in await run_script(project, call)
    write_json(home / "settings.json", {"permissions": {"deny": ["Bash(python3:*)"]}})
    assert "was not run" in await run_script(project, call)


@pytest.mark.spec("CMP-005")
@pytest.mark.parametrize(
    ("flag", "options"),
    [
        ("plugin_dirs", {"plugin_dirs": ["plug"]}),
        ("agents", {"agents": {"a": {"description": "d", "prompt": "p"}}}),
        ("mcp_config", {"mcp_config": [{"mcpServers": {"s": {"command": "true"}}}]}),
    ],
)
async def test_options_that_load_extensions_are_refused(
    project: Path, managed_file: Path, flag: str, options: dict[str, Any]
) -> None:
    write_json(project / "plug/.claude-plugin/plugin.json", {"name": "plug"})
    if "plugin_dirs" in options:
        options = {"plugin_dirs": [project / "plug"]}
    write_json(managed_file, {"disableSideloadFlags": False})
    await run_script(project, **options)
    write_json(managed_file, {"disableSideloadFlags": True})
    with pytest.raises(SettingsError, match=rf"{flag}= cannot be used: .*managed-settings\.json:2 sets"):
        await run_script(project, **options)
    await run_script(project)


@pytest.mark.spec("CMP-005")
@pytest.mark.parametrize("where", ["option", "settings"])
async def test_channels_are_refused_if_a_managed_file_turns_them_off(
    project: Path, home: Path, managed_file: Path, where: str
) -> None:
    options = {"channels": ["server:chat"]} if where == "option" else {}
    write_json(home / "settings.json", {} if options else {"shoal": {"channels": ["server:chat"]}})
    write_json(managed_file, {"channelsEnabled": True})
    await run_script(project, **options)
    write_json(managed_file, {"channelsEnabled": False})
    with pytest.raises(SettingsError, match=r"managed-settings\.json:2 sets channelsEnabled to false"):
        await run_script(project, **options)
    write_json(home / "settings.json", {})
    await run_script(project)


@pytest.mark.spec("CMP-005")
@pytest.mark.parametrize(
    ("value", "locked"),
    [
        (True, {"skills", "agents", "hooks", "mcp"}),
        (["skills", "mcp"], {"skills", "mcp"}),
        (["agents", "hooks"], {"agents", "hooks"}),
        (False, set()),
    ],
)
async def test_locked_parts_come_only_from_plugins(
    project: Path, home: Path, managed_file: Path, tmp_path: Path, value: Any, locked: set[str]
) -> None:
    for root, name in ((home, "mine"), (tmp_path / "plug", "theirs")):
        action = {"type": "command", "command": f"touch '{tmp_path}/hooked-{name}'"}
        hooks = {"hooks": {"SessionStart": [{"hooks": [action]}]}}
        write_json(root / ("settings.json" if name == "mine" else "hooks/hooks.json"), hooks)
        write_text(root / f"agents/{name}.md", AGENT.format(name=f"agent-{name}"))
        skill = f"skill-{name}"
        write_text(root / f"skills/{skill}/SKILL.md", AGENT.format(name=skill))
    write_json(home / ".claude.json", {"mcpServers": {"server-mine": {"command": "true"}}})
    write_json(tmp_path / "plug/.claude-plugin/plugin.json", {"name": "plug"})
    write_json(tmp_path / "plug/.mcp.json", {"mcpServers": {"server-theirs": {"command": "true"}}})
    write_json(managed_file, {"strictPluginOnlyCustomization": value})
    seen: list[str] = []

    def choose_reply(request: ModelRequest) -> str:
        seen.append(str(request))
        return "done"

    model = ScriptedModel(choose_reply)
    async with shoal.open(cwd=project, model=model, plugin_dirs=[tmp_path / "plug"]) as session:
        servers = {server.name for server in session.list_mcp_servers()}
        await run_all_turns(session, "go")
    found = {
        "skills": "about skill-mine" in seen[0],
        "agents": "about agent-mine" in seen[0],
        "hooks": (tmp_path / "hooked-mine").exists(),
        "mcp": "server-mine" in servers,
    }
    assert {part for part, is_there in found.items() if not is_there} == locked
    assert "about plug:skill-theirs" in seen[0] or "about skill-theirs" in seen[0]
    assert "about agent-theirs" in seen[0]
    assert (tmp_path / "hooked-theirs").exists()
    assert any("server-theirs" in name for name in servers)


@pytest.mark.spec("CMP-005")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("allowManagedPermissionRulesOnly", "yes"),
        ("disableSideloadFlags", 1),
        ("allowManagedHooksOnly", "true"),
        ("strictPluginOnlyCustomization", ["skills", "themes"]),
        ("strictPluginOnlyCustomization", "skills"),
    ],
)
def test_a_switch_that_is_not_understood_ends_the_start(
    project: Path, home: Path, managed_file: Path, key: str, value: Any
) -> None:
    write_json(home / "settings.json", {key: value})
    unused = load_settings(cwd=project).findings.unused_items
    assert [item.name for item in unused] == [key]
    write_json(managed_file, {key: value})
    with pytest.raises(SettingsError, match=rf"managed-settings\.json:2: {key}: expected true"):
        load_settings(cwd=project)
