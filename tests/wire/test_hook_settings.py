"""Hooks as settings write them: what is read, and what is wrong where."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from json_values import few_examples, values

from shoal.core.extensions.hooks import (
    MAX_HOOK_SECONDS,
    PROGRAM_HOOK_SECONDS,
    SESSION_END_HOOK_SECONDS,
    HookDecision,
    HttpPostHookAction,
    PythonCallbackHookAction,
    ShellCommandHookAction,
)
from shoal.policy.hooks.hook_matcher import is_hook_matcher_match
from shoal.wire.hook_codec import ParsedHooks, parse_hooks_from_code, parse_hooks_setting
from shoal.wire.hook_output_codec import (
    MAX_TEXT_LENGTH,
    HookContinueInBackgroundRequest,
    InvalidHookOutputError,
    parse_async_hook_request,
    parse_hook_output_json,
    parse_hook_output_text,
)
from shoal.wire.json_line_numbers import find_json_key_line


def parse_settings(raw: Any, **environ: str) -> ParsedHooks:
    text = json.dumps({"hooks": raw}, indent=1)
    return parse_hooks_setting(raw, lambda keys: f"s.json:{find_json_key_line(text, keys)}", environ)


def test_the_documented_form_is_read_with_the_location_of_each_hook() -> None:
    found = parse_settings(
        {
            "PreToolUse": [
                {
                    "matcher": "Bash|Edit",
                    "hooks": [
                        {"type": "command", "command": "./check.sh", "timeout": 5},
                        {"type": "http", "url": "https://example.org/x", "headers": {"A": "b"}},
                    ],
                }
            ],
            "SessionEnd": [{"hooks": [{"command": "bye"}]}],
        }
    )
    first, second, third = found.hooks
    assert found.problems == ()
    assert (first.event, first.matcher, first.action, first.seconds) == (
        "PreToolUse",
        "Bash|Edit",
        ShellCommandHookAction(command="./check.sh"),
        5.0,
    )
    assert second.action == HttpPostHookAction(url="https://example.org/x", headers={"A": "b"})
    assert (second.seconds, third.seconds) == (PROGRAM_HOOK_SECONDS, SESSION_END_HOOK_SECONDS)
    assert (first.origin, second.origin, third.origin) == ("s.json:7", "s.json:12", "s.json:25")


COMMAND = {"type": "command", "command": "x"}


@pytest.mark.parametrize(
    ("raw", "line", "why"),
    [
        ([], 2, "expected an object with event names as keys"),
        ({"PreTolUse": []}, 3, "did you mean PreToolUse?"),
        ({"Stop": {}}, 3, "expected a list"),
        ({"Stop": [1]}, 4, "expected an object such"),
        ({"Stop": [{"hooks": "x"}]}, 5, "expected a list of hooks"),
        ({"Stop": [{}]}, 4, "expected a list of hooks"),
        ({"PreToolUse": [{"matcher": 1, "hooks": []}]}, 5, "expected a string"),
        ({"PreToolUse": [{"matcher": "(", "hooks": []}]}, 5, "neither a name nor a regular expression"),
        ({"Stop": [{"matcher": "x", "hooks": [COMMAND]}]}, 5, "does not use a matcher"),
        ({"Stop": [{"hooks": [7]}]}, 6, "expected an object such"),
        ({"Stop": [{"hooks": [{"type": "agents"}]}]}, 7, "hook type "),
        ({"Stop": [{"hooks": [{"type": "command"}]}]}, 6, "expected a command"),
        ({"Stop": [{"hooks": [{"command": " "}]}]}, 7, "expected a command"),
        ({"Stop": [{"hooks": [{"command": "a\0b"}]}]}, 7, "cannot contain a NUL character"),
        ({"Stop": [{"hooks": [COMMAND | {"timeout": 0}]}]}, 9, "expected a number of seconds"),
        ({"Stop": [{"hooks": [COMMAND | {"timeout": "9"}]}]}, 9, "expected a number of seconds"),
        ({"Stop": [{"hooks": [COMMAND | {"args": "x"}]}]}, 9, "expected a list of strings"),
        ({"Stop": [{"hooks": [COMMAND | {"args": ["x", 1]}]}]}, 9, "expected a list of strings"),
        ({"Stop": [{"hooks": [COMMAND | {"args": ["a\0b"]}]}]}, 9, "expected a list of strings"),
        ({"Stop": [{"hooks": [COMMAND | {"shell": ["sh"]}]}]}, 9, "expected bash or powershell"),
        ({"Stop": [{"hooks": [COMMAND | {"shell": "fish"}]}]}, 9, "expected bash or powershell, got 'fish'"),
        ({"Stop": [{"hooks": [COMMAND | {"asink": True}]}]}, 9, "it is ignored"),
        ({"Stop": [{"hooks": [COMMAND | {"async": "yes"}]}]}, 9, "expected true or false"),
        ({"Stop": [{"hooks": [COMMAND | {"asyncRewake": 1}]}]}, 9, "expected true or false"),
        ({"Stop": [{"hooks": [COMMAND | {"onFailure": "x"}]}]}, 9, "continue or block"),
        ({"Stop": [{"hooks": [{"type": "http", "url": "ftp://x"}]}]}, 8, "expected a URL that"),
        ({"Stop": [{"hooks": [{"type": "http", "url": "http://["}]}]}, 8, "expected a URL that"),
        (
            {"Stop": [{"hooks": [{"type": "http", "url": "http://x", "headers": 1}]}]},
            9,
            "an object with string values",
        ),
    ],
)
def test_an_error_is_reported_with_its_line(raw: Any, line: int, why: str) -> None:
    found = parse_settings(raw)
    (problem,) = (*found.problems, *found.unused)
    assert problem.startswith(f"s.json:{line}: hooks")
    assert why in problem


@pytest.mark.spec("CMP-002")
@pytest.mark.parametrize("event", ["PreToolUse", "UserPromptSubmit", "PermissionRequest"])
@pytest.mark.parametrize(
    ("entries", "matcher"),
    [
        ([{"matcher": "Bash(", "hooks": [COMMAND]}], ""),
        ([{"matcher": 3, "hooks": [COMMAND]}], ""),
        ([{"matcher": "Bash", "hooks": COMMAND}], "Bash"),
        ([COMMAND | {"matcher": "Bash"}], "Bash"),
        ([{"matcher": "Bash", "hooks": [{"type": "wasm"}]}], "Bash"),
        ([{"matcher": "Bash", "hooks": [{"type": "command"}]}], "Bash"),
        ([{"matcher": "Bash", "hooks": ["exit 2"]}], "Bash"),
        ([7], ""),
        ({"matcher": "Bash"}, ""),
    ],
)
def test_an_invalid_hook_blocks_what_it_may_guard(event: str, entries: Any, matcher: str) -> None:
    found = parse_settings({event: entries})
    (hook,) = found.hooks
    assert isinstance(hook.action, PythonCallbackHookAction)
    decision = hook.action.function({})
    assert isinstance(decision, HookDecision)
    assert (hook.matcher, hook.origin in str(decision.blocked)) == (matcher, True)
    (problem,) = found.problems
    assert f"{event} is blocked" in problem


@pytest.mark.spec("CMP-002")
def test_parts_of_newer_programs_are_unused_and_their_hooks_run() -> None:
    action = COMMAND | {"timeout": "5", "newField": 1}
    found = parse_settings({"Stop": [{"matcher": "x", "hooks": [action]}], "CwdMoved": [], "FileChanged": []})
    assert [hook.seconds for hook in found.hooks] == [PROGRAM_HOOK_SECONDS]
    assert (len(found.unused), found.problems) == (5, ())


@pytest.mark.spec("CMP-038")
def test_a_matcher_of_any_character_is_understood() -> None:
    (hook,) = parse_settings({"PreToolUse": [{"matcher": "B[^]sh", "hooks": [COMMAND]}]}).hooks
    assert is_hook_matcher_match(hook.matcher, "Bash")


def test_valid_hooks_next_to_an_invalid_one_are_used() -> None:
    found = parse_settings({"Stop": [{"hooks": [{"type": "odd"}, COMMAND]}, 5], "Nonsense": 1})
    assert [hook.action for hook in found.hooks] == [ShellCommandHookAction(command="x")]
    assert (len(found.problems), len(found.unused)) == (2, 1)


def test_background_hooks_are_read_and_unsupported_options_are_reported() -> None:
    def parse_one_hook(event: str, **more: Any) -> ParsedHooks:
        return parse_settings({event: [{"hooks": [COMMAND | more]}]})

    found = parse_one_hook("PostToolUse", **{"async": True})
    assert [(hook.background, hook.rewakes) for hook in found.hooks] == [(True, False)]
    found = parse_one_hook("PostToolUse", asyncRewake=True)
    assert [(hook.background, hook.rewakes) for hook in found.hooks] == [(True, True)]
    assert found.problems == found.warnings == ()
    found = parse_one_hook("PostToolUse", **{"async": False, "asyncRewake": False})
    assert [(hook.background, hook.rewakes) for hook in found.hooks] == [(False, False)]
    for event, why in (
        ("PreToolUse", "it cannot decide anything"),
        ("SessionEnd", "waits for it anyway because"),
    ):
        found = parse_one_hook(event, **{"async": True})
        (warning,) = found.warnings
        assert warning.startswith(f"s.json:9: hooks.{event}.0.hooks.0.async: ")
        assert why in warning
        assert (len(found.hooks), found.problems) == (1, ())
    (warning,) = parse_one_hook("Stop", asyncRewake=True, onFailure="block").warnings
    assert "it cannot block" in warning
    (problem,) = parse_settings(
        {"Stop": [{"hooks": [{"type": "http", "url": "http://x", "async": True}]}]}
    ).unused
    assert "it is ignored" in problem


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"async": true}', HookContinueInBackgroundRequest()),
        (' {"async":true,"asyncTimeout":15000} ', HookContinueInBackgroundRequest(seconds=15.0)),
        ('{"async": true, "asyncTimeout": 1e300}', HookContinueInBackgroundRequest(seconds=MAX_HOOK_SECONDS)),
        (
            f'{{"async": true, "asyncTimeout": {10**400}}}',
            HookContinueInBackgroundRequest(seconds=MAX_HOOK_SECONDS),
        ),
        ('{"async": true, "asyncTimeout": -1}', HookContinueInBackgroundRequest()),
        ('{"async": true, "asyncTimeout": "9"}', HookContinueInBackgroundRequest()),
        ('{"async": false}', None),
        ('{"async": 1}', None),
        ('["async"]', None),
        ('{"async": tr', None),
        ("", None),
    ],
)
def test_the_first_output_line_can_make_a_hook_asynchronous(
    line: str, expected: HookContinueInBackgroundRequest | None
) -> None:
    assert parse_async_hook_request(line) == expected


def test_headers_expand_only_the_allowed_variables() -> None:
    headers = {"A": "Bearer $KEY", "B": "${KEY}/$OTHER"}
    hook = {"type": "http", "url": "http://x", "headers": headers, "allowedEnvVars": ["KEY"]}
    (found,) = parse_settings({"Stop": [{"hooks": [hook]}]}, KEY="k", OTHER="o").hooks
    assert found.action == HttpPostHookAction(url="http://x", headers={"A": "Bearer k", "B": "k/"})


def test_hooks_from_python_are_functions_pairs_or_entries() -> None:
    found = parse_hooks_from_code(
        {"PreToolUse": [print, ("Bash", len), {"hooks": [COMMAND]}, 7, ("(", len)]}, "here"
    )
    assert [(hook.matcher, hook.action) for hook in found.hooks] == [
        ("", PythonCallbackHookAction(function=print)),
        ("Bash", PythonCallbackHookAction(function=len)),
        ("", ShellCommandHookAction(command="x")),
    ]
    assert len(found.problems) == 2


@few_examples
@given(values)
def test_any_hook_setting_is_read_or_reported(raw: Any) -> None:
    for each in (
        raw,
        {"Stop": raw},
        {"Stop": [raw]},
        {"Stop": [{"hooks": raw}]},
        {"Stop": [{"hooks": [raw]}]},
    ):
        parse_hooks_setting(each, lambda _: "there")


@few_examples
@given(values)
def test_any_hook_output_is_read_or_refused(raw: Any) -> None:
    for answer in (raw, {"hookSpecificOutput": raw}, {"hookSpecificOutput": {"decision": raw}}):
        with suppress(InvalidHookOutputError):
            assert isinstance(parse_hook_output_json("PermissionRequest", answer), HookDecision)


def test_hook_output_becomes_a_decision() -> None:
    assert parse_hook_output_json("PreToolUse", {"decision": "approve", "reason": "r"}).decision == "allow"
    assert parse_hook_output_json("Stop", {"decision": "approve"}).decision is None
    assert parse_hook_output_json("Stop", {"decision": "block"}).blocked == "it gave no reason"
    stopped = parse_hook_output_json("Stop", {"continue": False, "stopReason": "late", "systemMessage": "m"})
    assert (stopped.stop, stopped.message) == ("late", "m")
    assert parse_hook_output_text("WorktreeCreate", " /a/b\n").output == "/a/b"
    assert parse_hook_output_text("PostToolUse", "words").context == ""
    assert parse_hook_output_text("SessionStart", "{not json").context == "{not json"
    long = parse_hook_output_text("UserPromptSubmit", "x" * (MAX_TEXT_LENGTH + 1)).context
    assert long.endswith("characters in total]")
