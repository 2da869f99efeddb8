"""`shoal agents`: listing, showing, checking and adding agents; nothing runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal_process import ShoalProgram

AGENT = """\
---
name: reviewer
description: Looks at changes
tools: Read, Bash(git log:*), Bash(git diff:*), Nothing
disallowedTools: Bash(git diff --ext-diff:*)
model: sonnet
permissionMode: plan
isolation: worktree
color: purple
skills: style
hooks:
  Stop: [{hooks: [{type: command, command: x}]}]
---
You review changes.
"""


@pytest.fixture
def file(project: Path) -> Path:
    path = project / ".claude" / "agents" / "reviewer.md"
    path.parent.mkdir(parents=True)
    path.write_text(AGENT)
    return path


async def run_json_command(shoal: ShoalProgram, *arguments: str, **env: str) -> Any:
    ran = await shoal("agents", *arguments, "--json", **env)
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out)


async def test_agents_are_listed_with_their_source(shoal: ShoalProgram, file: Path) -> None:
    agents = {agent["name"]: agent for agent in await run_json_command(shoal, "ls")}
    assert agents["reviewer"] == {
        "name": "reviewer",
        "description": "Looks at changes",
        "model": "sonnet",
        "tools": ["Read", "Bash"],
        "color": "purple",
        "source": {"kind": "project", "path": str(file)},
    }
    assert agents["Explore"]["source"]["kind"] == "builtin"
    assert {"Bash", "ExitPlanMode", "TaskCreate", "Agent", "SendMessage"} < {
        *agents["general-purpose"]["tools"]
    }
    lines = (await shoal("agents", "ls")).text.splitlines()
    assert lines[0].split() == ["NAME", "MODEL", "TOOLS", "SOURCE", "DESCRIPTION"]
    assert lines[1].split() == ["reviewer", "sonnet", "2", "project", "Looks", "at", "changes"]


async def test_an_agent_is_shown_with_the_origin_of_each_field(shoal: ShoalProgram, file: Path) -> None:
    agent = await run_json_command(shoal, "show", "reviewer")
    assert agent["prompt"] == "You review changes."
    fields = {key: (fact["value"], fact["origin"]) for key, fact in agent["fields"].items()}
    assert fields == {
        "tools": (["Read", "Bash"], f"{file}:4"),
        "only": (["Bash(git log:*)", "Bash(git diff:*)"], f"{file}:4"),
        "disallowedTools": (["Bash(git diff --ext-diff:*)"], f"{file}:5"),
        "missing tools": (["Nothing"], f"{file}:4"),
        "model": ("sonnet", f"{file}:6"),
        "permissionMode": ("plan", f"{file}:7"),
        "isolation": ("worktree", f"{file}:8"),
        "color": ("purple", f"{file}:9"),
        "skills": (["style"], f"{file}:10"),
        "hooks": ({"Stop": [{"hooks": [{"type": "command", "command": "x"}]}]}, f"{file}:11"),
    }
    ran = await shoal("agents", "show", "reviewer")
    assert f"project, {file}" in ran.text
    assert "Read, Bash  (line 4)" in ran.text
    assert ran.text.endswith("\n\nYou review changes.\n")


async def test_listing_and_showing_agents_writes_no_files(
    shoal: ShoalProgram, file: Path, home: Path
) -> None:
    await shoal("agents", "show", "reviewer")
    await shoal("agents", "validate")
    assert list(home.iterdir()) == []
    assert [path.name for path in file.parents[2].iterdir()] == [".claude"]


async def test_a_model_for_all_agents_is_shown_with_its_variable(shoal: ShoalProgram, file: Path) -> None:
    agent = await run_json_command(shoal, "show", "reviewer", SHOAL_SUBAGENT_MODEL="opus")
    assert agent["fields"]["model"] == {"value": "opus", "origin": "$SHOAL_SUBAGENT_MODEL"}
    plain = await run_json_command(shoal, "show", "general-purpose")
    assert plain["fields"]["model"] == {"value": "inherit", "origin": "default"}


@pytest.mark.spec("USR-05")
async def test_the_permissions_of_an_agent_are_narrowed_and_never_widened(
    shoal: ShoalProgram, file: Path
) -> None:
    permissions = await run_json_command(shoal, "show", "reviewer", "--permissions")
    assert (permissions["agent"], permissions["mode"], permissions["mode_source"]) == (
        "reviewer",
        "plan",
        f"{file}:7",
    )
    assert permissions["rules"] == [
        {
            "behavior": "deny",
            "rule": "Bash, except Bash(git log:*) Bash(git diff:*)",
            "source": f"{file}:4",
        },
        {"behavior": "deny", "rule": "Bash(git diff --ext-diff:*)", "source": f"{file}:5"},
    ]
    file.write_text(AGENT.replace("permissionMode: plan", "permissionMode: bypassPermissions"))
    permissions = await run_json_command(shoal, "show", "reviewer", "--permissions")
    assert (permissions["mode"], permissions["mode_source"]) == ("default", "the lead's: default")
    deny = json.dumps({"permissions": {"deny": ["Bash(rm:*)"]}})
    permissions = await run_json_command(shoal, "show", "reviewer", "--permissions", "--settings", deny)
    assert (permissions["rules"][-1]["behavior"], permissions["rules"][-1]["rule"]) == ("deny", "Bash(rm:*)")
    assert len(permissions["rules"]) == 3


async def test_agents_of_the_agents_flag_are_shown(shoal: ShoalProgram) -> None:
    definitions = json.dumps({"mine": {"description": "d", "prompt": "p", "maxTurns": 3}})
    agent = await run_json_command(shoal, "show", "mine", "--agents", definitions)
    assert agent["source"] == {"kind": "flag", "path": None}
    assert agent["fields"]["maxTurns"] == {"value": 3, "origin": "--agents"}


async def test_an_unknown_agent_is_an_error_with_a_suggestion(shoal: ShoalProgram) -> None:
    ran = await shoal("agents", "show", "Explor")
    assert ran.code == 2
    assert "There is no agent 'Explor'. Did you mean Explore? Available: " in ran.err


async def test_an_unusable_definition_file_is_named_when_its_agent_is_missing(
    shoal: ShoalProgram, file: Path
) -> None:
    file.write_text(AGENT.replace("worktree", "tree"))
    location = f"{file}:8: isolation: 'tree' is not one of worktree, remote"
    ran = await shoal("agents", "show", "reviewer")
    assert (ran.code, ran.out) == (1, b"")
    assert location in ran.err
    ran = await shoal("agents", "ls")
    assert ran.code == 0
    assert "Explore" in ran.text
    assert location in ran.err


@pytest.mark.spec("DEF-02")
async def test_validate_names_file_line_field_and_unused_definitions(
    shoal: ShoalProgram, file: Path, home: Path
) -> None:
    (file.parent / "bad.md").write_text("---\nname: bad\ndescription: b\nmaxTurns: x\n---\nbody\n")
    (file.parent / "twice.md").write_text("---\nname: reviewer\ndescription: b\n---\nbody\n")
    (home / "agents").mkdir()
    (home / "agents" / "mine.md").write_text("---\nname: reviewer\ndescription: b\nwho: me\n---\nbody\n")
    ran = await shoal("agents", "validate")
    assert ran.code == 1
    lines = ran.text.splitlines()
    assert lines[0].startswith(f"{file.parent / 'bad.md'}:4: maxTurns: expected an integer")
    assert lines[1].startswith(
        f"{file.parent / 'twice.md'}: name: two agents have the name 'reviewer': {file} is used"
    )
    assert f"{home / 'agents' / 'mine.md'}:4: who: unknown field; it is ignored (warning)" in lines
    assert f"{file}:4: tools: there is no tool 'Nothing' (warning)" in lines
    assert f"{home / 'agents' / 'mine.md'}: reviewer is not used because {file} takes precedence" in lines
    assert lines[-1] == "7 agents, 2 problems, 2 warnings."
    ran = await shoal("agents", "validate", "--json")
    report = json.loads(ran.out)
    assert ran.code == 1
    assert [(each["path"], each["line"], each["field"]) for each in report["problems"]] == [
        (str(file.parent / "bad.md"), 4, "maxTurns"),
        (str(file.parent / "twice.md"), None, "name"),
    ]


async def test_files_and_directories_can_be_checked_by_name(
    shoal: ShoalProgram, file: Path, tmp_path: Path
) -> None:
    bad_file = tmp_path / "elsewhere" / "bad.txt"
    bad_file.parent.mkdir()
    bad_file.write_text("no front matter")
    ran = await shoal("agents", "validate", str(bad_file))
    assert ran.code == 1
    assert ran.text.startswith(f"{bad_file}:1: there is no front matter")
    ran = await shoal("agents", "validate", str(file.parent))
    assert ran.code == 0
    assert ran.text.endswith("1 agent, 0 problems, 1 warning.\n")
    ran = await shoal("agents", "validate", "nowhere")
    assert ran.code == 2
    assert "'nowhere'" in ran.err


@pytest.mark.parametrize("user", [False, True])
async def test_a_new_agent_is_valid_and_nothing_is_overwritten(
    shoal: ShoalProgram, project: Path, home: Path, user: bool
) -> None:
    flags = ("--user",) if user else ()
    ran = await shoal("agents", "new", "tester", "--description", 'Runs tests: "all" # of them', *flags)
    path = (home if user else project / ".claude") / "agents" / "tester.md"
    assert (ran.code, ran.err) == (0, "")
    assert ran.text == f"Wrote {path}. Edit it, then run: shoal agents show tester\n"
    checked = await shoal("agents", "validate")
    assert checked.text == "7 agents, 0 problems, 0 warnings.\n"
    agent = await run_json_command(shoal, "show", "tester")
    assert agent["description"] == 'Runs tests: "all" # of them'
    assert agent["tools"] == ["Read", "Glob", "Grep"]
    before = path.read_text()
    again = await shoal("agents", "new", "tester", *flags)
    assert again.code == 1
    assert "already exists and was not changed" in again.err
    assert path.read_text() == before


async def test_a_new_agent_explains_every_field(shoal: ShoalProgram, project: Path) -> None:
    from shoal.wire.agent_definition_codec import DEFINITION_FIELDS

    await shoal("agents", "new", "tester")
    written = (project / ".claude" / "agents" / "tester.md").read_text()
    missing = [
        field
        for field in DEFINITION_FIELDS
        if f"\n{field}: " not in written and f"\n# {field}: " not in written
    ]
    assert missing == ["oneShot"]


async def test_creating_an_agent_reports_another_of_the_same_name(shoal: ShoalProgram) -> None:
    ran = await shoal("agents", "new", "Explore")
    assert ran.code == 0
    assert "Another agent has the same name (builtin, " in ran.text


@pytest.mark.parametrize("name", ["a/b", "../x", "a: b", "", " a", "a\nb", "-x" * 60])
async def test_an_invalid_agent_name_writes_no_file(shoal: ShoalProgram, project: Path, name: str) -> None:
    ran = await shoal("agents", "new", "--", name)
    assert ran.code == 2
    assert ran.err
    assert not (project / ".claude").exists()


HOOKED = """---
name: {name}
description: d
hooks:
  {event}:
    - hooks:
        - {{type: command, command: "{command}", async: true}}
