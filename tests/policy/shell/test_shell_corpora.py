"""Every bypass attempt is asked, and almost no everyday command is."""

from __future__ import annotations

import pytest
from corpora import bypasses, harmless, runs_unasked

from shoal.policy.shell.analysis import analysed


@pytest.mark.spec("PRM-05")
def test_no_bypass_attempt_runs_unasked():
    attempts = bypasses()
    assert len(set(attempts)) >= 300
    assert [(rules, command) for rules, command in attempts if runs_unasked(analysed(command), rules)] == []


def test_everyday_commands_run_unasked():
    commands = harmless()
    assert len(set(commands)) >= 300
    asked = [command for command in commands if not runs_unasked(analysed(command))]
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
    assert not runs_unasked(analysed(command), rules)
    own_rule = f"Bash({inner})"
    assert runs_unasked(analysed(command), (*rules, own_rule)) is (inner != "rm x")
