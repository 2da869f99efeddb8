"""What several hooks say together."""

from __future__ import annotations

import pytest

from shoal.core.hooks import UNMOVED, Verdict, merged
from shoal.core.permissions import Behavior


@pytest.mark.parametrize(
    ("said", "together"),
    [
        (["allow", "deny", "ask"], "deny"),
        (["allow", "ask"], "ask"),
        (["allow", None], "allow"),
        ([None, None], None),
    ],
)
def test_deny_beats_ask_beats_allow(said: list[Behavior | None], together: Behavior | None) -> None:
    verdicts = [Verdict(decision=each, decision_reason=f"for {each}") for each in said]
    assert merged(verdicts).decision == together
    assert merged(list(reversed(verdicts))).decision == together
    if together is not None:
        assert merged(verdicts).decision_reason == f"for {together}"


def test_the_first_to_block_gives_the_reason_and_all_contexts_are_joined() -> None:
    together = merged(
        [
            Verdict(context="one", message="m1"),
            Verdict(blocked="first", stop="s1", updated_input={"a": 1}),
            Verdict(blocked="second", stop="s2", updated_input={"a": 2}, context="two", suppressed=True),
        ]
    )
    assert together == Verdict(
        blocked="first",
        stop="s1",
        updated_input={"a": 1},
        context="one\n\ntwo",
        message="m1",
        suppressed=True,
    )


def test_a_refusal_is_a_block_or_a_denial() -> None:
    assert UNMOVED.refusal is None
    assert Verdict(decision="ask").refusal is None
    assert Verdict(decision="deny").refusal
    assert Verdict(blocked="b", decision="allow").refusal == "b"
