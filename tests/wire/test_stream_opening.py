"""What a program asks for when it begins to drive a run: hooks that could never run as meant are refused."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.core.hooks import LONGEST_SECONDS
from shoal.wire.stream_incoming import BadLine
from shoal.wire.stream_opening import Wishes, wishes_in


def opened(entries: Any) -> Wishes:
    return wishes_in({"subtype": "initialize", "hooks": {"PreToolUse": entries}})


def test_a_function_is_called_for_what_its_matcher_fits():
    (wish,) = opened([{"matcher": "Bash|Edit", "hookCallbackIds": ["f"], "timeout": 5}]).callbacks
    assert (wish.event, wish.matcher, wish.callback, wish.seconds) == ("PreToolUse", "Bash|Edit", "f", 5.0)


def test_an_event_without_functions_is_no_wish():
    assert opened(None).callbacks == opened([]).callbacks == ()


@pytest.mark.parametrize("entries", [{"hookCallbackIds": ["f"]}, "f", 1])
def test_functions_that_are_no_list_are_refused_and_not_passed_over(entries: Any):
    with pytest.raises(BadLine, match="PreToolUse"):
        opened(entries)


def test_a_matcher_that_is_no_regular_expression_is_refused():
    with pytest.raises(BadLine, match="matcher"):
        opened([{"matcher": "[", "hookCallbackIds": ["f"]}])


@pytest.mark.parametrize("seconds", [10**400, float("inf"), LONGEST_SECONDS + 1], ids=["long", "inf", "over"])
def test_nobody_waits_longer_than_for_other_hooks(seconds: float):
    (wish,) = opened([{"hookCallbackIds": ["f"], "timeout": seconds}]).callbacks
    assert wish.seconds == LONGEST_SECONDS


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_no_time_at_all_is_the_usual_time(seconds: float):
    (wish,) = opened([{"hookCallbackIds": ["f"], "timeout": seconds}]).callbacks
    assert wish.seconds == 60.0
