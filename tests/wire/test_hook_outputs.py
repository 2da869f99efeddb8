"""Answers of hooks: what each kind of answer means, and which ones are refused."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.core.extensions.hooks import Hook, HookDecision, HookEvent
from shoal.core.user_environment import UserEnvironment
from shoal.policy.hooks.hook_matcher import select_matching_hooks
from shoal.wire.hook_codec import parse_hooks_from_code, parse_hooks_setting
from shoal.wire.hook_output_codec import (
    MAX_TEXT_LENGTH,
    InvalidHookOutputError,
    parse_hook_function_text,
    parse_hook_output_json,
    truncate_hook_text,
)


@pytest.mark.parametrize(
    ("event", "answer", "why"),
    [
        ("PreToolUse", {"decisions": "block"}, "unknown key 'decisions'; did you mean 'decision'"),
        (
            "PreToolUse",
            {"hookSpecificOutput": {"permisionDecision": "deny"}},
            "unknown key 'permisionDecision'",
        ),
        ("Stop", {"hookSpecificOutput": {"permissionDecision": "deny"}}, "no effect for Stop"),
        (
            "PreToolUse",
            {"hookSpecificOutput": {"decision": {"behavior": "deny"}}},
            "no effect for PreToolUse",
        ),
        ("SessionEnd", {"continue": False}, "'continue', which has no effect for SessionEnd"),
    ],
)
def test_an_answer_of_a_function_that_has_no_effect_is_refused(
    event: HookEvent, answer: dict[str, Any], why: str
) -> None:
    """A command may write such keys for other programs; a function of the program may not."""
    with pytest.raises(InvalidHookOutputError, match=why):
        parse_hook_output_json(event, answer, strict=True)
    parse_hook_output_json(event, answer)


@pytest.mark.parametrize(
    ("event", "answer"),
    [
        ("SessionEnd", {"continue": True}),
        ("SessionEnd", {"systemMessage": "m"}),
        ("PostToolUse", {"continue": False, "stopReason": "enough"}),
        ("PreToolUse", {"hookSpecificOutput": {"permissionDecision": "allow"}}),
        ("PermissionRequest", {"hookSpecificOutput": {"decision": {"behavior": "allow"}}}),
    ],
)
def test_an_answer_of_a_function_that_has_an_effect_is_accepted(
    event: HookEvent, answer: dict[str, Any]
) -> None:
    assert parse_hook_output_json(event, answer, strict=True) == parse_hook_output_json(event, answer)


@pytest.mark.parametrize(
    ("specific", "expected"),
    [
        (
            {"permissionDecision": "defer"},
            ("deny", "a hook deferred the decision, which Shoal does not support"),
        ),
        ({"permissionDecision": "defer", "permissionDecisionReason": "later"}, ("deny", "later")),
        ({"permissionDecision": "ask", "permissionDecisionReason": "r"}, ("ask", "r")),
        ({"permissionDecision": "deny"}, ("deny", "")),
    ],
)
def test_a_permission_decision_has_its_reason(specific: dict[str, Any], expected: tuple[str, str]) -> None:
    found = parse_hook_output_json("PreToolUse", {"hookSpecificOutput": specific})
    assert (found.decision, found.decision_reason) == expected


def test_an_answer_to_a_permission_request_replaces_that_of_a_person() -> None:
    def parse(**decision: Any) -> HookDecision:
        answer = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}
        return parse_hook_output_json("PermissionRequest", answer)

    allowed = parse(behavior="allow", updatedInput={"command": "ls"})
    assert (allowed.decision, allowed.updated_input, allowed.stop) == ("allow", {"command": "ls"}, None)
    denied = parse(behavior="deny", message="not now")
    assert (denied.decision, denied.decision_reason, denied.stop) == ("deny", "not now", None)
    assert parse(behavior="deny", message="not now", interrupt=True).stop == "not now"
    assert parse(behavior="deny", interrupt=True).stop == "it gave no reason"
    assert parse(behavior="allow", interrupt=True).stop is None
    with pytest.raises(InvalidHookOutputError, match="a permission change in an unknown format"):
        parse(behavior="allow", updatedPermissions=[{"type": "unknown"}])
    assert parse(behavior="deny", updatedPermissions=[{"type": "unknown"}]).permission_updates == ()


def test_an_answer_for_another_event_is_refused() -> None:
    with pytest.raises(InvalidHookOutputError, match="it answered for Stop, but the event was PreToolUse"):
        parse_hook_output_json("PreToolUse", {"hookSpecificOutput": {"hookEventName": "Stop"}})


def test_only_the_start_of_a_session_has_a_title_and_a_first_message() -> None:
    answer = {"hookSpecificOutput": {"initialUserMessage": " hi ", "sessionTitle": " roof "}}
    start, other = (parse_hook_output_json(event, answer) for event in ("SessionStart", "UserPromptSubmit"))
    assert (start.initial_message, start.session_title) == ("hi", "roof")
    assert (other.initial_message, other.session_title) == ("", "")


def test_the_text_of_a_function_is_an_object_or_context_or_refused() -> None:
    blocked = parse_hook_function_text("PreToolUse", ' {"decision": "block", "reason": "no"}')
    assert blocked.blocked == "no"
    assert parse_hook_function_text("UserPromptSubmit", "{not json").context == "{not json"
    assert parse_hook_function_text("WorktreeCreate", "/a/b").output == "/a/b"
    assert parse_hook_function_text("PreToolUse", " ").context == ""
    with pytest.raises(InvalidHookOutputError, match="the text 'words', which has no effect for PreToolUse"):
        parse_hook_function_text("PreToolUse", "words")
    with pytest.raises(InvalidHookOutputError, match="unknown key 'a'"):
        parse_hook_function_text("PreToolUse", '{"a": 1}')


def test_only_text_over_the_limit_is_cut() -> None:
    assert truncate_hook_text("x" * MAX_TEXT_LENGTH) == "x" * MAX_TEXT_LENGTH
    cut = truncate_hook_text("x" * (MAX_TEXT_LENGTH + 1))
    assert cut == "x" * MAX_TEXT_LENGTH + " [… cut, 20,001 characters in total]"


@pytest.mark.parametrize("raw", [{"PreTolUse": [print]}, {"Stop": "x"}, {"Stop": print}, {"Stop": {}}])
def test_hooks_in_code_of_another_form_are_reported(raw: dict[str, Any]) -> None:
    found = parse_hooks_from_code(raw, "here")
    assert found.hooks == ()
    assert len(found.problems) == 1


def list_selected(*hooks: dict[str, Any]) -> tuple[Hook, ...]:
    found = parse_hooks_setting({"Stop": [{"hooks": list(hooks)}]}, lambda _: "there")
    assert found.problems == ()
    return select_matching_hooks(found.hooks, "Stop", {}, UserEnvironment({}, "/home"))


@pytest.mark.parametrize(
    ("hook", "change"),
    [
        ({"command": "a"}, {"command": "b"}),
        ({"command": "a"}, {"args": ["x"]}),
        ({"command": "a"}, {"async": True}),
        ({"type": "prompt", "prompt": "a"}, {"prompt": "b"}),
        ({"type": "prompt", "prompt": "a"}, {"model": "haiku"}),
        ({"type": "http", "url": "http://a"}, {"url": "http://b"}),
        ({"type": "http", "url": "http://a"}, {"headers": {"A": "b"}}),
        ({"type": "mcp_tool", "server": "s", "tool": "t"}, {"tool": "u"}),
        ({"type": "mcp_tool", "server": "s", "tool": "t"}, {"server": "u"}),
        ({"type": "mcp_tool", "server": "s", "tool": "t"}, {"input": {"a": "b"}}),
    ],
)
def test_only_hooks_that_do_the_same_are_run_once(hook: dict[str, Any], change: dict[str, Any]) -> None:
    assert len(list_selected(hook, hook)) == 1
    assert len(list_selected(hook, hook | change)) == 2


def test_of_two_equal_hooks_the_one_that_blocks_on_failure_is_run() -> None:
    lenient, strict = {"command": "a"}, {"command": "a", "onFailure": "block"}
    for hooks in ((lenient, strict), (strict, lenient)):
        assert [hook.blocks_on_failure for hook in list_selected(*hooks)] == [True]
