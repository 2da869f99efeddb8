"""Plug-ins: where they come from, what they bring under their name, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import agent, all_turns, cast, recorded, use
from shoal.app.definitions.plugins import Plugins, plugins_for
from shoal.app.settings import trust
from shoal.app.settings.settings import Settings, load_settings
from shoal.core.errors import SettingsError
from shoal.core.events import AgentStarted
from shoal.core.requests import Request


def home() -> Path:
    return Path(os.environ["SHOAL_HOME"])


def made(root: Path, name: str = "harbour", /, **manifest: Any) -> Path:
    (root / ".claude-plugin").mkdir(parents=True)
    written = json.dumps({"name": name, "version": "1.2", "description": "Ships.", **manifest}, indent=1)
    (root / ".claude-plugin/plugin.json").write_text(written)
    (root / "agents").mkdir()
    (root / "agents/pilot.md").write_text(
        "---\nname: pilot\ndescription: Brings ships in.\ntools: Read\neffort: high\n---\n"
        "You pilot. Charts are in ${CLAUDE_PLUGIN_ROOT}/charts.\n"
    )
    return root


def settings_of(project: Path, given: str | None = None) -> Settings:
    return load_settings(cwd=project, given=given, managed=())


def found(project: Path, *flags: Path, given: str | None = None) -> Plugins:
    return plugins_for(settings_of(project, given), project, flags)


def names(plugins: Plugins) -> list[str]:
    return [plugin.name for plugin in plugins.all]


@pytest.mark.spec("DEF-11")
async def test_an_agent_of_a_plugin_works_under_its_name(tmp_path: Path) -> None:
    root = made(tmp_path / "elsewhere/harbour")
    project = tmp_path / "project"
    project.mkdir()
    system: list[str] = []
    lists: list[str] = []

    def lead(request: Request) -> Any:
        lists.extend(tool.description for tool in request.tools if tool.name == "Agent")
        return agent("You", "c1", subagent_type="harbour:pilot")

    def pilot(request: Request) -> str:
        system.append(request.system)
        return "moored"

    model = cast(lead=[lead, "end"], You=[pilot])
    async with shoal.open(cwd=project, model=model, plugin_dirs=[root]) as session:
        await all_turns(session)
    (started,) = [event for event in recorded(session) if isinstance(event, AgentStarted)]
    assert (started.kind, started.tools) == ("harbour:pilot", ("Read",))
    assert f"Charts are in {os.path.realpath(root)}/charts." in system[0]
    assert "harbour:pilot: Brings ships in." in lists[0]


def test_they_come_from_flags_settings_and_the_home(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    made(home() / "plugins/first", "first")
    (home() / "plugins/marketplaces/foreign").mkdir(parents=True)
    made(home() / "mine/second", "second")
    (home() / "settings.json").write_text(json.dumps({"shoal": {"plugins": ["mine/second"]}}))
    third = made(tmp_path / "third", "third")
    plugins = found(project, third)
    assert [(each.name, each.offered) for each in plugins.all] == [
        ("third", "flag"),
        ("second", "settings"),
        ("first", "home"),
    ]
    assert plugins.all[1].origin == f"{home() / 'settings.json'}:1"
    assert plugins.notes == ()


def test_a_directory_of_plugins_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (home() / "plugins").write_text("not a directory")
    (note,) = found(tmp_path).notes
    assert note == f"{home() / 'plugins'}: it cannot be read: Not a directory"


def test_of_two_with_one_name_the_first_is_used_and_the_other_named(tmp_path: Path) -> None:
    made(home() / "plugins/one")
    made(home() / "plugins/two")
    plugins = found(tmp_path)
    assert [each.root.name for each in plugins.all] == ["one"]
    assert "two/.claude-plugin/plugin.json:1: another plug-in is named harbour" in plugins.notes[0]


def test_hooks_and_servers_are_handed_over_with_the_directory_filled_in(tmp_path: Path) -> None:
    root = made(tmp_path / "it's here")
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
    plugins = found(tmp_path, root)
    (hooks,) = plugins.hooks()
    command = hooks.raw["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert ran.stdout == f"{os.path.realpath(root)}\n"
    assert hooks.place(("hooks", "PreToolUse")).endswith("hooks.json:3")
    (servers,) = plugins.mcp_servers()
    assert servers.raw["mcpServers"] == {
        "harbour:tides": {
            "command": f"{os.path.realpath(root)}/serve",
            "args": ["-v"],
            "env": {"CLAUDE_PLUGIN_ROOT": os.path.realpath(root)},
        }
    }
    assert plugins.skill_dirs() == (("harbour", Path(os.path.realpath(root)) / "skills"),)
    assert plugins.command_dirs() == (("harbour", Path(os.path.realpath(root)) / "commands"),)


async def test_the_hooks_of_a_plugin_have_their_say(tmp_path: Path) -> None:
    root, project = made(tmp_path / "it's here"), tmp_path / "project"
    project.mkdir()
    (root / "hooks").mkdir()
    (root / "refuse.sh").write_text("echo 'the harbour is closed' >&2\nexit 2\n")
    hook = {"type": "command", "command": 'sh "${CLAUDE_PLUGIN_ROOT}/refuse.sh"'}
    hooks = {"PreToolUse": [{"matcher": "Write", "hooks": [hook]}]}
    (root / "hooks/hooks.json").write_text(json.dumps({"hooks": hooks}))
    heard: list[str] = []

    def end(request: Request) -> str:
        heard.extend(str(block) for block in request.messages[-1].content)
        return "end"

    model = cast(lead=[use("Write", "w1", file_path="x.txt", content="x"), end])
    async with shoal.open(cwd=project, model=model, plugin_dirs=[root], skip_permissions=True) as session:
        await all_turns(session)
    assert "the harbour is closed" in heard[0]
    assert not (project / "x.txt").exists()


@pytest.mark.spec("SKL-01")
async def test_the_skills_of_a_plugin_are_used_under_its_name(tmp_path: Path) -> None:
    root, project = made(tmp_path / "harbour"), tmp_path / "project"
    project.mkdir()
    (root / "skills/mooring").mkdir(parents=True)
    (root / "commands").mkdir()
    text = "---\nname: mooring\ndescription: How to moor.\n---\nThrow the line first.\n"
    (root / "skills/mooring/SKILL.md").write_text(text)
    (root / "commands/berth.md").write_text("Find a berth for $ARGUMENTS.\n")
    heard: list[str] = []

    def end(request: Request) -> str:
        heard.append(str(request.messages))
        return "end"

    model = cast(lead=[use("Skill", "s1", skill="harbour:mooring"), end])
    async with shoal.open(cwd=project, model=model, plugin_dirs=[root], skip_permissions=True) as session:
        await all_turns(session)
        assert "harbour:berth" in [each.name for each in session.parts.knowledge.commands()]
    assert "Throw the line first." in heard[0]


def test_what_the_manifest_names_joins_the_usual_places(tmp_path: Path) -> None:
    root = made(tmp_path / "plugin", skills="./more", hooks={"Stop": []}, mcpServers="./conf/servers.json")
    for place in ("skills", "more", "conf"):
        (root / place).mkdir()
    (root / "conf/servers.json").write_text('{"tides": {"url": "http://127.0.0.1:1/mcp"}}')
    plugins = found(tmp_path, root)
    assert [place.name for _, place in plugins.skill_dirs()] == ["skills", "more"]
    assert plugins.hooks()[0].raw == {"hooks": {"Stop": []}}
    assert list(plugins.mcp_servers()[0].raw["mcpServers"]) == ["harbour:tides"]


@pytest.mark.parametrize("how", ["manifest", "absolute", "link", "linked manifest", "linked directory"])
def test_one_that_leads_out_of_its_directory_is_refused_and_named(tmp_path: Path, how: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "spy.md").write_text("---\nname: spy\ndescription: x\n---\nx\n")
    given: dict[str, Any] = {
        "manifest": {"agents": "../outside"},
        "absolute": {"mcpServers": str(outside / "servers.json")},
    }.get(how, {})
    root = made(tmp_path / "plugin", **given)
    if how == "link":
        (root / "agents/spy.md").symlink_to(outside / "spy.md")
    if how == "linked directory":
        (root / "skills").symlink_to(outside)
    if how == "linked manifest":
        manifest = root / ".claude-plugin/plugin.json"
        manifest.rename(outside / "plugin.json")
        manifest.symlink_to(outside / "plugin.json")
    with pytest.raises(SettingsError, match="leads out of the plug-in") as refused:
        found(tmp_path, root)
    assert str(root) in str(refused.value)
    (home() / "plugins").mkdir(parents=True, exist_ok=True)
    root.rename(home() / "plugins/harbour")
    plugins = found(tmp_path)
    assert plugins.all == ()
    assert "leads out of the plug-in" in plugins.notes[0]


def test_a_link_within_the_plugin_is_its_own_affair(tmp_path: Path) -> None:
    root = made(tmp_path / "plugin")
    (root / "agents/mate.md").symlink_to("pilot.md")
    assert names(found(tmp_path, root)) == ["harbour"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"name": "a b"}', "plugin.json:1: name: 'a b' cannot be"),
        ('{\n "version": 3,\n "name": "x"\n}', "plugin.json:2: version: text"),
        ('{"name": "x",\n}', "plugin.json:2: not valid JSON"),
        ("", "plugin.json:1: name: it is missing"),
        ("[]", "plugin.json:1: a JSON object"),
        ('{"description": "d"}', "plugin.json:1: name: it is missing"),
    ],
)
def test_a_bad_manifest_is_told_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    root = made(tmp_path / "plugin")
    (root / ".claude-plugin/plugin.json").write_text(text)
    with pytest.raises(SettingsError) as refused:
        found(tmp_path, root)
    assert told in str(refused.value)


def test_a_bad_part_takes_nothing_from_the_rest(tmp_path: Path) -> None:
    root = made(tmp_path / "plugin")
    (root / ".mcp.json").write_text("{\n  nonsense")
    plugins = found(tmp_path, root)
    assert plugins.agents()
    assert plugins.mcp_servers() == ()
    assert ".mcp.json:2: not valid JSON" in str(plugins.faults[0])


def test_what_a_project_brings_needs_trust_and_again_when_it_changes(tmp_path: Path) -> None:
    project = tmp_path / "project"
    root = made(project / "plugins/harbour")
    (project / ".claude").mkdir()
    (project / ".claude/settings.json").write_text(json.dumps({"shoal": {"plugins": ["plugins/harbour"]}}))
    plugins = found(project)
    assert (names(plugins), [each.name for each in plugins.untrusted]) == ([], ["harbour"])
    assert "not trusted" in plugins.notes[0]
    settings = settings_of(project)
    trust.answer(settings, project, trusted=True, about=(*settings.widening, *plugins.widening))
    assert names(found(project)) == ["harbour"]
    (root / "script.sh").write_text("echo other")
    assert names(found(project)) == []
    plugins = found(project)
    trust.answer(settings_of(project), project, trusted=True, about=plugins.widening)
    assert names(found(project)) == ["harbour"]
    trust.forget(home(), project)
    assert names(found(project)) == []


def test_a_persons_own_settings_do_not_speak_for_a_plugin_in_a_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    root = made(project / "plugins/harbour")
    given = json.dumps({"shoal": {"plugins": [str(root)]}})
    assert names(found(project, given=given)) == []
    assert names(found(project, root)) == ["harbour"]
    assert names(found(tmp_path / "elsewhere", given=given)) == ["harbour"]
