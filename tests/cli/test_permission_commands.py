"""`shoal permissions`, `shoal agents` and `shoal config`: inspection without running anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shoal_process import MODEL, ShoalProgram

from shoal.app.settings.settings import load_settings
from shoal.app.settings.settings_trust import save_project_trust_decision
from shoal.core.conversation.messages import ToolUseBlock
from shoal.testing import messages_server


@pytest.fixture
def rules_file(project: Path) -> Path:
    directory = project / ".claude"
    directory.mkdir()
    (directory / "settings.json").write_text(
        json.dumps(
            {
                "permissions": {
                    "allow": ["Bash(touch:*)", "Bash(git commit:*)"],
                    "ask": ["Bash(git push:*)"],
                    "deny": ["Bash(curl:*)", "Read(secret/**)"],
                }
            },
            indent=1,
        )
    )
    save_project_trust_decision(load_settings(cwd=project), project, trusted=True)
    return directory / "settings.json"


async def explain_call(shoal: ShoalProgram, *arguments: str, stdin: bytes = b"") -> dict[str, object]:
    ran = await shoal("permissions", "explain", "--json", *arguments, stdin=stdin)
    assert (ran.code, ran.err) == (0, "")
    decision: dict[str, object] = json.loads(ran.out)
    return decision


async def test_a_command_is_explained_part_by_part_and_not_run(
    shoal: ShoalProgram, project: Path, rules_file: Path
) -> None:
    decision = await explain_call(shoal, "Bash", '{"command": "touch made && ls | sort && make"}')
    assert (decision["decision"], decision["rule"]) == ("ask", None)
    parts = decision["parts"]
    assert isinstance(parts, list)
    assert [(part["text"], part["decision"], part["rule"]) for part in parts] == [
        ("touch made", "allow", "Bash(touch:*)"),
        ("ls", "allow", None),
        ("sort", "allow", None),
        ("make", "ask", None),
    ]
    assert parts[0]["source"] == f"{rules_file}:4"
    assert not (project / "made").exists()


@pytest.mark.spec("PRM-02")
async def test_the_decision_names_rule_and_source(shoal: ShoalProgram, rules_file: Path) -> None:
    decision = await explain_call(shoal, "Bash", '{"command": "ls; sudo curl x"}')
    assert (decision["decision"], decision["rule"], decision["source"]) == (
        "deny",
        "Bash(curl:*)",
        f"{rules_file}:11",
    )
    decision = await explain_call(shoal, "Read", '{"file_path": "secret/a"}')
    assert (decision["decision"], decision["source"]) == ("deny", f"{rules_file}:12")
    decision = await explain_call(shoal, "--mode", "plan", "Write", '{"file_path": "a"}')
    assert (decision["decision"], decision["mode"]) == ("deny", "plan")
    decision = await explain_call(shoal, "--settings", '{"permissions": {"deny": ["Write"]}}', "Write", "{}")
    assert (decision["decision"], decision["source"]) == ("deny", "--settings:1")
    decision = await explain_call(shoal, "Edit", '{"file_path": "a"}')
    assert decision["suggestions"] == [
        {
            "type": "addRules",
            "rules": [{"toolName": "Edit", "ruleContent": "/**"}],
            "behavior": "allow",
            "destination": "session",
        },
        {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
        {
            "type": "addRules",
            "rules": [{"toolName": "Edit", "ruleContent": "/**"}],
            "behavior": "allow",
            "destination": "localSettings",
        },
    ]


async def test_the_decision_is_printed_as_lines_for_people(shoal: ShoalProgram, rules_file: Path) -> None:
    ran = await shoal("permissions", "explain", "Bash", '{"command": "touch x && make"}')
    assert ran.text.splitlines()[0].startswith("ask  Bash in default mode: `make`")
    assert f"the rule Bash(touch:*) ({rules_file}:4)" in ran.text
    assert "for the session: allow Bash(touch x && make)" in ran.text


async def test_long_tool_input_can_come_from_stdin(shoal: ShoalProgram) -> None:
    long = json.dumps({"command": "echo " + "x" * 1_000_000}).encode()
    decision = await explain_call(shoal, "Bash", "-", stdin=long)
    assert decision["decision"] == "deny"
    assert "1,000,005 characters" in str(decision["reason"])


@pytest.mark.parametrize("tool_input", ["{", "[1]", "7"])
async def test_tool_input_that_is_not_an_object_is_refused(shoal: ShoalProgram, tool_input: str) -> None:
    ran = await shoal("permissions", "explain", "Bash", tool_input)
    assert ran.code == 2
    assert "INPUT_JSON" in ran.err


async def test_active_rules_are_listed_with_their_sources(shoal: ShoalProgram, rules_file: Path) -> None:
    ran = await shoal("permissions", "ls", "--json")
    rules = json.loads(ran.out)
    assert [(row["behavior"], row["rule"], row["source"]) for row in rules["rules"]] == [
        ("deny", "Bash(curl:*)", f"{rules_file}:11"),
        ("deny", "Read(secret/**)", f"{rules_file}:12"),
        ("ask", "Bash(git push:*)", f"{rules_file}:8"),
        ("allow", "Bash(touch:*)", f"{rules_file}:4"),
        ("allow", "Bash(git commit:*)", f"{rules_file}:5"),
    ]
    lead = await shoal("agents", "show", "lead", "--permissions", "--json")
    assert json.loads(lead.out) == rules
    assert rules["agent"] == "lead"
    lines = (await shoal("permissions", "ls")).text
    assert f"Bash(curl:*)        {rules_file}:11" in lines


async def test_an_unknown_agent_is_named_in_the_error(shoal: ShoalProgram) -> None:
    ran = await shoal("agents", "show", "nobody", "--permissions")
    assert ran.code == 2
    assert "'nobody'" in ran.err


async def test_a_bad_rule_stops_everything_with_file_and_line(shoal: ShoalProgram, rules_file: Path) -> None:
    rules_file.write_text('{"permissions": {\n "deny": ["Bash(rm:* x)"]}}')
    for command in (("permissions", "ls"), ("config", "show"), ("-p", "hello", "--model", "anthropic:x")):
        ran = await shoal(*command)
        assert ran.code == 1, command
        assert f"{rules_file}:2" in ran.err
        assert "Bash(rm:* x)" in ran.err


async def test_settings_that_are_a_directory_stop_everything(shoal: ShoalProgram, project: Path) -> None:
    (project / ".claude" / "settings.json").mkdir(parents=True)
    ran = await shoal("permissions", "ls")
    assert ran.code == 1
    assert "Cannot read the settings in" in ran.err


async def test_flags_that_contradict_each_other_are_refused(shoal: ShoalProgram) -> None:
    flags = ("--allowedTools", "Bash(make:*)", "--disallowedTools", "Bash(make:*)")
    ran = await shoal("-p", "hello", "--model", "anthropic:x", *flags, ANTHROPIC_API_KEY="k")
    assert ran.code == 1
    assert "Bash(make:*) is in both --allowedTools and --disallowedTools" in ran.err


@pytest.mark.spec("PRM-09")
@pytest.mark.parametrize("dashed", [False, True])
async def test_flags_select_available_allowed_and_denied_tools(
    shoal: ShoalProgram, project: Path, dashed: bool
) -> None:
    allow, deny = (
        ("--allowed-tools", "--disallowed-tools") if dashed else ("--allowedTools", "--disallowedTools")
    )
    replies = [
        ToolUseBlock(id="a", name="Bash", input={"command": "touch a"}),
        ToolUseBlock(id="b", name="Bash", input={"command": "touch b"}),
        ToolUseBlock(id="c", name="Write", input={"file_path": "c", "content": "c"}),
        "done",
    ]
    flags = (allow, "Bash(touch:*) Read", deny, "Bash(touch b)", "--tools", "Bash,Edit Read")
    async with messages_server(replies) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "go", "--model", MODEL, *flags)
    assert ran.code == 0
    assert [tool["name"] for tool in server.requests[0].body["tools"]] == ["Read", "Edit", "Bash"]
    assert [path.name for path in project.iterdir()] == ["a"]
    unknown = await shoal("-p", "go", "--model", MODEL, "--tools", "Bsh")
    assert unknown.code == 1
    assert "There is no tool named 'Bsh'. Did you mean Bash?" in unknown.err


@pytest.mark.spec("CMP-018")
async def test_a_name_with_an_asterisk_in_a_flag_removes_all_tools_that_match(shoal: ShoalProgram) -> None:
    flags = ("--tools", "Bash,BashOutput,Read,WebFetch", "--disallowedTools", "Web*", "B*", "Nothing*")
    async with messages_server(["done"]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "go", "--model", MODEL, *flags)
    assert ran.code == 0
    assert [tool["name"] for tool in server.requests[0].body["tools"]] == ["Read"]
    assert "The rule Nothing* names an unknown tool." in ran.err


@pytest.mark.spec("HOM-03")
async def test_settings_are_shown_with_their_sources(
    shoal: ShoalProgram, project: Path, rules_file: Path
) -> None:
    (project / ".claude" / "settings.local.json").write_text(
        '{"shoal": {"compact_at": 0.5, "nonsense": 1},\n "env": {"MY_TOKEN": "s3cret", "PLAIN": "x"}}'
    )
    ran = await shoal("config", "show", "--json", OPENAI_API_KEY="sk-hidden")
    settings = json.loads(ran.out)
    local = project / ".claude" / "settings.local.json"
    assert "env.PLAIN" not in settings["settings"]
    assert {"key": "env.PLAIN", "value": "x", "origin": f"{local}:2", "trust": "unasked"} in settings[
        "left_out"
    ]
    assert settings["settings"]["shoal.compact_at"] == {"value": 0.5, "origin": f"{local}:1"}
    assert settings["settings"]["permissions.deny"]["origin"] == f"{rules_file}:10"
    assert settings["settings"]["openai_api_key"]["origin"] == "$OPENAI_API_KEY"
    assert "shoal.nonsense" in settings["warnings"][1]
    lines = await shoal("config", "show", "--origin", OPENAI_API_KEY="sk-hidden")
    assert f"0.5  ({local}:1)" in lines.text
    assert f"x  (ignored: not trusted)  ({local}:2)" in lines.text
    assert "s3cret" not in ran.text + lines.text
    assert "sk-hidden" not in ran.text + lines.text


@pytest.mark.parametrize("command", ["permissions", "config", "agents"])
async def test_permission_agent_and_config_commands_have_help_with_examples(
    shoal: ShoalProgram, command: str
) -> None:
    ran = await shoal(command, "--help")
    assert ran.code == 0
    assert f"  shoal {command} " in ran.text


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("bash", "shoal: There is no tool 'bash'. Did you mean Bash?\n"),
        ("Xyzzy", "shoal: There is no tool 'Xyzzy'.\n"),
        ("Bash", ""),
        ("Task", ""),
        ("mcp__docs__find", ""),
    ],
)
async def test_an_unknown_tool_name_in_a_rule_is_reported(
    shoal: ShoalProgram, tool: str, message: str
) -> None:
    ran = await shoal("permissions", "explain", tool, "{}")
    assert (ran.code, ran.err) == (0, message)


@pytest.mark.parametrize("rule", ["bash(touch:*)", "agent(reviewer)"])
@pytest.mark.parametrize("behavior", ["deny", "ask"])
async def test_a_rule_with_a_misspelled_tool_is_refused(
    shoal: ShoalProgram, project: Path, rule: str, behavior: str
) -> None:
    """A session does not start with such a rule, because the rule would forbid nothing."""
    settings = project / ".claude" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"permissions": {behavior: [rule]}}))
    tool = rule.partition("(")[0]
    for arguments in (("permissions", "explain", "Bash", '{"command": "touch x"}'), ("permissions", "ls")):
        ran = await shoal(*arguments)
        assert ran.code != 0
        assert (
            f"settings.json:1: the rule {rule} names an unknown tool. Did you mean {tool.title()}?" in ran.err
        )
