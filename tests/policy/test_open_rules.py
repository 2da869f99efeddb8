"""An allow rule with an open end does not cover what a wrapper runs, nor what find removes or writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_command

from shoal.policy.shell.known_commands import OPEN_WRAPPERS
from shoal.policy.shell.wrapper_commands import WRAPPERS


@pytest.mark.parametrize("name", sorted(OPEN_WRAPPERS | WRAPPERS.keys()))
@pytest.mark.parametrize("prefix", ["", "/usr/bin/", "nice "])
def test_a_rule_for_a_wrapper_does_not_cover_the_command_that_it_runs(
    tmp_path: Path, name: str, prefix: str
) -> None:
    command = f"{prefix}{name} touch x"
    program = command.removesuffix(" touch x").removeprefix("nice ")
    for rule in (f"{program}:*", f"{program} *", f"{program}*"):
        assert decide_command(create_engine(tmp_path, allow=f"Bash({rule})"), command) == "ask", rule


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("flock:*", "flock LK touch g4"),
        ("flock LK:*", "flock LK -c 'touch g4'"),
        ("watch:*", "watch -g -n 1 touch g6"),
        ("watch make:*", "watch make '; touch x'"),
        ("watch:*", "timeout 5 watch touch x"),
        ("script:*", "script -q -c 'touch x' out"),
        ("parallel:*", "parallel touch ::: a b"),
        ("entr:*", "ls | entr touch x"),
        ("find:*", "find . -name f1 -delete"),
        ("find . *", "find . -name f1 -delete"),
        ("find:*", "find . -fprint x"),
        ("find:*", "find . -fprint0 x"),
        ("find:*", "find . -fprintf x %p"),
        ("find:*", "find . -fls x"),
        ("/usr/bin/find:*", "/usr/bin/find . -name f1 -delete"),
        ("find:*", "nice find . -name f1 -delete"),
        ("find . -delete:*", "find . -delete -fprint x"),
    ],
)
def test_a_rule_with_an_open_end_does_not_cover_other_effects(
    tmp_path: Path, rule: str, command: str
) -> None:
    assert decide_command(create_engine(tmp_path, allow=f"Bash({rule})"), command) == "ask"


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("flock LK make test", "flock LK make test"),
        ("flock LK make test", "nice flock LK make test && ls"),
        ("find . -name f1 -delete", "find . -name f1 -delete; ls"),
        ("find . -name \\*.pyc -delete", "find . -name '*.pyc' -delete; ls"),
        ("find . -name *.pyc -delete", "find . -name '*.pyc' -delete; ls"),
        ("find . -fprint:*", "find . -fprint list.txt -name x"),
        ("find:*", "find . -newer f1 -print"),
        ("npx:*", "npx eslint ."),
        ("*", "flock LK make test"),
        ("*", "find . -name f1 -delete"),
    ],
)
def test_a_rule_that_names_the_effect_covers_it(tmp_path: Path, rule: str, command: str) -> None:
    assert decide_command(create_engine(tmp_path, allow=f"Bash({rule})"), command) == "allow"
