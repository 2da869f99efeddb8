"""Lists of rules in the value of a flag."""

from __future__ import annotations

import pytest

from shoal.core.errors import SettingsError
from shoal.policy.permission_rules import split_permission_rule_list


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("Read,Edit", ["Read", "Edit"]),
        ("Read Edit,  Write ", ["Read", "Edit", "Write"]),
        ("Bash(git log:*) Read", ["Bash(git log:*)", "Read"]),
        ("Bash(echo (a, b)),Read", ["Bash(echo (a, b))", "Read"]),
        (" , ", []),
        ("", []),
    ],
)
def test_rules_are_separated_by_commas_and_blanks_outside_parentheses(text: str, rules: list[str]) -> None:
    assert split_permission_rule_list(text) == rules


@pytest.mark.parametrize("text", ["Bash(", "Bash(git log:*", "Bash git)", "Read,Bash(a"])
def test_an_unclosed_pattern_is_refused_and_not_read_as_the_whole_tool(text: str) -> None:
    with pytest.raises(SettingsError, match="do not match"):
        split_permission_rule_list(text)
