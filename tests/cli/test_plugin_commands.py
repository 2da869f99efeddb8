"""`shoal plugin`, the plug-in flag, and trust in a plug-in of a project."""

from __future__ import annotations

import json
from pathlib import Path

from shoal_process import MODEL, ShoalProgram

from shoal.testing import messages_server

AGENT = "---\nname: pilot\ndescription: Brings ships in.\n---\nYou pilot.\n"


def write_plugin(root: Path) -> Path:
    (root / ".claude-plugin").mkdir(parents=True)
    (root / ".claude-plugin/plugin.json").write_text('{"name": "harbour", "version": "1.2"}')
    (root / "agents").mkdir()
    (root / "agents/pilot.md").write_text(AGENT)
    (root / "skills/mooring").mkdir(parents=True)
    (root / "skills/mooring/SKILL.md").write_text("---\nname: mooring\ndescription: x\n---\nx\n")
    return root


async def test_plugins_are_listed_with_their_contents(
    shoal: ShoalProgram, home: Path, tmp_path: Path
) -> None:
    assert "No plug-in" in (await shoal("plugin", "ls")).text
    write_plugin(home / "plugins/harbour")
    (row,) = json.loads((await shoal("plugin", "ls", "--json")).out)
    assert (row["name"], row["version"], row["state"]) == ("harbour", "1.2", "used")
    assert (row["agents"], row["skills"]) == (["harbour:pilot"], ["harbour:mooring"])
    ran = await shoal("plugin", "ls")
    assert "1 agent, 1 skill" in ran.text
    listed = await shoal("agents", "ls", "--json")
    assert "harbour:pilot" in [each["name"] for each in json.loads(listed.out)]


async def test_plugin_errors_name_file_and_line(shoal: ShoalProgram, tmp_path: Path) -> None:
    root = write_plugin(tmp_path / "harbour")
    assert (await shoal("plugin", "validate", str(root))).code == 0
    (root / "agents/bad.md").write_text("---\nname: bad\ndescription: x\nmodel: [1]\n---\nx\n")
    ran = await shoal("plugin", "validate", str(root))
    assert ran.code == 1
    assert f"{root}/agents/bad.md:4: model: " in ran.text
    ran = await shoal("plugin", "validate", str(root), "--json")
    (problem,) = json.loads(ran.out)["problems"]
    assert (ran.code, problem["path"], problem["line"]) == (1, f"{root}/agents/bad.md", 4)
    (root / "link").symlink_to("/etc")
    ran = await shoal("plugin", "validate", str(root))
    assert f"{root}/link: a link to /etc, which is outside the plug-in" in ran.text
    assert (await shoal("plugin", "validate", str(tmp_path / "none"))).code == 2
    refused = await shoal("-p", "x", "--plugin-dir", str(root))
    assert refused.code != 0
    assert "--plugin-dir" in refused.err
    assert "outside the plug-in" in refused.err


async def test_a_run_lists_its_plugins(shoal: ShoalProgram, tmp_path: Path) -> None:
    root = write_plugin(tmp_path / "harbour")
    async with messages_server(lambda _: "done") as server:
        shoal.use_server(server)
        ran = await shoal(
            *("-p", "x", "--model", MODEL, "--output-format", "stream-json", "--plugin-dir", str(root))
        )
    init = ran.lines[0]
    assert init["plugins"] == [{"name": "harbour", "path": str(root.resolve())}]
    assert "harbour:pilot" in init["agents"]


async def test_a_project_plugin_is_shown_and_trusted(shoal: ShoalProgram, project: Path) -> None:
    write_plugin(project / "tools/harbour")
    (project / ".claude").mkdir()
    (project / ".claude/settings.json").write_text('{"shoal": {"plugins": ["tools/harbour"]}}')

    async def state() -> str:
        (row,) = json.loads((await shoal("plugin", "ls", "--json")).out)
        return str(row["state"])

    assert await state() == "not trusted"
    plugin_page = await shoal("trust", "--show", "--json")
    keys = [row["key"] for row in json.loads(plugin_page.out)["settings"]]
    assert keys == ["shoal.plugins", "plugin.harbour"]
    assert (await shoal("trust")).code == 0
    assert await state() == "used"
    (project / "tools/harbour/agents/pilot.md").write_text(AGENT + "And more.\n")
    assert await state() == "not trusted"
    assert (await shoal("trust", "--revoke")).code == 0
