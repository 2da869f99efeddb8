"""Every kind of hook and of answer in tables: what is read, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.core.extensions.hooks import (
    AGENT_HOOK_SECONDS,
    DEFAULT_HOOK_SECONDS,
    MAX_HOOK_SECONDS,
    NO_DECISION,
    PROGRAM_HOOK_SECONDS,
    PROMPT_HOOK_SECONDS,
    SESSION_END_HOOK_SECONDS,
    Hook,
    HookDecision,
    HookEvent,
    McpToolHookAction,
    ModelPromptHookAction,
    ShellCommandHookAction,
)
from shoal.wire.hook_codec import (
    HttpHookLimits,
    ParsedHooks,
    is_usable_hook,
    parse_hooks_from_code,
    parse_hooks_setting,
)
from shoal.wire.hook_output_codec import (
    HookContinueInBackgroundRequest,
    InvalidHookOutputError,
    check_hook_decision,
    fill_mcp_hook_input,
    format_hook_prompt,
    parse_async_hook_request,
    parse_hook_function_text,
    parse_hook_judgement,
    parse_hook_output_json,
    parse_hook_output_text,
)

COMMAND = {"type": "command", "command": "check"}
PROMPT = {"type": "prompt", "prompt": "Is it good?"}
AGENT = {"type": "agent", "prompt": "Look."}
HTTP = {"type": "http", "url": "https://example.org/x"}
MCP = {"type": "mcp_tool", "server": "s", "tool": "t"}


def parse_one(event: str, hook: Any, *, in_code: bool = False, **entry: Any) -> ParsedHooks:
    raw = {event: [{**entry, "hooks": [hook]}]}
    return parse_hooks_setting(raw, lambda _: "here", {"TOKEN": "t0"}, refuses_unknown_parts=in_code)


@pytest.mark.parametrize(
    ("event", "hook", "facts"),
    [
        ("Stop", COMMAND, {"seconds": PROGRAM_HOOK_SECONDS, "blocks_on_failure": False, "background": False}),
        ("PreToolUse", COMMAND, {"blocks_on_failure": False}),
        ("PreToolUse", {**COMMAND, "onFailure": "block"}, {"blocks_on_failure": True}),
        ("PreToolUse", {**PROMPT, "onFailure": "continue"}, {"blocks_on_failure": False}),
        ("PreToolUse", PROMPT, {"seconds": PROMPT_HOOK_SECONDS, "blocks_on_failure": True}),
        ("PreToolUse", AGENT, {"seconds": AGENT_HOOK_SECONDS, "blocks_on_failure": True}),
        ("PostToolUse", PROMPT, {"blocks_on_failure": False}),
        ("UserPromptSubmit", COMMAND, {"seconds": PROMPT_HOOK_SECONDS}),
        ("UserPromptSubmit", AGENT, {"seconds": AGENT_HOOK_SECONDS}),
        ("SessionEnd", COMMAND, {"seconds": SESSION_END_HOOK_SECONDS}),
        ("SessionEnd", {**COMMAND, "timeout": 7}, {"seconds": 7.0}),
        ("Stop", {**COMMAND, "timeout": MAX_HOOK_SECONDS}, {"seconds": MAX_HOOK_SECONDS}),
        ("Stop", {**COMMAND, "async": True}, {"background": True, "rewakes": False}),
        ("Stop", {**COMMAND, "asyncRewake": True}, {"background": True, "rewakes": True}),
        ("PreToolUse", {**PROMPT, "async": True}, {"background": False}),
        ("PreToolUse", {**COMMAND, "if": " Bash(rm:*) "}, {"condition": "Bash(rm:*)"}),
        ("PreToolUse", {"command": "x"}, {"action": ShellCommandHookAction(command="x")}),
        (
            "PreToolUse",
            {**COMMAND, "args": ["a", "b"], "shell": "bash"},
            {"action": ShellCommandHookAction(command="check", args=("a", "b"), shell="sh")},
        ),
        (
            "PreToolUse",
            PROMPT,
            {"action": ModelPromptHookAction(prompt="Is it good?", model="", can_read=False)},
        ),
        (
            "PreToolUse",
            {**AGENT, "model": "m", "continueOnBlock": True},
            {
                "action": ModelPromptHookAction(
                    prompt="Look.", model="m", continues_on_block=True, can_read=True
                )
            },
        ),
        ("PreToolUse", MCP, {"action": McpToolHookAction(server="s", tool="t", input={})}),
        (
            "PreToolUse",
            {**MCP, "input": {"a": 1}},
            {"action": McpToolHookAction(server="s", tool="t", input={"a": 1})},
        ),
    ],
)
def test_a_hook_is_read_with_all_its_facts(event: str, hook: Any, facts: dict[str, Any]) -> None:
    found = parse_one(event, hook)
    [read] = found.hooks
    assert is_usable_hook(read)
    assert {name: getattr(read, name) for name in facts} == facts
    assert (read.event, read.origin, found.problems) == (event, "here", ())


@pytest.mark.parametrize(
    ("hook", "key", "problem"),
    [
        ("text", "", "got 'text'"),
        (["list"], "", "got a list"),
        (None, "", "got nothing"),
        ({"type": 3}, ".type", "expected command, http, prompt, mcp_tool or agent, got 3"),
        ({"type": "x"}, ".type", "unknown hook type 'x'; use command, "),
        ({"type": "command"}, ".command", "expected a command, as a string"),
        ({"command": " "}, ".command", "expected a command, as a string"),
        ({"command": "a\0b"}, ".command", "a command cannot contain a NUL character"),
        ({**COMMAND, "args": "a"}, ".args", "expected a list of strings"),
        ({**COMMAND, "args": [1]}, ".args", "expected a list of strings"),
        ({**COMMAND, "args": ["\0"]}, ".args", "expected a list of strings"),
        ({**COMMAND, "shell": "fish"}, ".shell", "expected bash or powershell, got 'fish'"),
        ({**COMMAND, "shell": ["bash"]}, ".shell", "expected bash or powershell, got ['bash']"),
        ({**COMMAND, "if": 3}, ".if", "expected a permission rule such as Bash(git push:*)"),
        ({**COMMAND, "async": {}}, ".async", "expected true or false, got an object"),
        ({**COMMAND, "onFailure": "stop"}, ".onFailure", "expected continue or block, got 'stop'"),
        ({**PROMPT, "prompt": ""}, ".prompt", "expected a prompt for the model, as text"),
        ({**PROMPT, "prompt": 3}, ".prompt", "expected a prompt for the model, as text"),
        ({**PROMPT, "model": 3}, ".model", "expected the name of a model, as text"),
        ({**MCP, "input": "x"}, ".input", "expected an object"),
        ({**MCP, "server": None}, ".server", "expected the name of an MCP server, as text"),
        ({**MCP, "tool": ""}, ".tool", "expected the name of one of its tools, as text"),
        ({**HTTP, "url": "ftp://x"}, ".url", "expected a URL that starts with http:// or https://"),
        ({**HTTP, "url": "http://"}, ".url", "expected a URL that starts with http:// or https://"),
        ({**HTTP, "url": "http://[x"}, ".url", "expected a URL that starts with http:// or https://"),
        ({**HTTP, "headers": ["a"]}, ".headers", "expected an object with string values"),
        ({**HTTP, "headers": {"a": 1}}, ".headers", "expected an object with string values"),
        ({**HTTP, "allowedEnvVars": "A"}, ".allowedEnvVars", "expected a list of names"),
        ({**HTTP, "allowedEnvVars": [1]}, ".allowedEnvVars", "expected a list of names"),
    ],
)
def test_a_wrong_hook_blocks_what_it_guards_and_says_why(hook: Any, key: str, problem: str) -> None:
    found = parse_one("PreToolUse", hook, matcher="Bash")
    [text] = found.problems
    assert text.startswith(f"here: hooks.PreToolUse.0.hooks.0{key}: ")
    assert problem in text
    assert text.endswith("; PreToolUse is blocked for Bash until you correct or remove it.")
    [block] = found.hooks
    assert not is_usable_hook(block)
    assert (block.matcher, block.blocks_on_failure) == ("Bash", True)
    later = parse_one("PostToolUse", hook)
    assert later.hooks == ()
    assert problem in later.problems[0]
    assert parse_one("PreToolUse", hook, in_code=True).hooks == ()


@pytest.mark.parametrize(
    ("event", "hook", "entry", "key", "text"),
    [
        ("PreToolUse", {**COMMAND, "timeout": 0}, {}, ".timeout", "got 0; the default applies"),
        ("PreToolUse", {**COMMAND, "timeout": True}, {}, ".timeout", "got True; the default applies"),
        ("PreToolUse", {**COMMAND, "timeout": "9"}, {}, ".timeout", "got '9'; the default applies"),
        ("PreToolUse", {**COMMAND, "timeout": MAX_HOOK_SECONDS + 1}, {}, ".timeout", "the default applies"),
        ("PreToolUse", {**COMMAND, "colour": 1}, {}, ".colour", "unknown field; it is ignored"),
        ("PreToolUse", {**COMMAND, "prompt": "p"}, {}, ".prompt", "unknown field; it is ignored"),
    ],
)
def test_a_part_that_is_not_used_is_named_and_its_hook_runs(
    event: str, hook: Any, entry: dict[str, Any], key: str, text: str
) -> None:
    found = parse_one(event, hook, **entry)
    [unused] = found.unused
    assert unused.startswith(f"here: hooks.{event}.0.hooks.0{key}: ")
    assert unused.endswith(f"{text}.")
    [read] = found.hooks
    assert read.seconds == PROGRAM_HOOK_SECONDS
    assert found.problems == ()


def test_a_matcher_and_a_condition_need_an_event_that_has_them() -> None:
    found = parse_one("Stop", COMMAND, matcher="Bash")
    assert found.unused == (
        "here: hooks.Stop.0.matcher: Stop does not use a matcher; the hooks below always run.",
    )
    assert len(found.hooks) == 1
    for matcher in ("", "*", None):
        assert parse_one("Stop", COMMAND, matcher=matcher).unused == ()
    assert parse_one("PreToolUse", COMMAND, matcher="Bash").unused == ()
    conditional = parse_one("Stop", {**COMMAND, "if": "Bash"})
    assert conditional.hooks == ()
    assert conditional.unused == (
        "here: hooks.Stop.0.hooks.0.if: Stop has no tool call to compare, so this hook never runs.",
    )
    in_code = parse_one("Stop", COMMAND, in_code=True, matcher="Bash", extra=1)
    assert in_code.problems == (
        "here: hooks.Stop.0.extra: unknown field; use matcher and hooks.",
        "here: hooks.Stop.0.matcher: Stop does not use a matcher; the hooks below always run.",
    )
    assert parse_one("Stop", COMMAND, extra=1).problems == ()


@pytest.mark.parametrize(
    ("entries", "matcher", "problem"),
    [
        ("text", "", "PreToolUse: expected a list, got 'text'"),
        ({}, "", "PreToolUse: expected a list, got an object"),
        (["text"], "", "PreToolUse.0: expected an object such as"),
        ([{"matcher": 3, "hooks": []}], "", "PreToolUse.0.matcher: expected a string, got 3"),
        ([{"matcher": "(", "hooks": []}], "", "PreToolUse.0.matcher: '(' is neither a name nor a"),
        ([{"matcher": "Bash"}], "Bash", "PreToolUse.0.hooks: expected a list of hooks, got nothing"),
        (
            [{"matcher": "Bash", "hooks": "x"}],
            "Bash",
            "PreToolUse.0.hooks: expected a list of hooks, got 'x'",
        ),
        ([{"matcher": "(", "hooks": 3}], "", "PreToolUse.0.matcher: "),
    ],
)
def test_wrong_entries_block_as_much_as_they_may_guard(entries: Any, matcher: str, problem: str) -> None:
    found = parse_hooks_setting({"PreToolUse": entries}, lambda _: "here")
    [block] = found.hooks
    assert (block.matcher, is_usable_hook(block)) == (matcher, False)
    assert problem in found.problems[0]
    scope = f" for {matcher}" if matcher else ""
    assert f"; PreToolUse is blocked{scope} until you correct" in found.problems[0]


def test_unknown_events_are_reported_if_they_are_misspelled() -> None:
    found = parse_hooks_setting({"PreTolUse": [], "Brandnew": []}, lambda _: "here")
    assert found.problems == ("here: hooks.PreTolUse: unknown event; did you mean PreToolUse?",)
    assert found.unused == ("here: hooks.Brandnew: unknown event.",)
    strict = parse_hooks_setting({"Brandnew": []}, lambda _: "here", refuses_unknown_parts=True)
    assert strict.problems == ("here: hooks.Brandnew: unknown event.",)


@pytest.mark.parametrize(
    ("event", "hook", "warning"),
    [
        ("SessionEnd", {**COMMAND, "async": True}, "async: the session waits for it anyway"),
        ("PreToolUse", {**COMMAND, "async": True}, "async: it cannot decide anything"),
        ("PreToolUse", {**COMMAND, "asyncRewake": True}, "asyncRewake: it cannot decide anything"),
        (
            "Notification",
            {**COMMAND, "async": True, "onFailure": "block"},
            'so its "onFailure" has no effect',
        ),
        ("Notification", {**COMMAND, "async": True}, ""),
        ("PreToolUse", COMMAND, ""),
    ],
)
def test_a_background_hook_that_cannot_do_its_work_is_warned_about(
    event: str, hook: Any, warning: str
) -> None:
    warnings = parse_one(event, hook).warnings
    assert len(warnings) == bool(warning)
    assert all(warning in each for each in warnings)


@pytest.mark.parametrize(
    ("urls", "variables", "permitted", "header"),
    [
        ((), (), True, "Bearer t0 "),
        ((("https://example.org/*",),), (), True, "Bearer t0 "),
        ((("https://example.org/*",), ("https://other/*",)), (), False, ""),
        ((("https://example.org",),), (), False, ""),
        ((("https://exampleXorg/*",),), (), False, ""),
        ((), (("TOKEN",),), True, "Bearer t0 "),
        ((), (("OTHER",),), True, "Bearer  "),
        ((), (("TOKEN",), ("OTHER",)), True, "Bearer  "),
    ],
)
def test_limits_of_http_hooks_hold_all_at_once(
    urls: Any, variables: Any, permitted: bool, header: str
) -> None:
    hook = {**HTTP, "headers": {"A": "Bearer ${TOKEN} $HOME"}, "allowedEnvVars": ["TOKEN", "MISSING"]}
    found = parse_hooks_setting(
        {"Stop": [{"hooks": [hook]}]},
        lambda _: "here",
        {"TOKEN": "t0", "HOME": "/h"},
        http_limits=HttpHookLimits(url_lists=urls, variable_lists=variables),
    )
    usable = [each for each in found.hooks if is_usable_hook(each)]
    assert [each.action.headers for each in usable] == ([{"A": header}] if permitted else [])  # type: ignore[union-attr]


def run_nothing(_: dict[str, Any]) -> None:
    return None


@pytest.mark.parametrize(
    ("event", "entry", "problem"),
    [
        (
            "Stop",
            Hook(event="PreToolUse", matcher="", action=ShellCommandHookAction(command="x"), origin="o"),
            "this Hook is for PreToolUse",
        ),
        ("Stop", 3, "expected a function, or (matcher, function), got 3"),
        ("Stop", (3, run_nothing), "expected a function, or (matcher, function), got (3"),
        ("PreToolUse", ("(", run_nothing), "the matcher '(' is not a valid regular expression"),
        ("PreToolUse", ("a", run_nothing, 1), "expected a function"),
        ("Stop", ("Bash", run_nothing), "Stop does not use a matcher; pass the function alone"),
    ],
)
def test_wrong_hooks_in_code_are_problems(event: str, entry: Any, problem: str) -> None:
    found = parse_hooks_from_code({event: [entry]}, "code")
    assert found.hooks == ()
    assert len(found.problems) == 1
    assert problem in found.problems[0]


@pytest.mark.parametrize(
    ("event", "entry", "matcher", "blocks"),
    [
        ("Stop", run_nothing, "", False),
        ("SubagentStop", run_nothing, "", False),
        ("PreToolUse", run_nothing, "", True),
        ("PreToolUse", ("Bash", run_nothing), "Bash", True),
        ("Stop", ("*", run_nothing), "*", False),
    ],
)
def test_functions_block_if_they_fail_unless_an_agent_stops(
    event: str, entry: Any, matcher: str, blocks: bool
) -> None:
    [hook] = parse_hooks_from_code({event: [entry]}, "code").hooks
    assert (hook.event, hook.matcher, hook.blocks_on_failure) == (event, matcher, blocks)
    assert (hook.seconds, hook.origin) == (DEFAULT_HOOK_SECONDS, "code")
    same = Hook(event="Stop", matcher="", action=hook.action, origin="o")
    assert parse_hooks_from_code({"Stop": [same]}, "code").hooks == (same,)


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ('{"async": true}', None),
        ('{"async": true, "asyncTimeout": 1500}', 1.5),
        ('{"async": true, "asyncTimeout": 1}', 0.001),
        ('{"async": true, "asyncTimeout": 0}', None),
        ('{"async": true, "asyncTimeout": -5}', None),
        ('{"async": true, "asyncTimeout": true}', None),
        ('{"async": true, "asyncTimeout": "9"}', None),
        ('{"async": true, "asyncTimeout": 1e12}', MAX_HOOK_SECONDS),
    ],
)
def test_a_request_to_continue_has_a_limit(line: str, seconds: float | None) -> None:
    assert parse_async_hook_request(line) == HookContinueInBackgroundRequest(seconds=seconds)


@pytest.mark.parametrize(
    "line",
    [
        '{"async": false}',
        '{"async": 1}',
        '["async"]',
        '"async"',
        '{"async": tr',
        "{}",
        " " * 4090 + '{"async": true}',
    ],
)
def test_other_lines_do_not_request_to_continue(line: str) -> None:
    assert parse_async_hook_request(line) is None


@pytest.mark.parametrize(
    ("event", "text", "decision"),
    [
        ("Stop", " plain ", HookDecision(output="plain")),
        ("SessionStart", " plain ", HookDecision(context="plain", output="plain")),
        ("UserPromptSubmit", "{broken", HookDecision(context="{broken", output="{broken")),
        ("WorktreeCreate", "{broken", HookDecision(output="{broken")),
        ("PreToolUse", "", HookDecision()),
        ("PreToolUse", ' {"decision": "block"} ', HookDecision(blocked="it gave no reason")),
        ("SessionStart", '{"decision": "block", "reason": "r"}', HookDecision(blocked="r")),
    ],
)
def test_text_of_a_hook_is_context_an_object_or_nothing(
    event: HookEvent, text: str, decision: HookDecision
) -> None:
    assert parse_hook_output_text(event, text) == decision


@pytest.mark.parametrize(("event", "text"), [("PreToolUse", "{broken"), ("Stop", "{broken")])
def test_broken_objects_are_refused(event: HookEvent, text: str) -> None:
    with pytest.raises(InvalidHookOutputError, match="looks like JSON but is not valid"):
        parse_hook_output_text(event, text)


def test_the_text_of_a_function_must_have_an_effect() -> None:
    for event in ("UserPromptSubmit", "SessionStart", "Setup"):
        assert parse_hook_function_text(event, "{context").context == "{context"
    assert parse_hook_function_text("WorktreeCreate", "/w").output == "/w"
    assert parse_hook_function_text("Stop", "  ") == HookDecision()
    for text in ("words", "{words"):
        with pytest.raises(InvalidHookOutputError, match="which has no effect for Stop; return None"):
            parse_hook_function_text("Stop", text)
    with pytest.raises(InvalidHookOutputError, match="unknown key 'x'"):
        parse_hook_function_text("SessionStart", '{"x": 1}')


@pytest.mark.parametrize(
    ("event", "raw", "facts"),
    [
        ("PreToolUse", {"decision": "approve", "reason": "r"}, {"decision": "allow", "decision_reason": "r"}),
        ("PermissionRequest", {"decision": "approve"}, {"decision": "allow", "decision_reason": ""}),
        ("PostToolUse", {"decision": "approve"}, {"decision": None}),
        ("PreToolUse", {"decision": None}, {"blocked": None, "decision": None}),
        ("Stop", {"continue": False}, {"stop": "it gave no reason"}),
        ("Stop", {"continue": False, "stopReason": "r"}, {"stop": "r"}),
        ("Stop", {"continue": True, "stopReason": "r"}, {"stop": None}),
        ("Stop", {"systemMessage": "m", "suppressOutput": True}, {"message": "m", "suppressed": True}),
        (
            "PreToolUse",
            {"hookSpecificOutput": {"permissionDecision": "ask", "updatedInput": {"a": 1}}},
            {"decision": "ask", "updated_input": {"a": 1}},
        ),
        (
            "PreToolUse",
            {"hookSpecificOutput": {"permissionDecision": "defer"}},
            {
                "decision": "deny",
                "decision_reason": "a hook deferred the decision, which Shoal does not support",
            },
        ),
        (
            "PermissionRequest",
            {"hookSpecificOutput": {"decision": {"behavior": "deny", "message": "m", "interrupt": True}}},
            {"decision": "deny", "decision_reason": "m", "stop": "m"},
        ),
        (
            "PermissionRequest",
            {"hookSpecificOutput": {"decision": {"behavior": "deny", "interrupt": True}}},
            {"decision": "deny", "decision_reason": "", "stop": "it gave no reason"},
        ),
        (
            "PermissionRequest",
            {
                "hookSpecificOutput": {
                    "decision": {"behavior": "allow", "interrupt": True, "updatedInput": {"a": 1}}
                }
            },
            {"decision": "allow", "stop": None, "updated_input": {"a": 1}, "permission_updates": ()},
        ),
        (
            "PermissionRequest",
            {
                "hookSpecificOutput": {
                    "updatedInput": {"b": 2},
                    "decision": {"behavior": "allow", "updatedInput": {}},
                }
            },
            {"updated_input": {"b": 2}},
        ),
        ("PostToolUse", {"hookSpecificOutput": {"updatedToolOutput": "t"}}, {"updated_output": "t"}),
        (
            "PostToolUse",
            {"hookSpecificOutput": {"updatedToolOutput": {"a": 1}}},
            {"updated_output": '{"a":1}'},
        ),
        ("Stop", {"hookSpecificOutput": {"updatedToolOutput": "t"}}, {"updated_output": None}),
        ("PermissionDenied", {"hookSpecificOutput": {"retry": True}}, {"retry": True}),
        ("WorktreeCreate", {"hookSpecificOutput": {"worktreePath": "/w"}}, {"output": "/w"}),
        (
            "SessionStart",
            {"hookSpecificOutput": {"sessionTitle": " t ", "initialUserMessage": " m "}},
            {"session_title": "t", "initial_message": "m"},
        ),
        (
            "Stop",
            {"hookSpecificOutput": {"hookEventName": "Stop", "additionalContext": "c"}},
            {"context": "c"},
        ),
    ],
)
def test_an_answer_becomes_a_decision(event: HookEvent, raw: Any, facts: dict[str, Any]) -> None:
    decision = parse_hook_output_json(event, raw)
    assert {name: getattr(decision, name) for name in facts} == facts


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ([], "it returned list instead of an object"),
        ({"continue": "no"}, "its answer has an unknown format"),
        (
            {"hookSpecificOutput": {"hookEventName": "Stop"}},
            "it answered for Stop, but the event was PermissionReq",
        ),
        (
            {
                "hookSpecificOutput": {
                    "decision": {"behavior": "allow", "updatedPermissions": [{"type": "x"}]}
                }
            },
            "a permission change in an unknown format",
        ),
    ],
)
def test_an_answer_of_another_form_is_refused(raw: Any, problem: str) -> None:
    with pytest.raises(InvalidHookOutputError, match=problem):
        parse_hook_output_json("PermissionRequest", raw)


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        ({"reason": "r"}, "reason"),
        ({"stopReason": "r"}, "stopReason"),
        ({"stopReason": "r", "continue": True}, "stopReason"),
        ({"hookSpecificOutput": {"permissionDecisionReason": "r"}}, "permissionDecisionReason"),
        ({"hookSpecificOutput": {"permissionDecisionReason": "r"}, "hookSpecificOutputs": 1}, None),
        ({"reason": "r", "decision": "block"}, ""),
        ({"reason": "", "systemMessage": "m"}, ""),
        ({"stopReason": "r", "continue": False}, ""),
        ({"reason": "r", "hookSpecificOutput": {"permissionDecision": "deny"}}, ""),
        ({"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "r"}}, ""),
        ({"async": True, "asyncTimeout": 5}, ""),
    ],
)
def test_a_reason_of_a_function_needs_its_decision(raw: dict[str, Any], key: str | None) -> None:
    if key == "":
        parse_hook_output_json("PreToolUse", raw, strict=True)
        return
    expected = f"its answer has '{key}', but no decision" if key else "unknown key 'hookSpecificOutputs'; did"
    with pytest.raises(InvalidHookOutputError, match=expected):
        parse_hook_output_json("PreToolUse", raw, strict=True)
    parse_hook_output_json("PreToolUse", raw)


@pytest.mark.parametrize(
    ("event", "decision", "is_effective"),
    [
        ("PreToolUse", HookDecision(decision="deny"), True),
        ("PermissionRequest", HookDecision(updated_input={}), True),
        ("Stop", HookDecision(decision="deny"), False),
        ("Stop", HookDecision(updated_input={}), False),
        ("PostToolUse", HookDecision(updated_output="t"), True),
        ("PreToolUse", HookDecision(updated_output="t"), False),
        ("Stop", HookDecision(stop="r"), True),
        ("SessionEnd", HookDecision(stop="r"), False),
        ("SessionEnd", HookDecision(blocked="r"), True),
    ],
)
def test_a_decision_without_effect_is_refused_if_asked(
    event: HookEvent, decision: HookDecision, is_effective: bool
) -> None:
    assert check_hook_decision(event, decision) == decision
    if is_effective:
        assert check_hook_decision(event, decision, strict=True) == decision
    else:
        with pytest.raises(InvalidHookOutputError, match=f"which has no effect for {event}"):
            check_hook_decision(event, decision, strict=True)
    with pytest.raises(InvalidHookOutputError, match="a HookDecision with a wrong field"):
        check_hook_decision(event, HookDecision(blocked=3))  # type: ignore[arg-type]


ASKED = ModelPromptHookAction(prompt="p")
GOES_ON = ModelPromptHookAction(prompt="p", continues_on_block=True)


@pytest.mark.parametrize(
    ("event", "action", "answer", "decision"),
    [
        ("PreToolUse", ASKED, 'Well: {"ok": true} done', NO_DECISION),
        ("PreToolUse", ASKED, '{"ok": false, "reason": "r"}', HookDecision(blocked="r", stop="r")),
        ("PreToolUse", GOES_ON, '{"ok": false, "reason": "r"}', HookDecision(blocked="r")),
        ("Stop", ASKED, '{"ok": false}', HookDecision(blocked="the model gave no reason")),
        ("Stop", ASKED, '{"ok": false, "impossible": true}', NO_DECISION),
        (
            "PreToolUse",
            ASKED,
            '{"ok": false, "impossible": true, "reason": "r"}',
            HookDecision(blocked="r", stop="r"),
        ),
    ],
)
def test_a_judgment_of_a_model_becomes_a_decision(
    event: HookEvent, action: ModelPromptHookAction, answer: str, decision: HookDecision
) -> None:
    assert parse_hook_judgement(event, action, answer) == decision


@pytest.mark.parametrize("answer", ["", "yes", "{", "{}", '{"ok": 3}', '["ok"]'])
def test_an_answer_without_a_judgment_is_refused(answer: str) -> None:
    with pytest.raises(InvalidHookOutputError, match="without a judgment"):
        parse_hook_judgement("Stop", ASKED, answer)


def test_fields_of_the_event_are_filled_in() -> None:
    assert format_hook_prompt("See $ARGUMENTS.", b"{}") == "See {}."
    assert format_hook_prompt("See.", b"\xff") == "See.\n\n\ufffd"
    event = {"tool": "Bash", "input": {"n": 3, "list": [1]}, "none": None}
    values = {
        "a": "${tool}-${input.n}-${input.list}-${none}-${missing}-${tool.x}-$tool",
        "b": [{"c": "${tool}"}, ("${input}",), 5],
    }
    filled = fill_mcp_hook_input(McpToolHookAction(server="s", tool="t", input=values), event)
    assert filled.input == {
        "a": "Bash-3-[1]----$tool",
        "b": [{"c": "Bash"}, ['{"n":3,"list":[1]}'], 5],
    }
