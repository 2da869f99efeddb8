"""`shoal doctor --claude`: what Shoal does with each item of Claude Code's files, and the page about it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from shoal_process import MODEL, ShoalProgram

from agent_scripts import call_tool
from git_repository import run_git
from shoal.app.doctor.instruction_items import OTHER_FILES
from shoal.app.settings.claude_keys import CLAUDE_KEYS
from shoal.testing import messages_server
from shoal.wire.settings_codec import PerFileSettingsSchema, SettingsSchema

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/move-from-claude-code.md"
TABLE = ROOT / "src/shoal/app/settings/claude_keys.py"


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1))


async def list_items(shoal: ShoalProgram) -> dict[tuple[str, str], str]:
    ran = await shoal("doctor", "--claude", "--json")
    items = json.loads(ran.out)["items"]
    return {(Path(each["file"]).name, each["item"]): each["use"] for each in items}


async def test_each_item_of_home_and_project_has_its_state(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    hook = [{"hooks": [{"type": "command", "command": "true"}]}]
    settings = {
        "statusLine": {"type": "command"},
        "model": "opus",
        "permissions": {"allow": ["Read", "mcp__*"], "deny": ["WebFetch"]},
        "hooks": {"PreToolUse": hook, "MessageDisplay": hook},
        "sandbox": {"enabled": False, "filesystem": {"denyRead": ["x"]}},
        "disableSkillShellExecution": True,
    }
    write_json(home / "settings.json", settings)
    untrusted = {"model": "haiku", "permissions": {"allow": ["Bash(touch:*)"]}, "env": {"A": "1"}}
    write_json(project / ".claude/settings.json", untrusted)
    (home / "CLAUDE.md").write_text("mine\n")
    (home / "output-styles").mkdir()
    (home / "output-styles/loud.md").write_text("loud\n")
    (home / "agents").mkdir()
    (home / "agents/rev.md").write_text("---\nname: rev\ndescription: d\n---\nReview.\n")
    (home / "agents/bad.md").write_text("---\nname: bad\n---\n")
    items = await list_items(shoal)
    assert items["settings.json", "permissions.deny"] == "used"
    assert items["settings.json", "permissions.allow 'mcp__*'"] == "not used"
    assert items["settings.json", "statusLine"] == "not used"
    assert items["settings.json", "hooks.PreToolUse"] == "used"
    assert items["settings.json", "hooks.MessageDisplay"] == "not used"
    assert items["settings.json", "sandbox.filesystem.denyRead"] == "not used"
    assert items["settings.json", "disableSkillShellExecution"] == "used"
    assert items["settings.json", "env.A"] == "not used"
    assert items["rev.md", "agent rev"] == "used"
    assert items["bad.md", "agent bad"] == "not used"
    assert items["CLAUDE.md", "instructions"] == "used"
    assert items["loud.md", "output style loud"] == "used"
    shown = await shoal("doctor", "--claude")
    assert (shown.code, "not used    statusLine  → the status line is fixed" in shown.text) == (0, True)
    assert (
        f"not used    model  → {project / '.claude/settings.json'} sets it too and takes precedence"
        in shown.text
    )


async def test_used_instruction_files_rules_and_styles_are_listed_as_used_and_no_others(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    hook = {"type": "command", "command": "true", "statusMessage": "checking"}
    settings = {
        "outputStyle": "loud",
        "hooks": {"PreToolUse": [{"hooks": [hook]}]},
        "claudeMdExcludes": ["**/vendor/**"],
        "skillOverrides": {"tidy": "off"},
        "permissions": {"deny": [f"Read(/{project}/hidden/**)"]},
    }
    write_json(home / "settings.json", settings)
    texts = {
        home / "rules/style.md": "short names",
        project / ".claude/rules/sql.md": '---\npaths: "**/*.sql"\n---\nno joins',
        project / "lib/CLAUDE.md": "about lib",
        project / "hidden/CLAUDE.md": "about hidden",
        project / "vendor/CLAUDE.md": "about vendor",
        project / ".worktreeinclude": ".env",
        project / ".claude/output-styles/loud.md": "loud",
        project / ".claude/output-styles/empty.md": "",
        home / "output-styles/loud.md": "louder",
        home / "output-styles/calm.md": "calm",
        home / "skills/tidy/SKILL.md": "---\nname: tidy\ndescription: d\n---\nTidy.",
        home / "keybindings.json": "{}",
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (project / ".claude/output-styles/leak.md").symlink_to(home / "output-styles/calm.md")
    ran = await shoal("doctor", "--claude", "--json")
    listed = json.loads(ran.out)["items"]
    found = {(each["file"], each["item"]): (each["use"], each["advice"]) for each in listed}
    assert len(found) == len(listed)
    styles, own_styles = project / ".claude/output-styles", home / "output-styles"
    settings_file, nested = (
        str(home / "settings.json"),
        "an agent gets it when it uses a file in that directory",
    )
    expected = {
        (settings_file, "outputStyle"): ("used", ""),
        (settings_file, "hooks.PreToolUse"): ("used", ""),
        (str(home / "rules/style.md"), "instructions"): ("used", ""),
        (str(project / ".claude/rules/sql.md"), "rule"): (
            "used",
            "an agent gets it when it uses a file that matches **/*.sql",
        ),
        (str(project / "lib/CLAUDE.md"), "instructions"): ("used", nested),
        (str(project / "vendor/CLAUDE.md"), "instructions"): ("not used", "claudeMdExcludes excludes it"),
        (str(project / ".worktreeinclude"), "file"): (
            "not used",
            "it applies only in the top directory of a git repository",
        ),
        (str(styles / "loud.md"), "output style loud"): ("used", ""),
        (str(styles / "empty.md"), "output style empty"): ("not used", "it is empty"),
        (str(styles / "leak.md"), "output style leak"): ("not used", "it is outside the project"),
        (str(own_styles / "loud.md"), "output style loud"): (
            "not used",
            "another style with this name takes precedence",
        ),
        (str(own_styles / "calm.md"), "output style calm"): ("used", "choose it with outputStyle"),
        (str(home / "skills/tidy/SKILL.md"), "skill tidy"): ("not used", "skillOverrides turns it off"),
        (str(home / "keybindings.json"), "file"): ("not used", "Shoal's key bindings are fixed"),
    }
    assert {key: found.get(key) for key in expected} == expected
    hidden = found[str(project / "hidden/CLAUDE.md"), "instructions"]
    assert (hidden[0], "a permission rule denies reading it" in hidden[1]) == ("not used", True)
    part = found[settings_file, "part of hooks.PreToolUse"]
    assert (part[0], "statusMessage: it is not shown" in part[1]) == ("not used", True)
    run_git(project, "init", "-q")
    assert (await list_items(shoal))[".worktreeinclude", "file"] == "used"
    write_json(home / "settings.json", {"outputStyle": "gone", "shoal": {"instructions": False}})
    items = await list_items(shoal)
    assert items["settings.json", "outputStyle"] == "not used"
    assert items["style.md", "instructions"] == items["sql.md", "rule"] == "not used"


async def test_a_value_that_is_ignored_is_never_listed_as_used(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    ignored = {
        "model": "opus", "teammateMode": "odd", "effortLevel": "ultra", "alwaysThinkingEnabled": "no",
        "plansDirectory": "../outside", "includeCoAuthoredBy": False, "theme": "neon", "enabledPlugins": [],
        "worktree.baseRef": "odd", "worktree.isolation": 1, "autoCompactEnabled": "no",
    }  # fmt: skip
    flat = {key: value for key, value in ignored.items() if "." not in key}
    nested = {"worktree": {"baseRef": "odd", "isolation": 1, "sparsePaths": ["src"]}}
    env = {"ANTHROPIC_MODEL": "haiku", "MAX_THINKING_TOKENS": "many", "BASH_DEFAULT_TIMEOUT_MS": "long"}
    write_json(home / "settings.json", {**flat, **nested, "env": env, "attribution": {"commit": ""}})
    write_json(home / ".claude.json", {"projects": {str(project): {"disabledMcpServers": ["x"]}}})
    skill = project / "pkg/.claude/skills/deep/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: deep\ndescription: d\n---\nx\n")
    items = {item: use for (_, item), use in (await list_items(shoal)).items()}
    assert {key: items[key] for key in ignored} == dict.fromkeys(ignored, "not used")
    assert [items[f"env.{name}"] for name in env] == ["used", "not used", "not used"]
    assert (items["attribution"], items["disabledMcpServers"], items["worktree"]) == ("used", "used", "used")
    assert items["skill deep"] == "not used"


@pytest.mark.spec("CMP-002")
async def test_an_invalid_guard_is_refused_and_not_called_used(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    broken = {"matcher": "Bash", "hooks": [{"type": "wasm"}]}
    write_json(
        home / "settings.json", {"hooks": {"PreToolUse": [broken], "Stop": [broken], "CwdChanged": []}}
    )
    ran = await shoal("doctor", "--claude", "--json")
    uses = {item["item"]: item["use"] for item in json.loads(ran.out)["items"]}
    assert uses == {"hooks.PreToolUse": "refused", "hooks.Stop": "not used", "hooks.CwdChanged": "not used"}
    assert ran.code == 1
    remarks = {item["item"] for item in json.loads(ran.out)["items"] if "Shoal starts, but" in item["advice"]}
    assert remarks == {"hooks.PreToolUse"}
    async with messages_server([call_tool("Bash", command="touch made"), "done"]) as server:
        shoal.use_server(server)
        started = await shoal("-p", "go", "--model", MODEL, "--dangerously-skip-permissions")
    assert (started.code, (project / "made").exists()) == (0, False)


async def test_a_refused_item_is_named_and_nothing_counts_as_used(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    write_json(home / "settings.json", {"permissions": {"deny": ["Bash("]}})
    write_json(project / ".claude/settings.json", {"model": "opus"})
    ran = await shoal("doctor", "--claude")
    assert ran.code == 1
    assert "settings.json:4: permissions.deny" in ran.text
    assert set((await list_items(shoal)).values()) <= {"refused", "not used"}


@pytest.mark.spec("CMP-002", "CMP-028", "CMP-093")
async def test_a_run_with_items_that_are_not_used_tells_it_in_one_line(
    shoal: ShoalProgram, home: Path
) -> None:
    hook = [{"hooks": [{"type": "command", "command": "true"}]}]
    settings = {"statusLine": {}, "hooks": {"OfAnotherYear": hook}, "permissions": {"allow": ["mcp__*"]}}
    write_json(home / "settings.json", settings)
    for mode in ("auto", "manual"):
        async with messages_server(["done"]) as server:
            shoal.use_server(server)
            ran = await shoal("-p", "go", "--model", MODEL, "--permission-mode", mode)
        assert (ran.code, ran.out.strip()) == (0, b"done")
        notes = [line for line in ran.err.splitlines() if "not used" in line]
        assert len(notes) == 1
        assert "3 items in your settings are not used: run shoal doctor --claude" in notes[0]
        assert ("Auto mode is not available" in ran.err) is (mode == "auto")
    shown = await shoal("doctor", "--claude")
    _, _, counted = shown.text.partition("3 items in your settings are not used, as the startup notice says")
    assert [line.split(": ")[1] for line in counted.splitlines() if line.startswith("  ")] == [
        "permissions.allow 'mcp__*'",
        "statusLine",
        "hooks.OfAnotherYear",
    ]


@pytest.mark.spec("CMP-077", "CMP-082")
async def test_unknown_tools_of_agents_are_listed_with_the_nearest_name(
    shoal: ShoalProgram, home: Path
) -> None:
    write_json(home / "settings.json", {"mcpServers": {"tides": {"command": "x"}}})
    known = "Read, Task, MultiEdit, Bash(git:*), mcp__tides, mcp__tides__now, mcp__own__x, mcp__*"
    (home / "agents").mkdir()
    (home / "agents/a.md").write_text(
        f"---\nname: a\ndescription: d\ntools: {known}, Reads, LSP, Zzz, mcp__tide__x\n"
        "mcpServers: [{own: {command: x}}]\n---\np\n"
    )
    items = json.loads((await shoal("doctor", "--claude", "--json")).out)["items"]
    found = {
        each["item"]: (each["use"], each["advice"]) for each in items if each["item"].startswith("tool ")
    }
    assert found == {
        "tool Reads of the agent a": ("not used", "4: there is no such tool; did you mean Read?"),
        "tool LSP of the agent a": ("not used", "4: Shoal does not have this tool"),
        "tool Zzz of the agent a": ("not used", "4: there is no such tool"),
        "tool mcp__tide__x of the agent a": (
            "not used",
            "4: no MCP server with this name is configured; did you mean tides?",
        ),
    }


@pytest.mark.spec("CMP-077", "CMP-110")
async def test_tools_of_agents_that_sessions_do_not_have_are_listed(shoal: ShoalProgram, home: Path) -> None:
    (home / "agents").mkdir()
    (home / "agents/a.md").write_text(
        "---\nname: a\ndescription: d\ntools: Read, WebSearch, Workflow, KillBash, TaskOutput\n---\np\n"
    )

    async def list_tools(base_url: str, **settings: Any) -> dict[str, str]:
        write_json(home / "settings.json", settings)
        env = {"ANTHROPIC_API_KEY": "sk-test", "ANTHROPIC_BASE_URL": base_url}
        items = json.loads((await shoal("doctor", "--claude", "--json", **env)).out)["items"]
        return {each["item"].split()[1]: each["advice"] for each in items if each["item"].startswith("tool ")}

    gateway = "http://127.0.0.1:9"
    workflow = {"Workflow": "4: set shoal.workflow_tool to true to use it"}
    search = {"WebSearch": "4: nothing here answers searches; set shoal.web_search"}
    assert await list_tools(gateway) == workflow | search
    assert await list_tools("https://api.anthropic.com") == workflow
    assert await list_tools(gateway, shoal={"web_search": "http://127.0.0.1:9/s"}) == workflow
    assert await list_tools(gateway, shoal={"web_search": "bogus"}) == workflow | search
    off = {"env": {"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1"}, "shoal": {"web_search": "provider"}}
    names = ("KillBash", "TaskOutput")
    reason = "4: CLAUDE_CODE_DISABLE_BACKGROUND_TASKS turns it off"
    assert await list_tools(gateway, **off) == workflow | dict.fromkeys(names, reason)


@pytest.mark.spec("CMP-110", "CMP-118")
async def test_a_wrong_search_setting_costs_one_line_and_is_listed(shoal: ShoalProgram, home: Path) -> None:
    write_json(home / "settings.json", {"shoal": {"web_search": "bogus"}})
    async with messages_server(["done"]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "hi", "--model", MODEL)
    assert (ran.code, ran.err.count("\n"), "1 item in your settings is not used" in ran.err) == (0, 1, True)
    assert (await list_items(shoal))["settings.json", "shoal.web_search"] == "not used"


def test_the_page_has_the_same_tables_as_the_code() -> None:
    rows = re.findall(r"^\| `(.+?)` \| (.+?) \| (.*?) ?\|$", PAGE.read_text(), re.MULTILINE)
    # The flags have a test of their own.
    rows = [row for row in rows if not row[0].startswith("--")]
    expected = [(key.name, key.use, key.advice) for key in CLAUDE_KEYS]
    assert rows == [*expected, *((name, "not used", advice) for name, advice in OTHER_FILES.items())]


def test_a_key_is_listed_as_used_exactly_if_the_code_reads_it() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "src/shoal").rglob("*.py") if path != TABLE)
    schemas = (SettingsSchema, PerFileSettingsSchema)
    fields = {name for schema in schemas for name in schema.__struct_encode_fields__}
    for key in CLAUDE_KEYS:
        last = key.name.rpartition(".")[2]
        is_read = last in fields or f'"{last}"' in sources
        if "auto mode" in key.advice:
            continue
        if key.use in ("used", "refused"):
            assert is_read, f"{key.name} is listed as {key.use}, but nothing reads it"
        elif "." not in key.name and key.name not in _OTHER_MEANINGS:
            assert not is_read, f"{key.name} is listed as {key.use}, but the code reads it"


_OTHER_MEANINGS = {"verbose", "worktree", "enabledMcpjsonServers"}
"""Keys whose names also mean something else in the code."""


async def test_a_variable_counts_as_used_only_in_the_file_whose_value_applies(
    shoal: ShoalProgram, home: Path, project: Path
) -> None:
    variables = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "MCP_TIMEOUT": "5", "DISABLE_TELEMETRY": "1"}
    write_json(home / "settings.json", {"env": {**variables, "EDITOR": "vi"}})
    write_json(project / ".claude" / "settings.local.json", {"env": {**variables, "LAMP": "on"}})
    assert (await shoal("trust")).code == 0
    listed = json.loads((await shoal("doctor", "--claude", "--json")).out)["items"]
    used = {(Path(each["file"]).name, each["item"]) for each in listed if each["use"] == "used"}
    assert used == {
        ("settings.json", "env.ANTHROPIC_BASE_URL"),
        ("settings.local.json", "env.MCP_TIMEOUT"),
        ("settings.json", "env.EDITOR"),
        ("settings.local.json", "env.LAMP"),
    }


@pytest.mark.spec("CMP-032", "CMP-107", "CMP-109")
async def test_comforts_that_shoal_does_not_have_are_listed_and_cost_one_line(
    shoal: ShoalProgram, home: Path
) -> None:
    status_line = {"type": "command", "command": "date"}
    write_json(home / "settings.json", {"statusLine": status_line, "autoMode": {"allow": ["$defaults"]}})
    write_json(home / "keybindings.json", {"bindings": []})
    listed = json.loads((await shoal("doctor", "--claude", "--json")).out)["items"]
    unused = {(Path(each["file"]).name, each["item"]) for each in listed if each["use"] == "not used"}
    assert unused == {
        ("settings.json", "statusLine"),
        ("settings.json", "autoMode"),
        ("keybindings.json", "file"),
    }
    async with messages_server(["done"]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "hello", "--model", MODEL)
    assert (ran.code, ran.err.count("not used")) == (0, 1)


@pytest.mark.spec("CMP-086")
async def test_the_login_client_of_a_server_is_listed_as_not_used(shoal: ShoalProgram, home: Path) -> None:
    server = {"type": "http", "url": "http://127.0.0.1:9/mcp", "oauth": {"clientId": "abc", "scopes": "x"}}
    write_json(home / "settings.json", {"mcpServers": {"remote": server}})
    listed = json.loads((await shoal("doctor", "--claude", "--json")).out)["items"]
    states = {each["item"]: each["use"] for each in listed}
    assert states["mcpServers.remote"] == "used"
    assert states["mcpServers.remote.oauth.clientId"] == "used"
    assert states["mcpServers.remote.oauth.scopes"] == "not used"


async def test_items_without_an_effect_are_never_listed_as_used(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    write_json(home / "settings.json", {"allowManagedHooksOnly": True, "useAutoModeDuringPlan": True})
    write_json(home / ".claude.json", {"theme": "dark", "verbose": True, "numStartups": 3})
    write_json(home / "themes/mine.json", {})
    skill = "---\nname: look\ndescription: d\npaths: ['*.py']\nversion: '1'\n---\nLook."
    (home / "skills/look").mkdir(parents=True)
    (home / "skills/look/SKILL.md").write_text(skill)
    ran = await shoal("doctor", "--claude", "--json")
    items = [(each["item"], each["use"], each.get("advice", "")) for each in json.loads(ran.out)["items"]]
    assert ("allowManagedHooksOnly", "not used", "it applies only in managed files") in items
    assert ("part of the skill", "not used", "4: paths has no effect") in items
    assert ("part of the skill", "not used", "5: version has no effect") in items
    uses = {item: use for item, use, _ in items}
    assert uses["skill look"] == "used"
    for name in ("useAutoModeDuringPlan", "theme", "verbose", "file"):
        assert uses[name] == "not used"
    assert "numStartups" not in uses


async def test_a_server_is_listed_with_its_own_problem(shoal: ShoalProgram, home: Path) -> None:
    servers = {
        "b": {"type": "ws", "url": "ws://127.0.0.1:9"},
        "er": {"command": "true"},
        "wiki": {"command": "true"},
    }
    write_json(home / ".claude.json", {"mcpServers": servers})
    write_json(home / "settings.json", {"allowedMcpServers": [{"serverName": "wiki"}, {"serverName": "b"}]})
    ran = await shoal("doctor", "--claude", "--json")
    advice = {each["item"]: each.get("advice", "") for each in json.loads(ran.out)["items"]}
    assert "type is 'ws'" in advice["mcpServers.b"]
    assert "allowedMcpServers" in advice["mcpServers.er"]
    assert advice["mcpServers.wiki"] == "" or "not installed" in advice["mcpServers.wiki"]


async def test_prose_that_is_no_valid_yaml_is_used_and_only_fields_without_effect_are_not(
    shoal: ShoalProgram, home: Path
) -> None:
    prose = "description: Use it when: asked. Example: bar"
    texts = {
        "agents/colon.md": f"---\nname: colon\n{prose}\ncolor: teal\n---\nGo.",
        "skills/bare/SKILL.md": f"---\n{prose}\neffort: huge\n---\nGo.",
        "skills/plain/SKILL.md": "Only text.",
    }
    for name, text in texts.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    ran = await shoal("doctor", "--claude", "--json")
    found = [(each["item"], each["use"], each["advice"]) for each in json.loads(ran.out)["items"]]
    colors = "use blue, green, yellow, purple, orange, pink, cyan, red or #rrggbb"
    effort = (
        "3: effort: 'huge' is not one of low, medium, high, xhigh, max or a number of tokens; it is ignored"
    )
    assert sorted(found) == [
        ("agent colon", "used", ""),
        ("part of the agent", "not used", f"4: color: 'teal' is not a known color; {colors}"),
        ("part of the skill", "not used", effort),
        ("skill bare", "used", ""),
        ("skill plain", "used", ""),
    ]


@pytest.mark.spec("CMP-027")
async def test_the_switch_of_the_sandbox_is_listed_as_used_only_where_it_has_an_effect(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    on, off = {"sandbox": {"enabled": True}}, {"sandbox": {"enabled": False}}
    own_off = {"shoal": {"sandbox": {"enabled": False}}}
    settings, shared = project / ".claude/settings.json", home / "settings.json"

    async def list_uses(own: dict[str, Any], of_project: dict[str, Any]) -> list[tuple[str, str]]:
        write_json(shared, own)
        write_json(settings, of_project)
        items = json.loads((await shoal("doctor", "--claude", "--json")).out)["items"]
        by_file = {each["file"]: each for each in items}
        found = [by_file.get(str(path)) for path in (shared, settings)]
        return [(each["use"], each["advice"]) for each in found if each is not None]

    used = ("used", "true turns the network off; false keeps the sandbox of agents in worktrees")
    own_first = ("not used", "the settings under shoal.sandbox take precedence")
    assert await list_uses(off, {}) == [used]
    assert await list_uses({}, off) == [("not used", "only your own files can turn the sandbox off")]
    assert await list_uses(off, on) == [("not used", f"{settings}:3 takes precedence"), used]
    assert await list_uses(on | own_off, {}) == [own_first]
    assert await list_uses(own_off, on) == [own_first]
    assert await list_uses(off | {"shoal": {"sandbox": {"network": False}}}, {}) == [own_first]


@pytest.mark.parametrize(
    ("settings", "item"),
    [
        ({"agent": "gone"}, "agent"),
        ({"permissions": {"deny": ["Read(x)", "bash(rm:*)"]}}, "permissions.deny"),
        ({"permissions": {"ask": ["bash(rm:*)"]}}, "permissions.ask"),
        ({"model": "opus", "availableModels": ["sonnet"]}, "model"),
        ({"env": {"CLAUDE_CODE_USE_BEDROCK": "1"}}, "env.CLAUDE_CODE_USE_BEDROCK"),
        ({"model": "opusplan", "env": {"CLAUDE_CODE_USE_VERTEX": "1"}}, "env.CLAUDE_CODE_USE_VERTEX"),
        ({"env": {"ANTHROPIC_MODEL": "gpt:foo"}}, "env.ANTHROPIC_MODEL"),
        ({"sandbox": {"enabled": True, "filesystem": {"denyRead": ["/"]}}}, "sandbox"),
    ],
)
async def test_what_every_start_refuses_is_listed_as_refused(
    shoal: ShoalProgram, home: Path, settings: dict[str, Any], item: str
) -> None:
    write_json(home / "settings.json", settings)
    env = {"ANTHROPIC_API_KEY": "sk-test", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    started = await shoal("-p", "hi", **env)
    listed = await shoal("doctor", "--claude", "--json", **env)
    found = {each["item"]: each for each in json.loads(listed.out)["items"]}
    assert started.code != 0
    assert (found[item]["use"], listed.code) == ("refused", 1)
    assert found[item]["advice"].rpartition(": ")[2][:40] in started.err


async def test_the_parts_of_plugins_and_those_that_are_not_enabled_are_listed(
    shoal: ShoalProgram, home: Path
) -> None:
    records = {}
    for name in ("broom", "mop", "rag"):
        root = home / "plugins/cache" / name
        write_json(root / ".claude-plugin/plugin.json", {"name": name})
        records[f"{name}@tools"] = [{"scope": "user", "installPath": str(root)}]
    write_json(home / "plugins/installed_plugins.json", {"version": 2, "plugins": records})
    root = home / "plugins/cache/broom"
    hook = [{"hooks": [{"type": "command", "command": "true"}]}]
    write_json(root / "hooks/hooks.json", {"hooks": {"PreToolUse": hook, "MessageDisplay": hook}})
    write_json(root / ".mcp.json", {"mcpServers": {"web": {"command": "true"}}})
    write_json(root / ".lsp.json", {"go": {"command": "gopls"}})
    names = {
        "skills/tidy/SKILL.md": "name: tidy\n",
        "commands/sweep.md": "",
        "agents/maid.md": "name: maid\n",
        "output-styles/terse.md": "name: Terse\n",
    }
    for path, name in names.items():
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text(f"---\n{name}description: d\n---\nText.\n")
    settings = {"enabledPlugins": {"broom@tools": True, "mop@tools": False}}
    write_json(home / "settings.json", settings)
    listed = json.loads((await shoal("doctor", "--claude", "--json")).out)["items"]
    uses = {each["item"]: each["use"] for each in listed if "/plugins/" in each["file"]}
    assert uses == {
        "plug-in broom": "used",
        "plug-in mop@tools": "not used",
        "plug-in rag@tools": "not used",
        "hooks.PreToolUse": "used",
        "hooks.MessageDisplay": "not used",
        "mcpServers.plugin:broom:web": "used",
        "skill broom:tidy": "used",
        "command broom:sweep": "used",
        "agent broom:maid": "used",
        "output style broom:Terse": "used",
        "file": "not used",
    }


async def test_a_refused_key_does_not_hide_the_other_keys_of_the_files(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    write_json(
        home / "settings.json", {"permissions": {"deny": ["Bash("], "allow": ["Read"]}, "theme": "dark"}
    )
    write_json(project / ".claude/settings.local.json", {"model": "opus"})
    assert await list_items(shoal) == {
        ("settings.json", "file"): "refused",
        ("settings.json", "permissions.allow"): "not used",
        ("settings.json", "theme"): "not used",
        ("settings.local.json", "file"): "not used",
        ("settings.local.json", "model"): "not used",
    }


async def test_an_agent_with_untrusted_hooks_is_listed_as_not_used(
    shoal: ShoalProgram, project: Path
) -> None:
    file = project / ".claude/agents/rev.md"
    file.parent.mkdir(parents=True)
    hooks = 'hooks:\n  PreToolUse:\n    - hooks:\n        - type: command\n          command: "true"\n'
    file.write_text(f"---\nname: rev\ndescription: d\n{hooks}---\nReview.\n")
    assert (await list_items(shoal))["rev.md", "agent rev"] == "not used"


async def test_a_model_that_the_start_replaces_is_not_listed_as_refused(
    shoal: ShoalProgram, home: Path
) -> None:
    write_json(home / "settings.json", {"model": "opusplan", "availableModels": ["sonnet", "haiku"]})
    ran = await shoal("doctor", "--claude")
    assert (ran.code, "refused" in ran.text) == (0, False)
    assert (await list_items(shoal))["settings.json", "model"] == "used"


async def test_a_state_file_that_cannot_be_read_is_listed(shoal: ShoalProgram, home: Path) -> None:
    (home / ".claude.json").write_text("{broken")
    ran = await shoal("doctor", "--claude")
    assert f"not used    file  → Cannot read {home / '.claude.json'}, so its MCP servers" in ran.text


async def test_entries_of_the_state_file_with_wrong_types_are_listed(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    path = home / ".claude.json"
    write_json(path, {"mcpServers": {"odd": 5}, "projects": {str(project): {"mcpServers": []}}})
    ran = await shoal("doctor", "--claude")
    assert "not used    mcpServers.odd  → expected an object\n" in ran.text
    assert f"not used    projects[{project}].mcpServers  → expected an object\n" in ran.text
    assert "2 not used." in ran.text
    assert f"{path}: mcpServers.odd: expected an object." in (await shoal("mcp", "ls")).err
    write_json(path, {"projects": {str(project): {"disabledMcpServers": "odd"}}})
    ran = await shoal("doctor", "--claude")
    assert f"{path}\n  refused     file  → {path}:4: projects[{project}].disabledMcpServers: " in ran.text


async def test_agents_and_skills_that_cannot_start_are_not_listed_as_used(
    shoal: ShoalProgram, home: Path
) -> None:
    (home / "agents").mkdir()
    for name, field in (("one", "mcpServers: [gone]"), ("two", "skills: [gone]"), ("three", "skills: [ok]")):
        text = f"---\nname: {name}\ndescription: d\n{field}\n---\nx\n"
        (home / f"agents/{name}.md").write_text(text)
    for name, field in (("ok", ""), ("lost", "context: fork\nagent: gone\n"), ("fork", "context: fork\n")):
        (home / f"skills/{name}").mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: d\n{field}---\nx\n"
        (home / f"skills/{name}/SKILL.md").write_text(text)
    ran = await shoal("doctor", "--claude")
    assert "not used    agent one  → no MCP server named 'gone' is configured" in ran.text
    assert "not used    agent two  → there is no skill 'gone'" in ran.text
    assert "not used    skill lost  → there is no agent 'gone'" in ran.text
    items = await list_items(shoal)
    assert {items["three.md", "agent three"], items["SKILL.md", "skill ok"]} == {"used"}
    assert items["SKILL.md", "skill fork"] == "used"


async def test_an_agent_that_a_rule_denies_is_not_listed_as_used_or_offered(
    shoal: ShoalProgram, home: Path
) -> None:
    write_json(home / "settings.json", {"permissions": {"deny": ["Agent(one)", "Task(Plan)"]}})
    (home / "agents").mkdir()
    for name in ("one", "two"):
        (home / f"agents/{name}.md").write_text(f"---\nname: {name}\ndescription: about {name}\n---\nx\n")
    items = await list_items(shoal)
    assert (items["one.md", "agent one"], items["two.md", "agent two"]) == ("not used", "used")
    async with messages_server(["done"]) as server:
        await shoal("-p", "go", ANTHROPIC_BASE_URL=server.url, ANTHROPIC_API_KEY="sk-for-tests")
    (agent,) = (each for each in server.requests[0].body["tools"] if each["name"] == "Agent")
    offered = re.findall(r"^- ([\w-]+):", agent["description"], re.MULTILINE)
    assert {"two", "Explore"} <= set(offered)
    assert {"one", "Plan"}.isdisjoint(offered)


async def test_a_skill_that_a_rule_denies_is_not_listed_as_used(shoal: ShoalProgram, home: Path) -> None:
    write_json(
        home / "settings.json", {"permissions": {"deny": ["Skill(typed)", "Skill(forks)", "Skill(mine)"]}}
    )
    for name, field in (("typed", ""), ("forks", "context: fork\n"), ("free", "")):
        (home / f"skills/{name}").mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: d\n{field}---\nx\n"
        (home / f"skills/{name}/SKILL.md").write_text(text)
    (home / "commands").mkdir()
    (home / "commands/mine.md").write_text("Sum up.\n")
    ran = await shoal("doctor", "--claude")
    assert (
        "not used    skill typed  → permissions.deny forbids it for agents; only you can run it" in ran.text
    )
    assert "not used    skill forks  → permissions.deny forbids it\n" in ran.text
    assert "  used        skill free\n" in ran.text
    assert (
        "not used    command mine  → permissions.deny forbids it for agents; only you can run it" in ran.text
    )


async def test_a_command_is_listed_as_used_because_agents_can_run_it_too(
    shoal: ShoalProgram, home: Path
) -> None:
    (home / "commands").mkdir()
    (home / "commands/standup.md").write_text("Sum up.\n")
    (home / "commands/mine.md").write_text("---\ndisable-model-invocation: true\n---\nSum up.\n")
    ran = await shoal("doctor", "--claude")
    assert "used        command standup\n" in ran.text
    assert "used        command mine\n" in ran.text


async def test_certificates_for_node_are_listed_as_not_used(shoal: ShoalProgram, home: Path) -> None:
    write_json(home / "settings.json", {"env": {"NODE_EXTRA_CA_CERTS": "/x.pem", "OTHER": "1"}})
    items = await list_items(shoal)
    assert items["settings.json", "env.NODE_EXTRA_CA_CERTS"] == "not used"
    assert items["settings.json", "env.OTHER"] == "used"


async def test_a_broken_name_stays_on_the_line_of_its_item(shoal: ShoalProgram, home: Path) -> None:
    (home / "agents").mkdir()
    (home / "agents/odd.md").write_text("---\nname: odd\n: : [\n---\nx\n")
    ran = await shoal("doctor", "--claude")
    (line,) = [line for line in ran.text.splitlines() if "not used    agent odd" in line]
    assert "is not a valid name" in line
