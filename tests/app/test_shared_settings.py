"""Settings and files of Claude Code that a session uses: managed files, `.claude.json`, agent, language."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import call_tool, run_all_turns, spawn_agent
from shoal.app.options import Options
from shoal.app.reports.permission_report import build_session_permission_report
from shoal.app.session.session import Session
from shoal.app.settings import settings_files
from shoal.app.settings.mcp_files import load_mcp_servers
from shoal.app.settings.settings import load_settings
from shoal.app.settings.settings_trust import save_project_trust_decision
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import SettingsError
from shoal.models.scripted_model import ScriptedModel
from shoal.surfaces.tui.launch import choose_textual_theme

AGENT = "---\nname: reader\ndescription: reads\n{fields}---\nYou only read.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def home() -> Path:
    return Path(os.environ["SHOAL_HOME"])


@pytest.fixture
def managed_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "etc"
    monkeypatch.setattr(settings_files, "MANAGED_FILES", (directory / "managed-settings.json",))
    return directory


def write_json(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1))
    return path


async def record_requests(
    project: Path, *script: Any, **options: Any
) -> tuple[list[ModelRequest], list[str]]:
    """Run a session with this script for all agents; return its requests and its notes."""
    requests: list[ModelRequest] = []
    lines = [*script, "done"]

    def choose_reply(request: ModelRequest) -> Any:
        requests.append(request)
        return lines[min(len(requests), len(lines)) - 1]

    async with shoal.open(cwd=project, model=ScriptedModel(choose_reply), **options) as session:
        notes = list(session.notes)
        await run_all_turns(session, "go")
    return requests, notes


def make_server(program: str) -> dict[str, Any]:
    return {"command": program}


def list_servers(project: Path) -> dict[str, str]:
    """Return the program of each MCP server that a session would start."""
    found = load_mcp_servers(load_settings(cwd=project), cwd=project).servers
    return {server.name: server.connection.command for server in found}  # type: ignore[union-attr]


@pytest.mark.spec("CMP-004")
async def test_parts_of_managed_settings_override_in_the_order_of_their_names(
    project: Path, managed_directory: Path
) -> None:
    write_json(managed_directory / "managed-settings.json", {"env": {"A": "base", "B": "base"}})
    write_json(managed_directory / "managed-settings.d/10-a.json", {"env": {"B": "10", "C": "10"}})
    write_json(
        managed_directory / "managed-settings.d/20-b.json",
        {"env": {"C": "20"}, "permissions": {"deny": ["Bash"]}},
    )
    write_json(managed_directory / "managed-settings.d/.hidden.json", {"env": {"A": "hidden"}})
    settings = load_settings(cwd=project)
    assert dict(settings.env) == {"A": "base", "B": "10", "C": "20"}
    requests, _ = await record_requests(project)
    assert "Bash" not in {tool.name for tool in requests[0].tools}
    (managed_directory / "managed-settings.d/30-c.json").write_text("{")
    with pytest.raises(SettingsError, match=r"30-c\.json:1: not valid JSON"):
        await record_requests(project)


@pytest.mark.spec("CMP-004")
async def test_managed_instructions_come_first(project: Path, managed_directory: Path, home: Path) -> None:
    managed_directory.mkdir()
    (managed_directory / "CLAUDE.md").write_text("Company rule.\n")
    (home / "CLAUDE.md").write_text("My rule.\n")
    requests, _ = await record_requests(project, spawn_agent("go"))
    for request in requests:
        assert -1 < str(request.system).find("Company rule.") < str(request.system).find("My rule.")


@pytest.mark.spec("CMP-004")
def test_a_managed_server_file_alone_defines_the_servers(
    project: Path, managed_directory: Path, home: Path
) -> None:
    write_json(home / "settings.json", {"mcpServers": {"mine": make_server("mine")}})
    write_json(home / ".claude.json", {"mcpServers": {"more": make_server("more")}})
    write_json(managed_directory / "managed-mcp.json", {"mcpServers": {"corp": make_server("corp")}})
    assert list_servers(project) == {"corp": "corp"}
    settings = load_settings(cwd=project)
    given = [{"mcpServers": {"flag": make_server("flag")}}]
    for strict in (False, True):
        found = load_mcp_servers(settings, given, strict=strict, cwd=project)
        assert [server.name for server in found.servers] == ["corp"]
    (managed_directory / "managed-mcp.json").write_text("{\n")
    with pytest.raises(SettingsError, match=r"managed-mcp\.json:2: not valid JSON"):
        load_settings(cwd=project)


@pytest.mark.spec("CMP-004")
async def test_an_agent_cannot_add_servers_to_managed_ones(
    project: Path, managed_directory: Path, home: Path
) -> None:
    write_json(managed_directory / "managed-mcp.json", {"mcpServers": {}})
    fields = "mcpServers:\n  - own:\n      command: own\n"
    (home / "agents").mkdir()
    (home / "agents/reader.md").write_text(AGENT.format(fields=fields))
    requests, _ = await record_requests(project, spawn_agent("go", subagent_type="reader"))
    assert "managed-mcp.json may run" in str(requests[-1].messages)


@pytest.mark.spec("CMP-006")
async def test_variables_of_settings_override_those_of_the_shell(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARED_VARIABLE", "shell")
    write_json(home / "settings.json", {"env": {"SHARED_VARIABLE": "settings"}})
    requests, _ = await record_requests(project, call_tool("Bash", command="echo is $SHARED_VARIABLE"))
    assert "is settings" in str(requests[-1].messages)


@pytest.mark.spec("CMP-006")
async def test_an_empty_variable_of_settings_unsets_that_of_the_shell(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARED_VARIABLE", "shell")
    write_json(home / "settings.json", {"env": {"SHARED_VARIABLE": ""}})
    requests, _ = await record_requests(project, call_tool("Bash", command="echo is.$SHARED_VARIABLE."))
    assert "is.." in str(requests[-1].messages)


@pytest.mark.spec("CMP-006")
async def test_variables_of_a_project_need_trust(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARED_VARIABLE", "shell")
    write_json(project / ".claude/settings.json", {"env": {"SHARED_VARIABLE": "project"}})
    call = call_tool("Bash", command="echo is $SHARED_VARIABLE")
    requests, _ = await record_requests(project, call)
    assert "is shell" in str(requests[-1].messages)
    save_project_trust_decision(load_settings(cwd=project), project, trusted=True)
    requests, _ = await record_requests(project, call)
    assert "is project" in str(requests[-1].messages)


@pytest.mark.spec("CMP-007")
@pytest.mark.parametrize("by_flag", [False, True])
async def test_the_lead_takes_prompt_tools_and_denials_of_an_agent(
    project: Path, home: Path, by_flag: bool
) -> None:
    (home / "agents").mkdir()
    fields = "tools: Read, Bash(echo:*), Write\ndisallowedTools: Write, Read(secret)\n"
    (home / "agents/reader.md").write_text(AGENT.format(fields=fields))
    write_json(home / "settings.json", {"agent": "other" if by_flag else "reader"})
    (project / "secret").write_text("hidden\n")
    options: dict[str, Any] = {"agent": "reader"} if by_flag else {}
    requests, _ = await record_requests(
        project,
        call_tool("Bash", "c1", command="touch made"),
        call_tool("Read", "c2", file_path="secret"),
        call_tool("Bash", "c3", command="echo fine"),
        skip_permissions=True,
        **options,
    )
    assert str(requests[0].system).startswith("You only read.")
    assert {tool.name for tool in requests[0].tools} == {"Read", "Bash"}
    assert not (project / "made").exists()
    assert "hidden" not in str(requests[-1].messages)
    assert "fine" in str(requests[-1].messages)


@pytest.mark.spec("CMP-077")
async def test_missing_tools_of_the_leads_agent_are_reported_to_the_user_and_the_lead(
    project: Path, home: Path
) -> None:
    (home / "agents").mkdir()
    path = home / "agents/reader.md"
    path.write_text(AGENT.format(fields="tools: Read, LS, WebSearch, FutureTool, mcp__late__look\n"))
    requests, notes = await record_requests(project, agent="reader")
    assert {tool.name for tool in requests[0].tools} == {"Read", "Glob"}
    assert "not available here: WebSearch, FutureTool." in str(requests[0].system)
    sentence = "the agent reader names tools that are not available here: WebSearch, FutureTool."
    assert [note for note in notes if sentence in note] == [f"{path}:4: {sentence}"]
    path.write_text(AGENT.format(fields="tools: WebSearch, FutureTool\n"))
    with pytest.raises(SettingsError, match="names only tools that are not available here: WebSearch"):
        await record_requests(project, agent="reader")


@pytest.mark.spec("CMP-007")
@pytest.mark.parametrize("by_flag", [False, True])
async def test_an_unknown_agent_for_the_lead_ends_the_start(project: Path, home: Path, by_flag: bool) -> None:
    if not by_flag:
        write_json(home / "settings.json", {"agent": "nobody"})
    with pytest.raises(SettingsError, match="agent=: .*nobody" if by_flag else r"settings\.json:2: agent: "):
        await record_requests(project, agent="nobody" if by_flag else None)


@pytest.mark.spec("CMP-007")
async def test_the_agent_of_the_lead_chooses_the_model(project: Path, home: Path) -> None:
    write_json(project / "script.json", [{"text": "from the script"}])
    (home / "agents").mkdir()
    fields = f"model: scripted:{project / 'script.json'}\n"
    (home / "agents/reader.md").write_text(AGENT.format(fields=fields))
    async with shoal.open(cwd=project, agent="reader") as session:
        assert await run_all_turns(session, "go") == "from the script"


LEAD_HOOKS = """hooks:
  PreToolUse:
    - matcher: Write
      hooks:
        - type: command
          command: echo from-the-agent >&2; exit 2
