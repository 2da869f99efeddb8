"""Both corpora through the permission engine itself, in a real project directory."""

from __future__ import annotations

import pytest
from corpora import bypasses, harmless

from shoal.core.decisions import Allow
from shoal.core.identity import Identity
from shoal.core.ids import SessionId
from shoal.core.messages import ToolUse
from shoal.policy.commands import CommandRules
from shoal.policy.permissions import RulePermissions
from shoal.policy.rules import Standing, parse_rule
from shoal.policy.shell.analysis import analysed
from shoal.workspaces.local import LocalWorkspace


def _engine(place, rules=()):
    standing = Standing(allow=tuple(parse_rule(rule, "a test") for rule in rules))
    return RulePermissions(LocalWorkspace(place), standing=standing)


def _is_allowed(engine, command):
    call = ToolUse(id="c", name="Bash", input={"command": command})
    return isinstance(engine.decide(call, None, Identity(session=SessionId("s"))), Allow)


@pytest.mark.spec("PRM-05")
def test_the_engine_lets_no_bypass_attempt_run_unasked(tmp_path):
    attempts = bypasses()
    engines = {rules: _engine(tmp_path, rules) for rules, _ in attempts}
    assert [(rules, command) for rules, command in attempts if _is_allowed(engines[rules], command)] == []


def test_the_engine_asks_at_most_one_everyday_command_in_twenty(tmp_path):
    engine = _engine(tmp_path)
    asked = [command for command in harmless() if not _is_allowed(engine, command)]
    assert len(asked) <= 0.05 * len(harmless()), asked


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
def test_where_output_goes_is_judged_from_the_directory_that_a_cd_leads_to(tmp_path, command):
    (tmp_path / ".git/hooks").mkdir(parents=True)
    engine = RulePermissions(LocalWorkspace(tmp_path), mode="acceptEdits")
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
def test_a_file_outside_is_not_read_unasked_however_it_is_named(tmp_path, command):
    engine = _engine(tmp_path)
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
def test_rules_that_are_silent_on_a_command_concern_no_part_of_it(pattern):
    rules = CommandRules([parse_rule(f"Bash({pattern})")])
    spoken_of = 0
    for command in (*harmless(), *(command for _, command in bypasses())):
        analysis = analysed(command)
        (rule,) = rules.each
        concerned = (
            any(rule.concerns(part) != "no" for part in analysis.parts)
            or rule.is_whole(command)
            or (analysis.trouble is not None and rule.may_concern_text(command))
        )
        spoken_of += concerned
        assert not (concerned and rules.silent_on(command, analysis)), command
    assert spoken_of
