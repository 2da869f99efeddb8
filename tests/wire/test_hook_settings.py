"""Hooks as settings write them: what is read, and what is wrong where."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from json_values import few, values

from shoal.core.hooks import LONGEST_SECONDS, PARTING_SECONDS, USUAL_SECONDS, Called, Command, Post, Verdict
from shoal.wire.hook_output import LIMIT, BadAnswer, LetGo, let_go, verdict_of, verdict_of_text
from shoal.wire.hooks import ReadHooks, read_given, read_hooks
from shoal.wire.json_lines import line_of


def read(raw: Any, **environ: str) -> ReadHooks:
    text = json.dumps({"hooks": raw}, indent=1)
    return read_hooks(raw, lambda keys: f"s.json:{line_of(text, keys)}", environ)


def test_the_documented_form_is_read_with_the_place_of_each() -> None:
    found = read(
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
    assert (first.event, first.matcher, first.does, first.seconds) == (
        "PreToolUse",
        "Bash|Edit",
        Command(command="./check.sh"),
        5.0,
    )
    assert second.does == Post(url="https://example.org/x", headers={"A": "b"})
    assert (second.seconds, third.seconds) == (USUAL_SECONDS, PARTING_SECONDS)
    assert (first.origin, second.origin, third.origin) == ("s.json:7", "s.json:12", "s.json:25")


COMMAND = {"type": "command", "command": "x"}


@pytest.mark.parametrize(
    ("raw", "line", "why"),
    [
        ([], 2, "an object of events is expected"),
        ({"PreTolUse": []}, 3, "is PreToolUse meant?"),
        ({"Stop": {}}, 3, "a list is expected"),
        ({"Stop": [1]}, 4, "an object is expected"),
        ({"Stop": [{"hooks": "x"}]}, 5, "a list of hooks is expected"),
        ({"Stop": [{}]}, 4, "a list of hooks is expected"),
        ({"PreToolUse": [{"matcher": 1, "hooks": []}]}, 5, "a text is expected"),
        ({"PreToolUse": [{"matcher": "(", "hooks": []}]}, 5, "neither a name nor a regular expression"),
        ({"Stop": [{"matcher": "x", "hooks": [COMMAND]}]}, 5, "has nothing to match"),
        ({"Stop": [{"hooks": [7]}]}, 6, "an object is expected"),
        ({"Stop": [{"hooks": [{"type": "prompt"}]}]}, 7, "is no type of hook"),
        ({"Stop": [{"hooks": [{"type": "command"}]}]}, 6, "a command is expected"),
        ({"Stop": [{"hooks": [{"command": " "}]}]}, 7, "a command is expected"),
        ({"Stop": [{"hooks": [{"command": "a\0b"}]}]}, 7, "cannot hold a NUL"),
        ({"Stop": [{"hooks": [COMMAND | {"timeout": 0}]}]}, 9, "seconds are expected"),
        ({"Stop": [{"hooks": [COMMAND | {"timeout": "9"}]}]}, 9, "seconds are expected"),
        ({"Stop": [{"hooks": [COMMAND | {"asink": True}]}]}, 9, "is not known and is ignored"),
        ({"Stop": [{"hooks": [COMMAND | {"async": "yes"}]}]}, 9, "true or false is expected"),
        ({"Stop": [{"hooks": [COMMAND | {"asyncRewake": 1}]}]}, 9, "true or false is expected"),
        ({"Stop": [{"hooks": [COMMAND | {"onFailure": "x"}]}]}, 9, "continue or block"),
        ({"Stop": [{"hooks": [{"type": "http", "url": "ftp://x"}]}]}, 8, "an address is expected"),
        ({"Stop": [{"hooks": [{"type": "http", "url": "http://["}]}]}, 8, "an address is expected"),
        ({"Stop": [{"hooks": [{"type": "http", "url": "http://x", "headers": 1}]}]}, 9, "an object of texts"),
    ],
)
def test_a_mistake_is_named_with_its_line(raw: Any, line: int, why: str) -> None:
    (problem,) = read(raw).problems
    assert problem.startswith(f"s.json:{line}: hooks")
    assert why in problem


def test_what_is_good_beside_a_mistake_is_used() -> None:
    found = read({"Stop": [{"hooks": [{"type": "odd"}, COMMAND]}, 5], "Nonsense": 1})
    assert [hook.does for hook in found.hooks] == [Command(command="x")]
    assert len(found.problems) == 3


def test_hooks_that_nobody_waits_for_are_read_and_what_they_cannot_do_is_told() -> None:
    def one(event: str, **more: Any) -> ReadHooks:
        return read({event: [{"hooks": [COMMAND | more]}]})

    found = one("PostToolUse", **{"async": True})
    assert [(hook.background, hook.rewakes) for hook in found.hooks] == [(True, False)]
    found = one("PostToolUse", asyncRewake=True)
    assert [(hook.background, hook.rewakes) for hook in found.hooks] == [(True, True)]
    assert found.problems == found.warnings == ()
    found = one("PostToolUse", **{"async": False, "asyncRewake": False})
    assert [(hook.background, hook.rewakes) for hook in found.hooks] == [(False, False)]
    for event, why in (
        ("PreToolUse", "it cannot decide anything"),
        ("SessionEnd", "waits for it all the same"),
    ):
        found = one(event, **{"async": True})
        (warning,) = found.warnings
        assert warning.startswith(f"s.json:9: hooks.{event}.0.hooks.0.async: ")
        assert why in warning
        assert (len(found.hooks), found.problems) == (1, ())
    (warning,) = one("Stop", asyncRewake=True, onFailure="block").warnings
    assert "it cannot block" in warning
    (problem,) = read({"Stop": [{"hooks": [{"type": "http", "url": "http://x", "async": True}]}]}).problems
    assert "is not known and is ignored" in problem


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"async": true}', LetGo()),
        (' {"async":true,"asyncTimeout":15000} ', LetGo(seconds=15.0)),
        ('{"async": true, "asyncTimeout": 1e300}', LetGo(seconds=LONGEST_SECONDS)),
        (f'{{"async": true, "asyncTimeout": {10**400}}}', LetGo(seconds=LONGEST_SECONDS)),
        ('{"async": true, "asyncTimeout": -1}', LetGo()),
        ('{"async": true, "asyncTimeout": "9"}', LetGo()),
        ('{"async": false}', None),
        ('{"async": 1}', None),
        ('["async"]', None),
        ('{"async": tr', None),
        ("", None),
    ],
)
def test_a_first_line_may_say_that_nobody_is_to_wait(line: str, expected: LetGo | None) -> None:
    assert let_go(line) == expected


def test_headers_take_only_the_variables_that_are_named() -> None:
    headers = {"A": "Bearer $KEY", "B": "${KEY}/$OTHER"}
    hook = {"type": "http", "url": "http://x", "headers": headers, "allowedEnvVars": ["KEY"]}
    (found,) = read({"Stop": [{"hooks": [hook]}]}, KEY="k", OTHER="o").hooks
    assert found.does == Post(url="http://x", headers={"A": "Bearer k", "B": "k/"})


def test_a_program_gives_functions_pairs_and_entries() -> None:
    found = read_given({"PreToolUse": [print, ("Bash", len), {"hooks": [COMMAND]}, 7, ("(", len)]}, "here")
    assert [(hook.matcher, hook.does) for hook in found.hooks] == [
        ("", Called(function=print)),
        ("Bash", Called(function=len)),
        ("", Command(command="x")),
    ]
    assert len(found.problems) == 2


@few
@given(values)
def test_whatever_stands_there_is_read_or_named(raw: Any) -> None:
    for each in (
        raw,
        {"Stop": raw},
        {"Stop": [raw]},
        {"Stop": [{"hooks": raw}]},
        {"Stop": [{"hooks": [raw]}]},
    ):
        read_hooks(each, lambda _: "there")


@few
@given(values)
def test_whatever_a_hook_answers_is_read_or_refused(raw: Any) -> None:
    for answer in (raw, {"hookSpecificOutput": raw}, {"hookSpecificOutput": {"decision": raw}}):
        with suppress(BadAnswer):
            assert isinstance(verdict_of("PermissionRequest", answer), Verdict)


def test_answers_come_down_to_verdicts() -> None:
    assert verdict_of("PreToolUse", {"decision": "approve", "reason": "r"}).decision == "allow"
    assert verdict_of("Stop", {"decision": "approve"}).decision is None
    assert verdict_of("Stop", {"decision": "block"}).blocked == "it gave no reason"
    stopped = verdict_of("Stop", {"continue": False, "stopReason": "late", "systemMessage": "m"})
    assert (stopped.stop, stopped.message) == ("late", "m")
    assert verdict_of_text("WorktreeCreate", " /a/b\n").output == "/a/b"
    assert verdict_of_text("PostToolUse", "words").context == ""
    assert verdict_of_text("SessionStart", "{not json").context == "{not json"
    long = verdict_of_text("UserPromptSubmit", "x" * (LIMIT + 1)).context
    assert long.endswith("characters in all]")
