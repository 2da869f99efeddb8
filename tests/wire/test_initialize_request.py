"""The initialize request of a program that drives a run: hooks that could never run are refused."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.core.extensions.hooks import MAX_HOOK_SECONDS
from shoal.wire.stream_input_codec import (
    InvalidInputStreamLineError,
    StreamInitializeRequest,
    parse_stream_initialize_request,
)


def parse_callbacks(entries: Any) -> StreamInitializeRequest:
    return parse_stream_initialize_request({"subtype": "initialize", "hooks": {"PreToolUse": entries}})


def test_a_callback_is_called_for_tools_that_match():
    (callback,) = parse_callbacks(
        [{"matcher": "Bash|Edit", "hookCallbackIds": ["f"], "timeout": 5}]
    ).callbacks
    assert (callback.event, callback.matcher, callback.callback, callback.seconds) == (
        "PreToolUse",
        "Bash|Edit",
        "f",
        5.0,
    )


def test_an_event_without_callbacks_registers_no_hook():
    assert parse_callbacks(None).callbacks == parse_callbacks([]).callbacks == ()


@pytest.mark.parametrize("entries", [{"hookCallbackIds": ["f"]}, "f", 1])
def test_callbacks_that_are_not_a_list_are_refused(entries: Any):
    with pytest.raises(InvalidInputStreamLineError, match="PreToolUse"):
        parse_callbacks(entries)


def test_an_invalid_matcher_expression_is_refused():
    with pytest.raises(InvalidInputStreamLineError, match="matcher"):
        parse_callbacks([{"matcher": "[", "hookCallbackIds": ["f"]}])


@pytest.mark.parametrize(
    "seconds", [10**400, float("inf"), MAX_HOOK_SECONDS + 1], ids=["long", "inf", "over"]
)
def test_the_timeout_is_limited_like_that_of_other_hooks(seconds: float):
    (callback,) = parse_callbacks([{"hookCallbackIds": ["f"], "timeout": seconds}]).callbacks
    assert callback.seconds == MAX_HOOK_SECONDS


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_an_invalid_timeout_is_the_default_timeout(seconds: float):
    (callback,) = parse_callbacks([{"hookCallbackIds": ["f"], "timeout": seconds}]).callbacks
    assert callback.seconds == 60.0