"""


def write_reader(directory: Path, fields: str) -> Path:
    (directory / "agents").mkdir(parents=True)
    path = directory / "agents/reader.md"
    path.write_text(AGENT.format(fields=fields))
    return path


def write_file(name: str) -> Any:
    return call_tool("Write", name, file_path=name, content="x")


@pytest.mark.spec("CMP-007")
@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, ""), ({"mode": "acceptEdits"}, "acceptEdits"), ({"skip_permissions": True}, "bypass")],
)
async def test_the_lead_keeps_the_mode_of_its_agent(
    project: Path, home: Path, given: dict[str, Any], expected: str
) -> None:
    write_json(home / "settings.json", {"permissions": {"defaultMode": "acceptEdits"}})
    path = write_reader(home, "permissionMode: plan\n")
    _, notes = await record_requests(project, write_file("made"), agent="reader", **given)
    assert not (project / "made").exists()
    about_mode = [note for note in notes if "permissionMode" in note]
    assert len(about_mode) == bool(expected)
    assert all(
        note.startswith(f"{path}:4: permissionMode: plan applies") and expected in note for note in about_mode
    )


@pytest.mark.spec("CMP-007")
@pytest.mark.parametrize(("by_user", "has_flag"), [(True, False), (True, True), (False, False)])
async def test_only_the_users_own_agent_widens_the_mode_of_the_lead(
    project: Path, home: Path, by_user: bool, has_flag: bool
) -> None:
    write_reader(home if by_user else project / ".claude", "permissionMode: acceptEdits\n")
    given = {"mode": "default"} if has_flag else {}
    _, notes = await record_requests(project, write_file("made"), agent="reader", **given)
    is_wider = by_user and not has_flag
    assert (project / "made").exists() == is_wider
    assert any("acceptEdits is not used; the mode is default" in note for note in notes) == (not is_wider)


@pytest.mark.spec("CMP-007")
async def test_no_agent_bypasses_permissions_of_the_lead(project: Path, home: Path) -> None:
    write_reader(home, "permissionMode: bypassPermissions\n")
    _, notes = await record_requests(project, write_file("made"), agent="reader")
    assert not (project / "made").exists()
    assert any("bypassPermissions is not used; the mode is default" in note for note in notes)


@pytest.mark.spec("CMP-007")
@pytest.mark.parametrize(("limit", "expected"), [(None, 1), (5, 1)])
async def test_the_lead_keeps_the_turn_limit_of_its_agent(
    project: Path, home: Path, limit: int | None, expected: int
) -> None:
    write_reader(home, "maxTurns: 1\n")
    requests, _ = await record_requests(
        project, call_tool("Glob", "c1", pattern="*"), agent="reader", max_turns=limit
    )
    assert len(requests) == expected


@pytest.mark.spec("CMP-007")
@pytest.mark.parametrize("by_flag", [False, True])
async def test_the_lead_keeps_the_hooks_of_its_agent(project: Path, home: Path, by_flag: bool) -> None:
    write_reader(home, LEAD_HOOKS)
    write_json(home / "settings.json", {} if by_flag else {"agent": "reader"})
    options: dict[str, Any] = {"agent": "reader"} if by_flag else {}
    requests, _ = await record_requests(project, write_file("made"), skip_permissions=True, **options)
    assert not (project / "made").exists()
    assert "from-the-agent" in str(requests[-1].messages)


@pytest.mark.spec("CMP-007")
@pytest.mark.parametrize("by_flag", [False, True])
async def test_untrusted_hooks_of_the_leads_agent_end_the_start(
    project: Path, home: Path, by_flag: bool
) -> None:
    write_reader(project / ".claude", LEAD_HOOKS)
    write_json(home / "settings.json", {} if by_flag else {"agent": "reader"})
    origin = "agent=: " if by_flag else r"settings\.json:2: agent: "
    with pytest.raises(SettingsError, match=f"{origin}The agent reader .*hooks that are not trusted"):
        await record_requests(project, agent="reader" if by_flag else None)


@pytest.mark.spec("CMP-007", "DEF-09")
async def test_the_lead_gets_effort_skills_and_initial_prompt_of_its_agent(project: Path, home: Path) -> None:
    write_reader(home, "effort: high\nskills: [census]\ninitialPrompt: Look around first.\n")
    (home / "skills/census").mkdir(parents=True)
    (home / "skills/census/SKILL.md").write_text("---\nname: census\ndescription: d\n---\nCount all.\n")
    with (home / "skills/census/SKILL.md").open("a") as file:
        file.write("In ${CLAUDE_SKILL_DIR} of ${CLAUDE_SESSION_ID}: $ARGUMENTS.\n")
    lines: list[ModelRequest] = []

    def reply(request: ModelRequest) -> str:
        lines.append(request)
        return "done"

    async with shoal.open(cwd=project, model=ScriptedModel(reply), agent="reader") as session:
        await run_all_turns(session, "go")
        await run_all_turns(session, "again")
        first = session.id
    async with shoal.open(cwd=project, model=ScriptedModel(reply), agent="reader", resume=first) as session:
        await run_all_turns(session, "more")
    assert lines[0].thinking_tokens == 16_384
    for request in lines:
        text = str(request.messages)
        assert f"In {home / 'skills/census'} of {first}: ." in text
        assert text.count("Look around first.") == text.count("Count all.") == 1
        assert text.index("Look around first.") < text.index("Count all.") < text.index("go")
    (home / "skills/census/SKILL.md").unlink()
    with pytest.raises(SettingsError, match=r"agent=: .*skill 'census' failed"):
        await record_requests(project, agent="reader")


@pytest.mark.spec("CMP-007")
async def test_one_note_names_what_the_lead_does_not_use_of_its_agent(project: Path, home: Path) -> None:
    path = write_reader(home, "memory: user\nisolation: worktree\n")
    _, notes = await record_requests(project, agent="reader")
    sentence = f"{path}: as the lead, the agent reader does not use its memory, isolation."
    assert [note for note in notes if "reader" in note] == [sentence]


@pytest.mark.spec("CMP-008")
async def test_a_language_is_asked_of_the_lead_only(project: Path, home: Path) -> None:
    write_json(home / "settings.json", {"language": "Klingon\nand more", "theme": "light-daltonized"})
    requests, _ = await record_requests(project, spawn_agent("go"))
    assert "Always answer the user in Klingon and more." in str(requests[0].system)
    assert "Klingon" not in str(requests[1].system)
    theme = load_settings(cwd=project).own.theme
    assert choose_textual_theme(theme, {}) == "textual-light"


@pytest.mark.spec("CMP-008")
@pytest.mark.parametrize(
    ("theme", "expected"), [("dark-ansi", "ansi"), ("auto", None), ("custom:mine", None), ("dark", "dark")]
)
def test_a_theme_is_the_nearest_one(project: Path, home: Path, theme: str, expected: str | None) -> None:
    write_json(home / "settings.json", {"theme": theme})
    settings = load_settings(cwd=project)
    assert settings.own.theme == expected
    assert [item.name for item in settings.findings.unused_items] == (
        ["theme"] if theme == "custom:mine" else []
    )


@pytest.mark.spec("CMP-009")
@pytest.mark.parametrize(
    ("settings", "expected", "unexpected"),
    [
        (
            {"attribution": {"commit": "Made-by: me"}},
            ["this text:\nMade-by: me"],
            "Add no",
        ),
        (
            {"attribution": {"commit": "", "pr": "By a team"}},
            ["attribution to commit messages.", "By a team"],
            "=",
        ),
        ({"includeCoAuthoredBy": False}, ["attribution to commit messages and pull requests."], "End every"),
        ({"includeCoAuthoredBy": False, "attribution": {"pr": "x"}}, ["End every pull request"], "Add no"),
    ],
)
async def test_agents_attribute_commits_as_configured(
    project: Path, home: Path, settings: dict[str, Any], expected: list[str], unexpected: str
) -> None:
    write_json(home / "settings.json", settings)
    requests, _ = await record_requests(project, spawn_agent("go"))
    assert len(requests) > 2
    for request in requests:
        assert all(text in str(request.system) for text in expected)
        assert unexpected not in str(request.system).rpartition("Where you are")[2]


@pytest.mark.spec("CMP-010")
@pytest.mark.parametrize(
    ("setting", "is_used"), [("docs/plans", True), ("../plans", False), ("/plans", False), ("~/plans", False)]
)
async def test_plans_are_stored_in_the_configured_directory_of_the_project(
    project: Path, home: Path, setting: str, is_used: bool
) -> None:
    write_json(home / "settings.json", {"plansDirectory": setting})
    requests, notes = await record_requests(project, call_tool("EnterPlanMode"))
    expected = project / "docs/plans" if is_used else home / "plans"
    assert f"{expected}/" in str(requests[-1].messages)
    assert bool([note for note in notes if "1 item in your settings is not used" in note]) is not is_used


@pytest.mark.spec("CMP-011")
async def test_a_cleanup_period_of_zero_days_is_noted(project: Path, home: Path) -> None:
    write_json(home / "settings.json", {"cleanupPeriodDays": 0})
    _, notes = await record_requests(project)
    assert [note for note in notes if "settings.json:2: cleanupPeriodDays is 0" in note]


@pytest.mark.spec("CMP-012")
async def test_servers_of_the_state_file_count_for_user_and_project(project: Path, home: Path) -> None:
    own = {
        "mcpServers": {"both": make_server("private"), "here": make_server("here")},
        "allowedTools": ["Bash"],
    }
    other = {"mcpServers": {"elsewhere": make_server("elsewhere")}}
    content = {
        "mcpServers": {"both": make_server("user"), "all": make_server("all")},
        "projects": {str(project): own, "/elsewhere": other},
        "history": ["x"],
    }
    path = write_json(home / ".claude.json", content)
    assert list_servers(project) == {"both": "private", "here": "here", "all": "all"}
    assert [item.name for item in load_settings(cwd=project).findings.unused_items] == [
        f"projects[{project}].allowedTools"
    ]
    _, notes = await record_requests(project, call_tool("Bash", command="touch made"))
    assert not (project / "made").exists()
    assert sum("not used: run shoal doctor" in note for note in notes) == 1
    path.write_text("{")
    _, notes = await record_requests(project)
    assert any(f"Cannot read {path}" in note for note in notes)


@pytest.mark.spec("CMP-012")
async def test_entries_of_the_state_file_with_wrong_types_are_counted(project: Path, home: Path) -> None:
    own = {
        "mcpServers": {"here": make_server("here"), "odd": "x"},
        "enabledMcpjsonServers": "here",
        "hasTrustDialogAccepted": "yes",
        "disabledMcpServers": None,
    }
    path = home / ".claude.json"
    write_json(path, {"mcpServers": {"all": make_server("all"), "odd": 5}, "projects": {str(project): own}})
    assert list_servers(project) == {"here": "here", "all": "all"}
    names = [item.name for item in load_settings(cwd=project).findings.unused_items]
    place = f"projects[{project}]"
    parts = ("hasTrustDialogAccepted", "mcpServers.odd", "enabledMcpjsonServers")
    assert names == [*(f"{place}.{part}" for part in parts), "mcpServers.odd"]
    _, notes = await record_requests(project)
    assert [note for note in notes if "not used" in note] == [
        "4 items in your settings are not used: run shoal doctor --claude"
    ]
    assert not any("odd" in note for note in notes)
    write_json(path, {"mcpServers": ["all"], "projects": {str(project): 5}})
    items = load_settings(cwd=project).findings.unused_items
    assert [(item.name, item.reason) for item in items] == [
        (place, "expected an object"),
        ("mcpServers", "expected an object"),
    ]
    write_json(path, {"mcpServers": {"all": make_server("all")}, "projects": "x"})
    assert list_servers(project) == {"all": "all"}
    assert [item.name for item in load_settings(cwd=project).findings.unused_items] == ["projects"]


@pytest.mark.spec("CMP-012")
@pytest.mark.parametrize("key", ["disabledMcpServers", "disabledMcpjsonServers"])
@pytest.mark.parametrize("value", ["here", ["here", 5], {"here": True}, 0])
def test_disabled_servers_in_the_state_file_that_cannot_be_read_are_refused(
    project: Path, home: Path, key: str, value: Any
) -> None:
    path = write_json(home / ".claude.json", {"projects": {str(project): {"mcpServers": {}, key: value}}})
    with pytest.raises(SettingsError) as error:
        load_settings(cwd=project)
    line = 1 + next(n for n, text in enumerate(path.read_text().splitlines()) if key in text)
    assert str(error.value).startswith(
        f"{path}:{line}: projects[{project}].{key}: expected a list of strings"
    )


@pytest.mark.spec("CMP-012")
@pytest.mark.parametrize("key", ["disabledMcpServers", "disabledMcpjsonServers"])
def test_a_state_file_that_cannot_be_parsed_is_refused_if_it_turns_servers_off(
    project: Path, home: Path, key: str
) -> None:
    path = write_json(home / ".claude.json", {"projects": {str(project): {key: ["here"]}}})
    path.write_text(path.read_text()[:-1])
    with pytest.raises(SettingsError, match="It lists servers that you turned off, and they would start"):
        load_settings(cwd=project)
    write_json(path, {"projects": {str(project): {key: []}}})
    path.write_text(path.read_text()[:-1])
    load_settings(cwd=project)


@pytest.mark.spec("CMP-012")
async def test_a_project_trusted_elsewhere_is_offered_until_you_answer(project: Path, home: Path) -> None:
    write_json(home / ".claude.json", {"projects": {str(project): {"hasTrustDialogAccepted": True}}})
    write_json(project / ".claude/settings.json", {"permissions": {"allow": ["Bash(touch:*)"]}})
    offer = "You trust this project in Claude Code"
    _, notes = await record_requests(project, call_tool("Bash", command="touch made"))
    assert sum(offer in note for note in notes) == 1
    assert not (project / "made").exists()
    save_project_trust_decision(load_settings(cwd=project), project, trusted=False)
    _, notes = await record_requests(project)
    assert not any(offer in note for note in notes)


@pytest.mark.spec("CMP-012")
def test_the_state_file_next_to_the_default_home_is_found(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOAL_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    write_json(tmp_path / ".claude.json", {"mcpServers": {"all": make_server("all")}})
    assert list_servers(project) == {"all": "all"}


@pytest.mark.spec("CMP-005")
@pytest.mark.parametrize("is_limited", [True, False])
async def test_with_managed_hooks_only_no_other_hook_runs(
    project: Path, home: Path, managed_directory: Path, tmp_path: Path, is_limited: bool
) -> None:
    def make_hook(name: str) -> dict[str, Any]:
        action = {"type": "command", "command": f"cat > /dev/null; echo {name} >> '{tmp_path}/log'"}
        return {"PreToolUse": [{"matcher": "Glob", "hooks": [action]}]}

    write_json(
        managed_directory / "managed-settings.json",
        {"allowManagedHooksOnly": is_limited, "hooks": make_hook("managed")},
    )
    write_json(home / "settings.json", {"hooks": make_hook("user")})
    fields = f"hooks: {json.dumps(make_hook('agent'))}\n"
    (home / "agents").mkdir()
    (home / "agents" / "reader.md").write_text(AGENT.format(fields=fields))
    skill = home / "skills" / "look" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    hooks = json.dumps(make_hook("skill"))
    skill.write_text(f"---\nname: look\ndescription: looks\nhooks: {hooks}\n---\nLook.\n")
    script = [
        call_tool("Skill", "s", skill="look"),
        spawn_agent("go", subagent_type="reader"),
        call_tool("Glob", "g", pattern="*"),
    ]
    await record_requests(project, *script, settings=json.dumps({"hooks": make_hook("flag")}))
    ran = set((tmp_path / "log").read_text().split())
    assert ran == ({"managed"} if is_limited else {"managed", "user", "agent", "skill", "flag"})


@pytest.mark.spec("CMP-005", "CMP-088")
def test_with_managed_servers_only_the_list_of_every_file_must_permit_a_server(
    project: Path, home: Path, managed_directory: Path
) -> None:
    write_json(
        managed_directory / "managed-settings.json",
        {"allowManagedMcpServersOnly": True, "allowedMcpServers": [{"serverName": "wiki"}]},
    )
    servers = {name: {"command": "true"} for name in ("wiki", "other")}
    allowed = [{"serverName": "other"}, {"serverName": "wiki"}]
    write_json(home / "settings.json", {"mcpServers": servers, "allowedMcpServers": allowed})
    configured = load_mcp_servers(load_settings(cwd=project), cwd=project)
    assert [server.name for server in configured.servers] == ["wiki"]


@pytest.mark.spec("CMP-007")
async def test_the_report_of_permissions_names_the_file_of_the_lead_agent(project: Path) -> None:
    path = project / ".claude/agents/careful.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("---\nname: careful\ndescription: d\ndisallowedTools: WebFetch, Bash(rm:*)\n---\np\n")
    options = Options(
        cwd=project,
        model=ScriptedModel(["done"]),
        agent="careful",
        allowed_tools=["WebFetch"],
        disallowed_tools=["Write"],
    )
    denied = {"Write": "--disallowedTools", "WebFetch": f"{path}:4", "Bash(rm:*)": f"{path}:4"}
    async with Session(options) as session:

        def list_denied() -> dict[str, str]:
            rules = build_session_permission_report(session).rules
            return {row.rule: row.source for row in rules if row.behavior == "deny"}

        assert list_denied() == denied
        settings = write_json(project / ".claude/settings.json", {"permissions": {"deny": ["Edit"]}})
        await run_all_turns(session)
        assert list_denied() == {**denied, "Edit": f"{settings}:4"}
