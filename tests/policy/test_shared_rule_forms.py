"""Rules in the forms of other programs: parameters, depth, critical removals, protected files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from permission_helpers import create_engine, decide_call, decide_command, name_decision

from shoal.core.errors import SettingsError
from shoal.core.permissions.permission_decisions import AskDecision
from shoal.policy.permission_rules import parse_permission_rule


@pytest.mark.spec("CMP-019")
@pytest.mark.parametrize(
    ("rule", "tool", "arguments", "matches"),
    [
        ("Agent(model:opus)", "Agent", {"model": "opus"}, True),
        ("Agent(model:opus)", "Task", {"model": "opus"}, True),
        ("Agent(model:*opus*)", "Agent", {"model": "claude-opus-4"}, True),
        ("Agent(model:opus)", "Agent", {"model": "haiku"}, False),
        ("Agent(model:opus)", "Agent", {}, False),
        ("Bash(run_in_background:true)", "Bash", {"command": "ls", "run_in_background": True}, True),
        ("Bash(run_in_background:true)", "Bash", {"command": "ls"}, False),
        ("mcp__a__b(paths:secret*)", "mcp__a__b", {"paths": ["x", ("y", "secret/k")]}, True),
        ("mcp__a__b(paths:secret*)", "mcp__a__b", {"paths": {"x": {"y": ["secret/k"]}}}, True),
        ("mcp__a__b(paths:secret*)", "mcp__a__b", {"paths": {"secret": 1}}, True),
        ("mcp__a__b(paths:secret*)", "mcp__a__b", {"paths": ["x"]}, False),
        ("mcp__srv__get(kind:secret)", "mcp__srv__get", {"kind": "secret"}, True),
        ("mcp__srv__get(kind:secret)", "mcp__srv__get", {"kind": "other"}, False),
    ],
)
def test_a_rule_about_a_parameter_matches_the_value_that_a_call_gives(
    tmp_path: Path, rule: str, tool: str, arguments: dict[str, Any], matches: bool
) -> None:
    for kind, word in (("deny", "deny"), ("ask", "ask")):
        engine = create_engine(tmp_path, "bypassPermissions", **{kind: rule})
        found = name_decision(decide_call(engine, tool, **arguments))
        assert found == (word if matches else "allow")
    # An allow rule cannot be about a parameter.
    allowing = create_engine(tmp_path, allow=rule)
    if tool.startswith("mcp__"):
        assert name_decision(decide_call(allowing, tool, **arguments)) == "ask"


@pytest.mark.spec("CMP-020")
def test_a_denied_directory_is_denied_at_any_depth_and_an_allowed_one_only_at_the_top(tmp_path: Path) -> None:
    engine = create_engine(tmp_path, "bypassPermissions", deny="Read(secrets/**)")
    for path in ("secrets/a", "vendor/secrets/a", "a/b/secrets/c/d"):
        assert name_decision(decide_call(engine, "Read", file_path=path)) == "deny"
        assert decide_command(engine, f"cat {path}") == "deny"
    assert name_decision(decide_call(engine, "Read", file_path="notsecrets/a")) == "allow"
    anchored = create_engine(
        tmp_path, "bypassPermissions", deny="Read(a/secrets/**) Read(./b/**) Read(/c/**)"
    )
    for path in ("x/a/secrets/y", "x/b/y", "x/c/y"):
        assert name_decision(decide_call(anchored, "Read", file_path=path)) == "allow"
    for path in ("a/secrets/y", "b/y", "c/y"):
        assert name_decision(decide_call(anchored, "Read", file_path=path)) == "deny"
    allowing = create_engine(tmp_path, allow="Edit(docs/**)")
    assert name_decision(decide_call(allowing, "Write", file_path="docs/a")) == "allow"
    assert name_decision(decide_call(allowing, "Write", file_path="vendor/docs/a")) == "ask"


@pytest.mark.spec("CMP-023")
@pytest.mark.parametrize(
    "command",
    ["rm -rf /", "rm -rf /*", "rm -rf /usr", "rmdir /home", "rm -rf ~", "rm -rf ~/", "rm -rf $HOME/*",
     "rm -rf .", "rm -rf ..", "rm -rf ./*", "rm -rf *", 'rm -rf "$X"/*', "rm -rf $X/", "echo $(rm -rf /)",
     "sudo rm -rf /", "bash -c 'rm -rf /'", "find . -exec rm -rf / \\;", "/bin/rm -rf /", "r''m -rf /",
     "true && rm -rf ../..", "for d in a; do rm -rf /; done", "rm -rf ROOT", "rm -rf ROOT/../"],
)  # fmt: skip
def test_a_critical_removal_is_asked_in_every_mode(tmp_path: Path, command: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    text = command.replace("ROOT", str(project))
    for mode in ("default", "acceptEdits", "bypassPermissions"):
        decision = decide_call(create_engine(project, mode, allow="Bash"), "Bash", command=text)
        assert isinstance(decision, AskDecision)
        assert decision.needs_person
    assert decide_command(create_engine(project, "dontAsk", allow="Bash"), text) == "deny"


@pytest.mark.spec("CMP-023")
@pytest.mark.parametrize(
    "command", ["rm -rf build", "rm -rf ./build/*", "rm *.pyc", "rm -rf /tmp/x/y", "rmdir a", 'rm "$x"']
)
def test_other_removals_follow_the_rules(tmp_path: Path, command: str) -> None:
    assert decide_command(create_engine(tmp_path, "bypassPermissions"), command) == "allow"


@pytest.mark.spec("CMP-024")
@pytest.mark.parametrize(
    "path",
    [".git/config", ".config/git/config", ".vscode/settings.json", ".idea/x.xml", ".husky/pre-commit",
     ".cargo/bin/x", ".devcontainer/devcontainer.json", ".yarn/releases/yarn.cjs", ".mvn/jvm.config",
     ".claude/settings.json", ".gitconfig", ".gitmodules", ".bashrc", ".zshrc", ".profile", ".npmrc",
     ".yarnrc", ".yarnrc.yml", ".pnp.cjs", ".pnp.loader.mjs", ".pnpmfile.cjs", "bunfig.toml", ".bazelrc",
     ".bazelversion", ".pre-commit-config.yaml", "lefthook.yml", "lefthook.yaml", ".lefthook.yml",
     "gradle/wrapper/gradle-wrapper.properties", ".mvn/wrapper/maven-wrapper.properties",
     ".devcontainer.json", ".ripgreprc", "pyrightconfig.json", ".mcp.json", ".claude.json", ".envrc",
     "sub/.husky/pre-commit", ".claude/worktrees/a/.git/config"],
)  # fmt: skip
def test_a_protected_file_is_never_changed_without_asking(tmp_path: Path, path: str) -> None:
    engine = create_engine(tmp_path, "acceptEdits", allow="Edit Write")
    assert name_decision(decide_call(engine, "Write", file_path=path)) == "ask"
    assert decide_command(engine, f"echo x > {path}") == "ask"
    assert name_decision(decide_call(engine, "Write", file_path=".claude/worktrees/a/x")) == "allow"
    bypassing = create_engine(tmp_path, "bypassPermissions")
    assert name_decision(decide_call(bypassing, "Write", file_path=path)) == "allow"


@pytest.mark.spec("CMP-019")
@pytest.mark.parametrize(
    ("rule", "intended"),
    [
        ("Bash(command:rm *)", r"write Bash\(rm \*\)"),
        ("Write(file_path:secret.txt)", r"write Write\(secret.txt\)"),
        ("Read(path:src)", r"write Read\(src\)"),
        ("NotebookEdit(notebook_path:a.ipynb)", r"write NotebookEdit\(a.ipynb\)"),
    ],
)
def test_a_rule_that_names_the_main_field_is_refused_because_it_would_match_nothing(
    rule: str, intended: str
) -> None:
    with pytest.raises(SettingsError, match=intended):
        parse_permission_rule(rule)
    assert parse_permission_rule("Bash(command:*)").pattern == "command:*"  # the builtin of the shell
