"""Merged decisions of several hooks."""

from __future__ import annotations

import pytest

from shoal.core.extensions.hooks import NO_DECISION, HookDecision, merge_hook_decisions
from shoal.core.permissions.permission_changes import RuleBehavior


@pytest.mark.parametrize(
    ("behaviors", "merged"),
    [
        (["allow", "deny", "ask"], "deny"),
        (["allow", "ask"], "ask"),
        (["allow", None], "allow"),
        ([None, None], None),
    ],
)
def test_deny_beats_ask_beats_allow(
    behaviors: list[RuleBehavior | None], merged: RuleBehavior | None
) -> None:
    decisions = [HookDecision(decision=each, decision_reason=f"for {each}") for each in behaviors]
    assert merge_hook_decisions(decisions).decision == merged
    assert merge_hook_decisions(list(reversed(decisions))).decision == merged
    if merged is not None:
        assert merge_hook_decisions(decisions).decision_reason == f"for {merged}"


def test_the_first_block_gives_the_reason_and_contexts_are_joined() -> None:
    merged = merge_hook_decisions(
        [
            HookDecision(context="one", message="m1"),
            HookDecision(blocked="first", stop="s1", updated_input={"a": 1}),
            HookDecision(blocked="second", stop="s2", updated_input={"a": 2}, context="two", suppressed=True),
        ]
    )
    assert merged == HookDecision(
        blocked="first",
        stop="s1",
        updated_input={"a": 1},
        context="one\n\ntwo",
        message="m1",
        suppressed=True,
    )


def test_a_refusal_is_a_block_or_a_denial() -> None:
    assert NO_DECISION.refusal is None
    assert HookDecision(decision="ask").refusal is None
    assert HookDecision(decision="deny").refusal
    assert HookDecision(blocked="b", decision="allow").refusal == "b"
