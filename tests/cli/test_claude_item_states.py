"""`shoal doctor --claude`: an item without effect is never called used, and costs one line at the start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal_process import MODEL, ShoalProgram

from git_repository import run_git
from shoal.testing import messages_server


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1))


async def list_items(shoal: ShoalProgram) -> dict[tuple[str, str], str]:
    ran = await shoal("doctor", "--claude", "--json")
    items = json.loads(ran.out)["items"]
    return {(Path(each["file"]).name, each["item"]): each["use"] for each in items}


@pytest.mark.spec("CMP-036", "CMP-042")
async def test_a_hook_that_never_runs_is_not_called_used(shoal: ShoalProgram, home: Path) -> None:
    command = {"type": "command", "command": "true"}
    tool = {"type": "mcp_tool", "server": "gone", "tool": "check"}
    hooks = {
        "Stop": [{"hooks": [{**command, "if": "Bash(git:*)"}]}],
        "SessionStart": [{"hooks": [{**command, "if": "Bash"}, command]}],
        "PreToolUse": [{"hooks": [tool]}],
        "PostToolUse": [
            {"matcher": "Bsah|Foo", "hooks": [command]},
            {"matcher": "MultiEdit", "hooks": [tool]},
        ],
        "PreCompact": [{"hooks": [command]}],
    }
    write_json(home / "settings.json", {"hooks": hooks})
    items = json.loads((await shoal("doctor", "--claude", "--json")).out)["items"]
    found = [(each["item"], each["use"], each["advice"]) for each in items]
    assert {(item, use) for item, use, _ in found} == {
        ("hooks.Stop", "not used"),
        ("hooks.SessionStart", "used"),
        ("part of hooks.SessionStart", "not used"),
        ("hooks.PreToolUse", "not used"),
        ("hooks.PostToolUse", "not used"),
        ("hooks.PreCompact", "used"),
    }
    advice = " ".join(text for _, _, text in found)
    assert "Stop has no tool call to compare, so this hook never runs" in advice
    assert "no MCP server named 'gone' is configured" in advice
    assert "there is no tool named Bsah or Foo, so the hook never runs" in advice
    write_json(home / "settings.json", {"hooks": hooks, "mcpServers": {"gone": {"command": "x"}}})
    assert (await list_items(shoal))["settings.json", "hooks.PreToolUse"] == "used"


@pytest.mark.spec("CMP-038")
async def test_a_hook_for_tools_of_a_missing_server_is_not_called_used(
    shoal: ShoalProgram, home: Path
) -> None:
    command = {"type": "command", "command": "true"}
    matchers = {
        "mcp__gone__.*": "not used",
        "mcp__gone__read": "not used",
        "mcp__gone__.*|mcp__lost__write": "not used",
        "^mcp__gone__": "not used",
        "Bsah|mcp__gone__read": "not used",
        "mcp__here__.*": "used",
        "mcp__gone__.*|mcp__here__x": "used",
        "mcp__gone__.*|Bash": "used",
        "mcp__.*": "used",
        "mcp__(gone|here)__.*": "used",
        "mcp__her.*": "used",
        ".*": "used",
    }
    servers = {"here": {"command": "true"}}
    for matcher, use in matchers.items():
        hooks = {"PreToolUse": [{"matcher": matcher, "hooks": [command]}]}
        write_json(home / "settings.json", {"hooks": hooks, "mcpServers": servers})
        assert (await list_items(shoal))["settings.json", "hooks.PreToolUse"] == use, matcher


@pytest.mark.spec("CMP-121")
async def test_a_repository_in_which_commands_cannot_commit_is_named(
    shoal: ShoalProgram, home: Path, project: Path
) -> None:
    write_json(home / "settings.json", {"permissions": {"deny": ["Read(./.env.*)"]}})

    async def find_advice() -> str:
        items = json.loads((await shoal("doctor", "--claude", "--json")).out)["items"]
        (advice,) = [each["advice"] for each in items if each["item"] == "permissions.deny"]
        return str(advice)

    assert "commit" not in await find_advice()
    run_git(project, "init", "-q")
    (project / "a").touch()
    run_git(project, "add", "a")
    assert "commit" not in await find_advice()
    run_git(project, "update-index", "--split-index")
    assert "commands cannot commit while a tracked file is hidden" in await find_advice()


async def test_a_missing_import_is_listed(shoal: ShoalProgram, home: Path) -> None:
    (home / "there.md").write_text("Text.")
    (home / "CLAUDE.md").write_text(
        "Read @there.md, @docs/missing.md, @~/gone/notes.txt and @./x/y. Ask @anna or @org/team, use "
        "@app.route and `@code/in.md`.\n"
    )
    items = await list_items(shoal)
    imports = {item: use for (_, item), use in items.items() if item.startswith("import")}
    assert imports == {
        "import @docs/missing.md": "not used",
        "import @~/gone/notes.txt": "not used",
        "import @./x/y": "not used",
    }
    assert items["CLAUDE.md", "instructions"] == "used"


async def test_allow_rules_for_tools_that_do_not_exist_are_listed(shoal: ShoalProgram, home: Path) -> None:
    rules = [
        "Foo(x)",
        "LSP",
        "Workflow",
        "mcp__gone__x",
        "mcp__here__y",
        "MultiEdit",
        "Bash(ls)",
        "SlashCommand",
    ]
    settings = {"permissions": {"allow": rules}, "mcpServers": {"here": {"command": "sh"}}}
    write_json(home / "settings.json", settings)
    items = await list_items(shoal)
    assert {item for (_, item), use in items.items() if use == "not used"} == {
        f"permissions.allow {rule!r}" for rule in rules[:4]
    }
    assert items["settings.json", "permissions.allow"] == "used"
    write_json(home / "settings.json", {"permissions": {"allow": ["Foo"]}})
    assert (await list_items(shoal))["settings.json", "permissions.allow"] == "not used"


async def test_tools_that_an_untrusted_command_allows_are_not_called_used(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    text = "---\ndescription: d\nallowed-tools: Bash(git:*)\n---\nGo.\n"
    for directory in (project / ".claude", home):
        (directory / "commands").mkdir(parents=True)
        (directory / "commands" / f"{directory.name.strip('.')}.md").write_text(text)
    items = {item: use for (_, item), use in (await list_items(shoal)).items() if "allowed-tools" in item}
    assert items == {"allowed-tools of the command claude": "not used"}
    assert (await shoal("trust")).code == 0
    assert not [item for _, item in await list_items(shoal) if "allowed-tools" in item]


@pytest.mark.spec("CMP-074")
async def test_an_untrusted_skill_with_hooks_is_not_called_used(shoal: ShoalProgram, project: Path) -> None:
    hooks = "hooks:\n  Stop:\n    - hooks:\n        - type: command\n          command: true\n"
    directory = project / ".claude/skills/guarded"
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text(f"---\nname: guarded\ndescription: d\n{hooks}---\nGo.\n")
    assert (await list_items(shoal))["SKILL.md", "skill guarded"] == "not used"
    assert (await shoal("trust")).code == 0
    assert (await list_items(shoal))["SKILL.md", "skill guarded"] == "used"


@pytest.mark.spec("CMP-077")
@pytest.mark.parametrize(
    ("tools", "use"),
    [
        ("LSP, Gone, Workflow", "not used"),
        ("LSP, Read", "used"),
        ("mcp__here__x", "used"),
        ("MultiEdit", "used"),
    ],
)
async def test_an_agent_without_any_available_tool_is_not_called_used(
    shoal: ShoalProgram, home: Path, tools: str, use: str
) -> None:
    write_json(home / "settings.json", {"mcpServers": {"here": {"command": "x"}}})
    (home / "agents").mkdir()
    text = f"---\nname: diver\ndescription: d\ntools: {tools}\n---\nDive.\n"
    (home / "agents/diver.md").write_text(text)
    assert (await list_items(shoal))["diver.md", "agent diver"] == use


async def test_fields_of_an_agent_that_have_no_effect_are_not_called_used(
    shoal: ShoalProgram, home: Path
) -> None:
    (home / "agents").mkdir()
    for name, field in (
        ("odd", "model: nowhere:thing"),
        ("listed", "model: haiku"),
        ("unlisted", "model: opus"),
        ("free", "permissionMode: bypassPermissions"),
        ("usual", "permissionMode: plan"),
    ):
        (home / f"agents/{name}.md").write_text(f"---\nname: {name}\ndescription: d\n{field}\n---\nGo.\n")
    env = {"ANTHROPIC_API_KEY": "sk-for-tests"}

    async def find_unused(settings: dict[str, Any]) -> set[str]:
        write_json(home / "settings.json", {"env": env} | settings)
        return {item for (_, item), use in (await list_items(shoal)).items() if use == "not used"}

    mode = "permissionMode of the agent free"
    assert await find_unused({}) == {"agent odd", mode}
    assert await find_unused({"permissions": {"defaultMode": "bypassPermissions"}}) == {"agent odd"}
    limits = {"availableModels": ["sonnet", "haiku"], "model": "sonnet"}
    assert await find_unused(limits) == {"agent odd", "model of the agent unlisted", mode}
    variables = env | {"CLAUDE_CODE_SUBAGENT_MODEL": "haiku"}
    models = {f"model of the agent {name}" for name in ("odd", "listed", "unlisted")}
    assert await find_unused({"env": variables}) == {*models, mode}


async def test_a_server_that_cannot_start_is_not_called_used(shoal: ShoalProgram, home: Path) -> None:
    servers = {
        "unset": {"command": "${NO_SUCH_VARIABLE}"},
        "defaulted": {"command": "${NO_SUCH_VARIABLE:-sh}"},
        "header": {"type": "http", "url": "http://127.0.0.1:9", "headers": {"A": "${NO_SUCH_VARIABLE}"}},
        "absent": {"command": "no-such-program"},
        "absolute": {"command": "/no/such/program"},
        "relative": {"command": "./server"},
        "found": {"command": "sh"},
        "elsewhere": {"command": "sh", "env": {"PATH": "/no/such/directory"}},
    }
    write_json(home / "settings.json", {"mcpServers": servers})
    items = {item: use for (_, item), use in (await list_items(shoal)).items()}
    used = {name for name in servers if items[f"mcpServers.{name}"] == "used"}
    assert used == {"defaulted", "relative", "found"}


async def test_a_variable_that_nothing_reads_is_not_called_used(shoal: ShoalProgram, home: Path) -> None:
    env = {"USE_BUILTIN_RIPGREP": "0", "TASK_MAX_OUTPUT_LENGTH": "1", "SHOAL_PLAIN": "1", "MINE": "1"}
    write_json(home / "settings.json", {"env": {**env, "MAX_THINKING_TOKENS": "many"}})
    items = {item: use for (_, item), use in (await list_items(shoal)).items()}
    assert items == {
        "env.USE_BUILTIN_RIPGREP": "not used",
        "env.TASK_MAX_OUTPUT_LENGTH": "not used",
        "env.SHOAL_PLAIN": "not used",
        "env.MINE": "used",
        "env.MAX_THINKING_TOKENS": "not used",
    }


@pytest.mark.spec("CMP-002")
async def test_unusable_values_cost_one_line_together(shoal: ShoalProgram, home: Path) -> None:
    values = {
        "effortLevel": "ultra", "teammateMode": "odd", "outputStyle": "gone", "alwaysThinkingEnabled": "no",
        "fallbackModel": [1], "theme": "neon", "env": {"MAX_THINKING_TOKENS": "many"}, "language": 5,
    }  # fmt: skip
    write_json(home / "settings.json", values)
    async with messages_server(["done"]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "go", "--model", MODEL)
    assert ran.err.splitlines() == ["shoal: 8 items in your settings are not used: run shoal doctor --claude"]
    shown = (await shoal("doctor", "--claude")).text
    _, _, counted = shown.partition("8 items in your settings are not used, as the startup notice says")
    assert all(f": {name}" in counted for name in (*values.keys() - {"env"}, "env.MAX_THINKING_TOKENS"))


@pytest.mark.spec("CMP-089")
async def test_plugins_that_are_not_installed_or_not_trusted_are_not_called_used(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    write_json(home / "settings.json", {"enabledPlugins": {"gone@market": True}})
    (project / ".claude").mkdir(exist_ok=True)
    write_json(project / ".claude" / "settings.json", {"enabledPlugins": {"theirs@market": True}})
    assert await list_items(shoal) == {
        ("settings.json", "plug-in gone"): "not used",
        ("settings.json", "enabledPlugins.theirs@market"): "not used",
    }
