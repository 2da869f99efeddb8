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


async def test_agents_are_listed_with_where_they_come_from(shoal: ShoalProgram, file: Path) -> None:
    found = {each["name"]: each for each in await run_json_command(shoal, "ls")}
    assert found["reviewer"] == {
        "name": "reviewer",
        "description": "Looks at changes",
        "model": "sonnet",
        "tools": ["Read", "Bash"],
        "color": "purple",
        "source": {"kind": "project", "path": str(file)},
    }
    assert found["Explore"]["source"]["kind"] == "builtin"
    assert {"Bash", "ExitPlanMode", "TaskCreate", "Agent", "SendMessage"} < {
        *found["general-purpose"]["tools"]
    }
    lines = (await shoal("agents", "ls")).text.splitlines()
    assert lines[0].split() == ["NAME", "MODEL", "TOOLS", "SOURCE", "DESCRIPTION"]
    assert lines[1].split() == ["reviewer", "sonnet", "2", "project", "Looks", "at", "changes"]


async def test_an_agent_is_shown_with_where_each_part_comes_from(shoal: ShoalProgram, file: Path) -> None:
    found = await run_json_command(shoal, "show", "reviewer")
    assert found["prompt"] == "You review changes."
    fields = {key: (fact["value"], fact["origin"]) for key, fact in found["fields"].items()}
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


async def test_looking_at_agents_leaves_nothing_behind(shoal: ShoalProgram, file: Path, home: Path) -> None:
    await shoal("agents", "show", "reviewer")
    await shoal("agents", "validate")
    assert list(home.iterdir()) == []
    assert [path.name for path in file.parents[2].iterdir()] == [".claude"]


async def test_a_model_for_all_agents_is_shown_with_its_variable(shoal: ShoalProgram, file: Path) -> None:
    found = await run_json_command(shoal, "show", "reviewer", SHOAL_SUBAGENT_MODEL="opus")
    assert found["fields"]["model"] == {"value": "opus", "origin": "$SHOAL_SUBAGENT_MODEL"}
    plain = await run_json_command(shoal, "show", "general-purpose")
    assert plain["fields"]["model"] == {"value": "inherit", "origin": "default"}


@pytest.mark.spec("USR-05")
async def test_the_permissions_of_an_agent_are_narrowed_and_never_widened(
    shoal: ShoalProgram, file: Path
) -> None:
    seen = await run_json_command(shoal, "show", "reviewer", "--permissions")
    assert (seen["agent"], seen["mode"], seen["mode_source"]) == ("reviewer", "plan", f"{file}:7")
    assert seen["rules"] == [
        {
            "behavior": "deny",
            "rule": "Bash, but for Bash(git log:*) Bash(git diff:*)",
            "source": f"{file}:4",
        },
        {"behavior": "deny", "rule": "Bash(git diff --ext-diff:*)", "source": f"{file}:5"},
    ]
    file.write_text(AGENT.replace("permissionMode: plan", "permissionMode: bypassPermissions"))
    seen = await run_json_command(shoal, "show", "reviewer", "--permissions")
    assert (seen["mode"], seen["mode_source"]) == ("default", "the lead's: default")
    deny = json.dumps({"permissions": {"deny": ["Bash(rm:*)"]}})
    seen = await run_json_command(shoal, "show", "reviewer", "--permissions", "--settings", deny)
    assert (seen["rules"][-1]["behavior"], seen["rules"][-1]["rule"]) == ("deny", "Bash(rm:*)")
    assert len(seen["rules"]) == 3


async def test_given_agents_are_shown_too(shoal: ShoalProgram) -> None:
    given = json.dumps({"mine": {"description": "d", "prompt": "p", "maxTurns": 3}})
    found = await run_json_command(shoal, "show", "mine", "--agents", given)
    assert found["source"] == {"kind": "flag", "path": None}
    assert found["fields"]["maxTurns"] == {"value": 3, "origin": "--agents"}


async def test_an_unknown_agent_is_a_mistake_with_a_guess(shoal: ShoalProgram) -> None:
    ran = await shoal("agents", "show", "Explor")
    assert ran.code == 2
    assert "There is no agent 'Explor'. Is Explore meant? There are: " in ran.err


