"""Both corpora through the permission engine itself, in a real project directory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from command_corpora import load_bypasses, load_harmless
from shoal.core.agents.identity import AgentIdentity
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.ids import SessionId
from shoal.core.permissions.permission_decisions import AllowDecision
from shoal.policy.command_rules import ShellCommandRules
from shoal.policy.permission_engine import PermissionEngine
from shoal.policy.permission_rules import PermissionRuleSet, parse_permission_rule
from shoal.policy.shell.command_analysis import analyze_shell_command
from shoal.workspaces.local_workspace import LocalWorkspace


def _create_engine(root: Path, rules: Iterable[str] = ()) -> PermissionEngine:
    rule_set = PermissionRuleSet(allow=tuple(parse_permission_rule(rule, "a test") for rule in rules))
    return PermissionEngine(LocalWorkspace(root), rules=rule_set)


def _is_allowed(engine: PermissionEngine, command: str) -> bool:
    call = ToolUseBlock(id="c", name="Bash", input={"command": command})
    return isinstance(
        engine.decide_tool_call(call, None, AgentIdentity(session=SessionId("s"))), AllowDecision
    )


@pytest.mark.spec("PRM-05")
def test_the_engine_allows_no_bypass_attempt_without_asking(tmp_path):
    attempts = load_bypasses()
    engines = {rules: _create_engine(tmp_path, rules) for rules, _ in attempts}
    assert [(rules, command) for rules, command in attempts if _is_allowed(engines[rules], command)] == []


def test_the_engine_asks_at_most_one_everyday_command_in_twenty(tmp_path):
    engine = _create_engine(tmp_path)
    asked = [command for command in load_harmless() if not _is_allowed(engine, command)]
    assert len(asked) <= 0.05 * len(load_harmless()), asked


@pytest.mark.spec("PRM-05")
@pytest.mark.parametrize(
    "command",
    [
        "cd .git/hooks && echo x > pre-commit",
        "cd .git && ls | cat >> hooks/pre-commit",
        "ls || cd .git/hooks && echo x 2>&1 > pre-commit",
        "cd .git/hooks && { echo x; } > pre-commit",
        "cd .git/hooks; echo x > pre-commit",
        "trap 'echo x > hooks/pre-commit' EXIT; cd .git",
        "eval \"trap 'ls > config' EXIT\"; cd .git",
    ],
)
def test_redirections_after_a_cd_are_resolved_from_the_new_directory(tmp_path, command):
    (tmp_path / ".git/hooks").mkdir(parents=True)
    engine = PermissionEngine(LocalWorkspace(tmp_path), mode="acceptEdits")
    assert _is_allowed(engine, "cd .git/hooks && echo x > /dev/null")
    assert not _is_allowed(engine, command)


@pytest.mark.spec("PRM-05")
@pytest.mark.parametrize(
    "command",
    [
        "grep root /etc/passwd",
        "grep -eroot /etc/passwd",
        "grep -5eroot /etc/passwd",
        "grep -1vfx /etc/passwd",
        "grep --reg=root /etc/passwd",
        "rg -.eroot /etc/passwd",
        "rg -0eroot /etc/passwd",
        "diff --from-file=.. x",
        "echo /etc/passwd | xargs cat",
        "echo /etc/passwd | xargs -E -I -n 1 cat",
        "echo /etc/passwd | xargs -I {} -L 1 cat x",
        "x=../../../../etc/passwd; cat /dev/fd/$x",
        'x=../../../../etc/passwd; cat "/dev/fd/$x"',
    ],
)
def test_no_spelling_of_a_file_outside_is_read_without_asking(tmp_path, command):
    engine = _create_engine(tmp_path)
    assert _is_allowed(engine, "grep root x; diff <(ls) x; ls | xargs -I {} echo {}")
    assert not _is_allowed(engine, command)


@pytest.mark.parametrize(
    "pattern",
    [
        "rm:*",
        "git push:*",
        "cat",
        "bin/cat:*",
        "make test",
        "* x",
        "LANG=C ls",
        "xargs:*",
        "sudo:*",
        "sh -c:*",
    ],
)
def test_rules_that_do_not_match_a_command_match_no_part_of_it(pattern):
    rules = ShellCommandRules([parse_permission_rule(f"Bash({pattern})")])
    matches = 0
    for command in (*load_harmless(), *(command for _, command in load_bypasses())):
        analysis = analyze_shell_command(command)
        (rule,) = rules.rules
        matched = (
            any(rule.match_as_forbidding_rule(part) != "no" for part in analysis.parts)
            or rule.is_exact_command(command)
            or not analysis.is_complete
        )
        matches += matched
        assert not (matched and rules.is_certain_no_match(command, analysis)), command
    assert matches
