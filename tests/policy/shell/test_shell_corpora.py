"""Every bypass attempt is asked, and almost no everyday command is."""

from __future__ import annotations

import pytest

from command_corpora import load_bypasses, load_harmless, runs_without_asking
from shoal.policy.shell.command_analysis import analyze_shell_command


@pytest.mark.spec("PRM-05")
def test_no_bypass_attempt_runs_without_asking():
    attempts = load_bypasses()
    assert len(set(attempts)) >= 300
    assert [
        (rules, command)
        for rules, command in attempts
        if runs_without_asking(analyze_shell_command(command), rules)
    ] == []


def test_everyday_commands_run_without_asking():
    commands = load_harmless()
    assert len(set(commands)) >= 300
    asked = [command for command in commands if not runs_without_asking(analyze_shell_command(command))]
    assert len(asked) <= 0.05 * len(commands), asked


@pytest.mark.spec("PRM-05")
@pytest.mark.parametrize(
    ("around", "inner"),
    [
        (around, inner)
        for around in (
            "ls; {}",
            "ls | {}",
            "ls $({})",
            "if {}; then ls; fi",
            "(ls && {})",
            "cat <({})",
            "bash -c '{}'",
        )
        for inner in ("git push", "npm test", "rm x")
    ],
)
def test_a_rule_for_the_first_command_does_not_cover_a_second(around, inner):
    command = around.format(inner)
    rules = ("Bash(ls:*)", "Bash(cat:*)", "Bash(bash:*)")
    assert not runs_without_asking(analyze_shell_command(command), rules)
    own_rule = f"Bash({inner})"
    assert runs_without_asking(analyze_shell_command(command), (*rules, own_rule)) is (inner != "rm x")
