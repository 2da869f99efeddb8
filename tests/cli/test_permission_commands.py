"""`shoal permissions`, `shoal agents` and `shoal config`: looking, and running nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shoal_process import MODEL, ShoalProgram

from shoal.app.settings.settings import load_settings
from shoal.app.settings.settings_trust import save_project_trust_decision
from shoal.core.messages import ToolUseBlock
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
    found: dict[str, object] = json.loads(ran.out)
    return found


async def test_a_command_is_explained_part_by_part_and_not_run(
    shoal: ShoalProgram, project: Path, rules_file: Path
) -> None:
    found = await explain_call(shoal, "Bash", '{"command": "touch made && ls | sort && make"}')
    assert (found["decision"], found["rule"]) == ("ask", None)
    parts = found["parts"]
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
    found = await explain_call(shoal, "Bash", '{"command": "ls; sudo curl x"}')
    assert (found["decision"], found["rule"], found["source"]) == (
        "deny",
        "Bash(curl:*)",
        f"{rules_file}:11",
    )
    found = await explain_call(shoal, "Read", '{"file_path": "secret/a"}')
    assert (found["decision"], found["source"]) == ("deny", f"{rules_file}:12")
    found = await explain_call(shoal, "--mode", "plan", "Write", '{"file_path": "a"}')
    assert (found["decision"], found["mode"]) == ("deny", "plan")
    found = await explain_call(shoal, "--settings", '{"permissions": {"deny": ["Write"]}}', "Write", "{}")
    assert (found["decision"], found["source"]) == ("deny", "--settings:1")
    found = await explain_call(shoal, "Edit", '{"file_path": "a"}')
    assert found["suggestions"] == [
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


async def test_a_person_reads_the_same_in_lines(shoal: ShoalProgram, rules_file: Path) -> None:
    ran = await shoal("permissions", "explain", "Bash", '{"command": "touch x && make"}')
    assert ran.text.splitlines()[0].startswith("ask  Bash in mode default: `make`")
    assert f"the rule Bash(touch:*) ({rules_file}:4)" in ran.text
    assert "for the session: allow Bash(touch x && make)" in ran.text


async def test_input_may_come_from_stdin_however_long(shoal: ShoalProgram) -> None:
    long = json.dumps({"command": "echo " + "x" * 1_000_000}).encode()
    found = await explain_call(shoal, "Bash", "-", stdin=long)
    assert found["decision"] == "deny"
    assert "1,000,005 characters" in str(found["reason"])


@pytest.mark.parametrize("given", ["{", "[1]", "7"])
async def test_input_that_is_no_object_is_refused(shoal: ShoalProgram, given: str) -> None:
    ran = await shoal("permissions", "explain", "Bash", given)
    assert ran.code == 2
    assert "INPUT_JSON" in ran.err


async def test_rules_in_force_are_listed_with_their_places(shoal: ShoalProgram, rules_file: Path) -> None:
    ran = await shoal("permissions", "ls", "--json")
    found = json.loads(ran.out)
    assert [(row["behavior"], row["rule"], row["source"]) for row in found["rules"]] == [
        ("deny", "Bash(curl:*)", f"{rules_file}:11"),
        ("deny", "Read(secret/**)", f"{rules_file}:12"),
        ("ask", "Bash(git push:*)", f"{rules_file}:8"),
        ("allow", "Bash(touch:*)", f"{rules_file}:4"),
        ("allow", "Bash(git commit:*)", f"{rules_file}:5"),
    ]
    lead = await shoal("agents", "show", "lead", "--permissions", "--json")
    assert json.loads(lead.out) == found
    assert found["agent"] == "lead"
    lines = (await shoal("permissions", "ls")).text
    assert f"Bash(curl:*)        {rules_file}:11" in lines


async def test_an_agent_that_is_not_there_is_named(shoal: ShoalProgram) -> None:
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
    assert "settings.json cannot be read" in ran.err


async def test_flags_that_contradict_each_other_are_refused(shoal: ShoalProgram) -> None:
    flags = ("--allowedTools", "Bash(make:*)", "--disallowedTools", "Bash(make:*)")
    ran = await shoal("-p", "hello", "--model", "anthropic:x", *flags, ANTHROPIC_API_KEY="k")
    assert ran.code == 1
    assert "Bash(make:*) is both in --allowedTools and in --disallowedTools" in ran.err


@pytest.mark.spec("PRM-09")
@pytest.mark.parametrize("dashed", [False, True])
async def test_flags_say_which_tools_are_there_allowed_and_forbidden(
    shoal: ShoalProgram, project: Path, dashed: bool
) -> None:
    allow, deny = (
        ("--allowed-tools", "--disallowed-tools") if dashed else ("--allowedTools", "--disallowedTools")
    )
    mind = [
        ToolUseBlock(id="a", name="Bash", input={"command": "touch a"}),
        ToolUseBlock(id="b", name="Bash", input={"command": "touch b"}),
        ToolUseBlock(id="c", name="Write", input={"file_path": "c", "content": "c"}),
        "done",
    ]
    flags = (allow, "Bash(touch:*) Read", deny, "Bash(touch b)", "--tools", "Bash,Edit Read")
    async with messages_server(mind) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "go", "--model", MODEL, *flags)
    assert ran.code == 0
    assert [tool["name"] for tool in server.requests[0].body["tools"]] == ["Read", "Edit", "Bash"]
    assert [path.name for path in project.iterdir()] == ["a"]
    unknown = await shoal("-p", "go", "--model", MODEL, "--tools", "Bsh")
    assert unknown.code == 1
    assert "There is no tool named 'Bsh'. Is Bash meant?" in unknown.err


@pytest.mark.spec("HOM-03")
async def test_settings_are_shown_with_where_they_come_from(
    shoal: ShoalProgram, project: Path, rules_file: Path
) -> None:
    (project / ".claude" / "settings.local.json").write_text(
        '{"shoal": {"compact_at": 0.5, "nonsense": 1},\n "env": {"MY_TOKEN": "s3cret", "PLAIN": "x"}}'
    )
    ran = await shoal("config", "show", "--json", OPENAI_API_KEY="sk-hidden")
    found = json.loads(ran.out)
    local = project / ".claude" / "settings.local.json"
    assert "env.PLAIN" not in found["settings"]
    assert {"key": "env.PLAIN", "value": "x", "origin": f"{local}:2", "trust": "unasked"} in found["left_out"]
    assert found["settings"]["shoal.compact_at"] == {"value": 0.5, "origin": f"{local}:1"}
    assert found["settings"]["permissions.deny"]["origin"] == f"{rules_file}:10"
    assert found["settings"]["openai_api_key"]["origin"] == "$OPENAI_API_KEY"
    assert "shoal.nonsense" in found["warnings"][1]
    lines = await shoal("config", "show", "--origin", OPENAI_API_KEY="sk-hidden")
    assert f"0.5  ({local}:1)" in lines.text
    assert f"x  (left out: not trusted)  ({local}:2)" in lines.text
    assert "s3cret" not in ran.text + lines.text
    assert "sk-hidden" not in ran.text + lines.text


@pytest.mark.parametrize("command", ["permissions", "config", "agents"])
async def test_each_has_help_with_examples(shoal: ShoalProgram, command: str) -> None:
    ran = await shoal(command, "--help")
    assert ran.code == 0
    assert f"  shoal {command} " in ran.text


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        ("bash", "shoal: There is no tool 'bash' here. Is Bash meant?\n"),
        ("Xyzzy", "shoal: There is no tool 'Xyzzy' here.\n"),
        ("Bash", ""),
        ("Task", ""),
        ("mcp__docs__find", ""),
    ],
)
async def test_a_name_that_no_tool_has_is_pointed_out(shoal: ShoalProgram, tool: str, told: str) -> None:
    ran = await shoal("permissions", "explain", tool, "{}")
    assert (ran.code, ran.err) == (0, told)