---
p
"""


@pytest.mark.parametrize(
    ("event", "command", "problem_text"),
    [
        ("PreTolUse", "true", "hooks.PreTolUse: unknown event; did you mean PreToolUse?"),
        (
            "PreToolUse",
            "",
            "hooks.PreToolUse.0.hooks.0.command: expected a command, as a string; PreToolUse is blocked "
            "until you correct or remove it.",
        ),
    ],
)
async def test_hooks_that_prevent_an_agent_from_starting_are_problems(
    shoal: ShoalProgram, project: Path, event: str, command: str, problem_text: str
) -> None:
    file = project / ".claude" / "agents" / "hooked.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(HOOKED.format(name="hooked", event=event, command=command))
    ran = await shoal("agents", "validate", str(file))
    assert ran.code == 1
    assert ran.text.splitlines() == [f"{file}:4: {problem_text}", "1 agent, 1 problem, 0 warnings."]
    (problem,) = json.loads((await shoal("agents", "validate", "--json", str(file))).out)["problems"]
    assert (problem["agent"], problem["line"]) == ("hooked", 4)
    assert f"{problem['field']}: {problem['what']}" == problem_text


async def test_an_async_hook_that_cannot_decide_is_a_warning(shoal: ShoalProgram, project: Path) -> None:
    file = project / ".claude" / "agents" / "hooked.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(HOOKED.format(name="hooked", event="PreToolUse", command="true"))
    ran = await shoal("agents", "validate", str(file))
    assert ran.code == 0
    assert "async: it cannot decide anything" in ran.text
