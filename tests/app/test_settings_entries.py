"""Entries of shared settings that only add comfort: a session starts without them and says so in one line."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import run_all_turns
from shoal.app.doctor.claude_items import list_claude_items
from shoal.app.reports.permission_report import create_permission_engine
from shoal.app.settings.claude_keys import CLAUDE_KEYS
from shoal.app.settings.settings import load_settings
from shoal.app.settings.settings_writer import save_permission_suggestion
from shoal.core.agents.identity import AgentIdentity
from shoal.core.conversation.messages import ToolResultBlock, ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import SettingsError
from shoal.core.ids import SessionId
from shoal.core.permissions.permission_changes import AddPermissionRulesSuggestion, SuggestedPermissionRule
from shoal.core.permissions.permission_decisions import AllowDecision, DenyDecision
from shoal.models.scripted_model import ScriptedModel
from shoal.tools.function_tool import tool
from shoal.wire.agent_definition_codec import parse_json_agent_definitions

SUMMARY = "not used: run shoal doctor --claude"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


def write_user_settings(content: str | dict[str, Any]) -> Path:
    path = Path(os.environ["SHOAL_HOME"]) / "settings.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return path


async def run_calls(project: Path, *calls: ToolUseBlock, **options: Any) -> tuple[ModelRequest, list[str]]:
    """Run a session that makes these calls; return its last request and its notes."""
    requests: list[ModelRequest] = []

    def choose_reply(request: ModelRequest) -> Any:
        requests.append(request)
        return [*calls, "done"][len(requests) - 1]

    async with shoal.open(cwd=project, model=ScriptedModel(choose_reply), **options) as session:
        notes = list(session.notes)
        await run_all_turns(session, "go")
    return requests[-1], notes


def list_results(request: ModelRequest) -> list[str]:
    blocks = (block for message in request.messages for block in message.content)
    return [str(block) for block in blocks if isinstance(block, ToolResultBlock)]


def make_call(name: str, number: int = 1, **arguments: Any) -> ToolUseBlock:
    return ToolUseBlock(id=f"c{number}", name=name, input=arguments)


@pytest.mark.spec("CMP-001")
async def test_settings_with_comments_and_trailing_commas_are_read(project: Path) -> None:
    rules = '"permissions": {\n  "deny": ["Write",], /* "Edit", */\n }'
    text = f'{{\n // mine\n {rules},\n "env": {{"A": "//x,]",}},\n}}\n'
    path = write_user_settings(text)
    settings = load_settings(cwd=project)
    assert [rule.source for rule in settings.permissions.rules.deny] == [f"{path}:4"]
    assert settings.env == {"A": "//x,]"}
    request, _ = await run_calls(project)
    assert "Write" not in {each.name for each in request.tools}
    save_permission_suggestion(
        AddPermissionRulesSuggestion(rules=(SuggestedPermissionRule(tool_name="Read"),)), path
    )
    kept = text.replace('/* "Edit", */', '/* "Edit", */\n  "allow": [\n   "Read"\n  ],')
    assert path.read_text() == kept


@pytest.mark.spec("CMP-001")
async def test_a_broken_file_ends_the_start_with_its_line(project: Path) -> None:
    write_user_settings('{\n "permissions": { // all\n  "deny": ["Write"]\n}')
    with pytest.raises(SettingsError, match=r"settings\.json:4: not valid JSON"):
        await run_calls(project)


@pytest.mark.spec("CMP-002")
async def test_unusable_entries_of_comfort_cost_one_line_and_the_rest_counts(project: Path) -> None:
    permissions = {
        "allow": ["Bash(", 5, "Bash(touch:*)", "mcp__*", "*"],
        "additionalDirectories": "x",
        "defaultMode": "yolo",
        "deny": ["WebFetch"],
    }
    path = write_user_settings(
        {"model": 5, "env": {"A": [1], "B": "2"}, "permissions": permissions, "shoal": {"theme": "blue"}}
    )
    settings = load_settings(cwd=project)
    assert (settings.models.main, dict(settings.env), settings.own.theme) == (None, {"B": "2"}, None)
    lines = {item.name: item.location.removeprefix(f"{path}:") for item in settings.findings.unused_items}
    assert len(lines) == 9
    assert lines["env.A"] == "4"
    assert lines["permissions.allow 'Bash('"] == "11"
    request, notes = await run_calls(project, make_call("Bash", command="touch made"))
    assert (project / "made").exists()
    assert "WebFetch" not in {each.name for each in request.tools}
    assert [note for note in notes if "not used" in note] == [f"9 items in your settings are {SUMMARY}"]


@pytest.mark.spec("CMP-002")
def test_an_allow_rule_for_a_misspelled_tool_is_reported_and_one_for_another_program_is_not(
    project: Path,
) -> None:
    write_user_settings({"permissions": {"allow": ["bash(ls:*)", "Bash(ls:*)", "Monitor", "MyOwnTool"]}})
    (item,) = load_settings(cwd=project).findings.unused_items
    assert (item.name, item.reason) == ("permissions.allow 'bash(ls:*)'", "there is no tool bash; write Bash")


@pytest.mark.spec("CMP-002", "CMP-014")
async def test_values_of_the_wrong_kind_are_left_out_if_they_narrow_nothing(project: Path) -> None:
    hook = {"hooks": [{"type": "command", "command": "echo ran > hooked"}]}
    write_user_settings(
        {
            "disableAllHooks": "yes",
            "autoMemoryEnabled": 1,
            "outputStyle": ["Concise"],
            "claudeMdExcludes": ["/x", 1],
            "enabledMcpjsonServers": [{"name": "x"}],
            "modelOverrides": {"claude-opus-5-5": 5},
            "permissions": {"defaultMode": 7},
            "hooks": {"SessionStart": [hook]},
        }
    )
    _, notes = await run_calls(project)
    assert (project / "hooked").exists()
    assert [note for note in notes if "not used" in note] == [f"7 items in your settings are {SUMMARY}"]


@pytest.mark.spec("CMP-002", "CMP-075")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("disabledMcpServers", "github"),
        ("disabledMcpServers", [{"serverName": "github"}]),
        ("disableSkillShellExecution", "true"),
        ("skillOverrides", ["deploy"]),
    ],
)
def test_a_value_of_the_wrong_kind_ends_the_start_if_it_would_narrow(
    project: Path, key: str, value: Any
) -> None:
    write_user_settings({"model": "sonnet", key: value})
    with pytest.raises(SettingsError, match=rf"settings\.json:[34]: {key}"):
        load_settings(cwd=project)


@pytest.mark.spec("CMP-002")
@pytest.mark.parametrize("key", [key.name for key in CLAUDE_KEYS])
def test_any_value_of_a_key_is_read_or_refused_with_its_place(project: Path, key: str) -> None:
    for value in ("x", "", 5, True, [], {}, ["x"], {"x": 1}, [{"x": 1}], None):
        content: Any = value
        for part in reversed(key.split(".")):
            content = {part: content}
        path = write_user_settings(content)
        listed = list_claude_items(os.environ, project).items
        with contextlib.ExitStack() as stack:
            if any(each.item == "file" and each.use == "refused" for each in listed):
                stack.enter_context(pytest.raises(SettingsError, match=re.escape(f"{path}:")))
            load_settings(cwd=project)


@pytest.mark.spec("CMP-002")
@pytest.mark.parametrize("behavior", ["deny", "ask"])
async def test_an_unusable_rule_that_narrows_ends_the_start(project: Path, behavior: str) -> None:
    write_user_settings({"permissions": {behavior: ["Read", "Bash("]}})
    with pytest.raises(SettingsError, match=rf"settings\.json:5: permissions\.{behavior}: 'Bash\('"):
        await run_calls(project)


@pytest.mark.parametrize(
    ("key", "is_refused"),
    [("dney", True), ("disableBypassPermissionMode", True), ("additionalDirectory", False)],
)
def test_a_misspelled_key_ends_the_start_only_if_it_narrows(
    project: Path, key: str, is_refused: bool
) -> None:
    write_user_settings({"permissions": {key: ["Read"]}})
    if is_refused:
        with pytest.raises(SettingsError, match=rf"settings\.json:3: permissions\.{key}: unknown key"):
            load_settings(cwd=project)
    else:
        load_settings(cwd=project)


@pytest.mark.spec("CMP-014", "CMP-028", "CMP-035")
@pytest.mark.parametrize(("mode", "noted"), [("auto", True), ("manual", False)])
async def test_the_modes_auto_and_manual_run_as_default(project: Path, mode: str, noted: bool) -> None:
    write_user_settings(
        {
            "permissions": {"defaultMode": mode, "disableAutoMode": "disable"},
            "disableAutoMode": "disable",
        }
    )
    async with shoal.open(cwd=project, model=ScriptedModel(["done"])) as session:
        assert session.permission_mode == "default"
        assert any(SUMMARY in note for note in session.notes) is noted


@pytest.mark.spec("CMP-015", "CMP-017", "CMP-018")
async def test_names_of_tools_with_stars_approve_one_server_and_deny_any(project: Path) -> None:
    ran: list[str] = []

    def make_tool(name: str) -> Any:
        @tool(name=name)
        async def use_tool() -> str:
            ran.append(name)
            return "used"

        return use_tool

    names = ("mcp__srv__get_a", "mcp__srv__put_a", "mcp__far__get_a")
    tools = [make_tool(name) for name in names]
    calls = [make_call(name, number) for number, name in enumerate(names)]
    write_user_settings({"permissions": {"allow": ["mcp__srv__get_*", "mcp__*", "*__get_a"]}})
    await run_calls(project, *calls, tools=tools)
    assert ran == ["mcp__srv__get_a"]
    write_user_settings({"permissions": {"deny": ["mcp__*__get_*", "W*"]}})
    request, _ = await run_calls(project, *calls, tools=tools, skip_permissions=True)
    assert ran == ["mcp__srv__get_a", "mcp__srv__put_a"]
    assert {each.name for each in request.tools} & {*names, "Write", "WebFetch"} == {"mcp__srv__put_a"}
    write_user_settings({"permissions": {"ask": ["*"]}})
    await run_calls(project, *calls, tools=tools, skip_permissions=True)
    await run_calls(project, *calls, tools=tools, skip_permissions=True, disallowed_tools=["mcp__*"])
    assert ran == ["mcp__srv__get_a", "mcp__srv__put_a"]


@pytest.mark.spec("CMP-022")
async def test_a_leading_slash_in_your_own_allow_rules_is_the_directory_of_the_file(project: Path) -> None:
    home = Path(os.environ["SHOAL_HOME"])
    write_user_settings({"permissions": {"allow": ["Read(/notes/**)", "Edit(/src/**)"]}})
    (home / "notes").mkdir()
    (home / "notes/a.md").write_text("the note\n")
    request, _ = await run_calls(
        project,
        make_call("Read", 1, file_path=str(home / "notes/a.md")),
        make_call("Write", 2, file_path="src/made", content="x"),
    )
    assert "the note" in list_results(request)[0]
    assert not (project / "src/made").exists()
    write_user_settings({"permissions": {"deny": ["Edit(/src/**)"]}})
    await run_calls(project, make_call("Write", file_path="src/made", content="x"), skip_permissions=True)
    assert not (project / "src/made").exists()


@pytest.mark.spec("CMP-022")
@pytest.mark.parametrize("behavior", ["deny", "ask"])
async def test_a_leading_slash_in_your_own_forbidding_rules_is_the_project_and_the_directory_of_the_file(
    project: Path, behavior: str
) -> None:
    home = Path(os.environ["SHOAL_HOME"])
    write_user_settings({"permissions": {behavior: ["Read(/keys/**)", "Edit(//other/**)"]}})
    for directory in (home, project):
        (directory / "keys").mkdir()
        (directory / "keys/a").write_text("the key\n")
    request, _ = await run_calls(
        project,
        make_call("Read", 1, file_path=str(home / "keys/a")),
        make_call("Read", 2, file_path=str(project / "keys/a")),
        make_call("Bash", 3, command=f"cat {home}/keys/a"),
        make_call("Write", 4, file_path="other/made", content="x"),
        skip_permissions=True,
        add_dirs=[home],
    )
    assert "the key" not in str(list_results(request)[:3])
    assert (project / "other/made").exists()


@pytest.mark.spec("CMP-026")
@pytest.mark.parametrize(
    ("rule", "host", "allowed", "denied"),
    [
        ("domain:*", "example.com", True, True),
        ("domain:example.*", "example.com", True, True),
        ("domain:example.*", "example.co.uk", False, False),
        ("domain:example.*", "api.example.com", False, True),
        ("domain:api-*.example.com", "api-1.example.com", True, True),
        ("domain:api-*.example.com", "api-1.x.example.com", False, False),
        ("domain:*.example.com", "a.b.example.com", True, True),
        ("domain:*.example.com", "example.com", False, False),
        ("domain:*.example.*", "a.example.org", True, True),
    ],
)
def test_a_star_in_a_domain_stays_in_its_label(
    project: Path, rule: str, host: str, allowed: bool, denied: bool
) -> None:
    for kind, expected in ((AllowDecision, allowed), (DenyDecision, denied)):
        list_name = "allow" if kind is AllowDecision else "deny"
        write_user_settings({"permissions": {list_name: [f"WebFetch({rule})"]}})
        engine = create_permission_engine(load_settings(cwd=project), project)
        call = make_call("WebFetch", url=f"https://{host}/x")
        decision = engine.decide_tool_call(call, None, AgentIdentity(session=SessionId("s")))
        assert isinstance(decision, kind) is expected


@pytest.mark.spec("CMP-076")
def test_an_agent_with_mode_auto_or_manual_is_usable() -> None:
    (auto, manual) = parse_json_agent_definitions(
        {name: {"description": "d", "prompt": "p", "permissionMode": name} for name in ("auto", "manual")}
    )
    assert (auto.definition.permission_mode, manual.definition.permission_mode) == (None, "default")
    assert ["its parent's mode" in warning for warning in auto.warnings] == [True]
    assert manual.warnings == ()