async def test_a_bad_file_is_named_wherever_its_agent_is_missed(shoal: ShoalProgram, file: Path) -> None:
    file.write_text(AGENT.replace("worktree", "tree"))
    place = f"{file}:8: isolation: 'tree' is not one of worktree, remote"
    ran = await shoal("agents", "show", "reviewer")
    assert (ran.code, ran.out) == (1, b"")
    assert place in ran.err
    ran = await shoal("agents", "ls")
    assert ran.code == 0
    assert "Explore" in ran.text
    assert place in ran.err


@pytest.mark.spec("DEF-02")
async def test_checking_names_file_line_and_field_and_what_is_never_used(
    shoal: ShoalProgram, file: Path, home: Path
) -> None:
    (file.parent / "bad.md").write_text("---\nname: bad\ndescription: b\nmaxTurns: x\n---\nbody\n")
    (file.parent / "twice.md").write_text("---\nname: reviewer\ndescription: b\n---\nbody\n")
    (home / "agents").mkdir()
    (home / "agents" / "mine.md").write_text("---\nname: reviewer\ndescription: b\nwho: me\n---\nbody\n")
    ran = await shoal("agents", "validate")
    assert ran.code == 1
    lines = ran.text.splitlines()
    assert lines[0].startswith(f"{file.parent / 'bad.md'}:4: maxTurns: a whole number")
    assert lines[1].startswith(
        f"{file.parent / 'twice.md'}: name: two agents are named 'reviewer': {file} is"
    )
    assert f"{home / 'agents' / 'mine.md'}:4: who: this field is not known and is ignored (warning)" in lines
    assert f"{file}:4: tools: there is no tool 'Nothing' here (warning)" in lines
    assert f"{home / 'agents' / 'mine.md'}: reviewer is not used: {file} comes first" in lines
    assert lines[-1] == "7 agents, 2 problems, 2 warnings."
    ran = await shoal("agents", "validate", "--json")
    found = json.loads(ran.out)
    assert ran.code == 1
    assert [(each["path"], each["line"], each["field"]) for each in found["problems"]] == [
        (str(file.parent / "bad.md"), 4, "maxTurns"),
        (str(file.parent / "twice.md"), None, "name"),
    ]


async def test_files_and_directories_can_be_checked_by_name(
    shoal: ShoalProgram, file: Path, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere" / "bad.txt"
    other.parent.mkdir()
    other.write_text("no front matter")
    ran = await shoal("agents", "validate", str(other))
    assert ran.code == 1
    assert ran.text.startswith(f"{other}:1: there is no front matter")
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
    assert ran.text == f"{path} is written. Change it, then: shoal agents show tester\n"
    checked = await shoal("agents", "validate")
    assert checked.text == "7 agents, 0 problems, 0 warnings.\n"
    found = await run_json_command(shoal, "show", "tester")
    assert found["description"] == 'Runs tests: "all" # of them'
    assert found["tools"] == ["Read", "Glob", "Grep"]
    before = path.read_text()
    again = await shoal("agents", "new", "tester", *flags)
    assert again.code == 1
    assert "is there already, and is left as it is" in again.err
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


async def test_a_new_agent_that_takes_the_place_of_another_says_so(shoal: ShoalProgram) -> None:
    ran = await shoal("agents", "new", "Explore")
    assert ran.code == 0
    assert "There is another of that name (builtin, " in ran.text


@pytest.mark.parametrize("name", ["a/b", "../x", "a: b", "", " a", "a\nb", "-x" * 60])
async def test_a_name_that_cannot_be_one_writes_nothing(
    shoal: ShoalProgram, project: Path, name: str
) -> None:
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
        ("PreTolUse", "true", "hooks.PreTolUse: there is no such event; is PreToolUse meant?"),
        ("PreToolUse", "", "hooks.PreToolUse.0.hooks.0.command: a command is expected, as text."),
    ],
)
async def test_hooks_for_which_an_agent_would_not_start_are_problems(
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


async def test_a_hook_that_works_otherwise_than_one_may_think_is_a_warning(
    shoal: ShoalProgram, project: Path
) -> None:
    file = project / ".claude" / "agents" / "hooked.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(HOOKED.format(name="hooked", event="PreToolUse", command="true"))
    ran = await shoal("agents", "validate", str(file))
    assert ran.code == 0
    assert "async: it cannot decide anything" in ran.text
