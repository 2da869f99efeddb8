"""A teammate's papers on a command line, and read from it."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.core.errors import InvalidName
from shoal.core.ids import AgentId
from shoal.core.names import parse_agent_name, parse_team_name
from shoal.core.permissions.permission_decisions import PermissionMode
from shoal.core.teams.member_backends import MemberLaunchArgs
from shoal.wire.launch_args_codec import build_member_launch_flags, parse_member_launch_flags

PLAIN = MemberLaunchArgs(
    agent=AgentId("alice@roof"),
    name=parse_agent_name("alice"),
    team=parse_team_name("roof"),
    color="blue",
    session="11111111-2222-3333-4444-555555555555",
    kind="general-purpose",
    model="claude-sonnet-4-5",
)
WORDS = (
    *("--agent-id", "alice@roof", "--agent-name", "alice", "--team-name", "roof", "--agent-color", "blue"),
    *("--parent-session-id", "11111111-2222-3333-4444-555555555555", "--agent-type", "general-purpose"),
    *("--model", "claude-sonnet-4-5"),
)


@pytest.mark.spec("BCK-03", "AGT-11")
def test_the_arguments_are_the_documented_ones() -> None:
    assert build_member_launch_flags(PLAIN) == WORDS
    full = replace(
        PLAIN,
        plan_mode_required=True,
        mode="acceptEdits",
        allowed=("Read", "Bash(git log:*)"),
        disallowed=("WebFetch",),
        skip_permissions=True,
        max_budget_usd=2.5,
        settings="strict.json",
        plugin_dirs=("/a", "/b"),
    )
    assert build_member_launch_flags(full) == (
        *WORDS,
        "--plan-mode-required",
        "--dangerously-skip-permissions",
        *("--permission-mode", "acceptEdits", "--max-budget-usd", "2.5", "--settings", "strict.json"),
        *("--allowedTools", "Read", "--allowedTools", "Bash(git log:*)"),
        *("--disallowedTools", "WebFetch", "--plugin-dir", "/a", "--plugin-dir", "/b"),
    )
    assert parse_member_launch_flags(build_member_launch_flags(full)) == full


texts = st.text(min_size=1).filter(lambda text: text.isprintable())


@pytest.mark.slow
@given(
    st.sampled_from(["alice", "a-1", "B_2"]),
    st.none() | texts,
    texts,
    st.booleans(),
    st.none() | st.sampled_from(get_args(PermissionMode)),
    st.lists(texts).map(tuple),
)
def test_launch_arguments_parse_back_unchanged(
    name: str, color: str | None, kind: str, plan: bool, mode: PermissionMode | None, rules: tuple[str, ...]
) -> None:
    papers = MemberLaunchArgs(
        agent=AgentId(f"{name}@t"),
        name=parse_agent_name(name),
        team=parse_team_name("t"),
        color=color,
        session="s",
        kind=kind,
        model="m",
        plan_mode_required=plan,
        mode=mode,
        allowed=rules,
        disallowed=rules[::-1],
    )
    assert parse_member_launch_flags(build_member_launch_flags(papers)) == papers


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (WORDS[2:], "--agent-id is missing"),
        ((*WORDS, "--verbose"), "'--verbose' is not a launch argument"),
        ((*WORDS, "--permission-mode", "wild"), "'wild' is not a mode"),
        (("--agent-id", "bob@roof", *WORDS[2:]), "'bob@roof', but the name and the team give 'alice@roof'"),
        (WORDS[:-1], "--model needs a value"),
        ((*WORDS, "--max-budget-usd", "much"), "'much' is not a dollar amount greater than 0"),
        ((*WORDS, "--max-budget-usd", "nan"), "'nan' is not a dollar amount greater than 0"),
    ],
)
def test_an_invalid_argument_is_named_in_the_error(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_member_launch_flags(words)


def test_an_invalid_name_is_refused() -> None:
    with pytest.raises(InvalidName):
        parse_member_launch_flags(("--agent-id", "../x@roof", "--agent-name", "../x", *WORDS[4:]))
