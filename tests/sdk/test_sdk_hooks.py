"""Hook callbacks of a program that uses the public SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sdk_helpers import TIMEOUT, SdkHarness, dump_request, receive_answer
from shoal.testing import messages_server
from shoal.testing.mock_replies import make_tool_call

TOUCH = [make_tool_call("Bash", call_id="c1", command="touch a"), "done"]


async def test_a_callback_runs_before_and_after_a_call(harness: SdkHarness) -> None:
    calls: list[tuple[str, str | None, dict[str, Any]]] = []

    async def note(hook_input: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        calls.append((hook_input["hook_event_name"], call_id, hook_input))
        return {}

    hooks = {
        "PreToolUse": [harness.sdk.HookMatcher(matcher="Bash", hooks=[note])],
        "PostToolUse": [harness.sdk.HookMatcher(hooks=[note])],
        "UserPromptSubmit": [harness.sdk.HookMatcher(hooks=[note])],
        "Stop": [harness.sdk.HookMatcher(hooks=[note])],
    }
    async with messages_server(TOUCH) as server:
        messages = await harness.run_query(server, "make it", hooks=hooks, allowed_tools=["Bash"])
    assert [event for event, _, _ in calls] == ["UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"]
    before = calls[1][2]
    assert (before["tool_name"], before["tool_input"], calls[1][1]) == ("Bash", {"command": "touch a"}, "c1")
    assert before["session_id"] == messages.result.session_id
    assert (harness.project / "a").exists()


async def test_a_callback_denies_a_call_changes_its_input_and_adds_context(harness: SdkHarness) -> None:
    async def judge(hook_input: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        command = hook_input["tool_input"]["command"]
        if command == "touch no":
            return {
                "hookSpecificOutput": {
                    "hookEventName": "PreToolUse",
                    "permissionDecision": "deny",
                    "permissionDecisionReason": "not this file",
                }
            }
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "allow",
                "updatedInput": {"command": "touch changed"},
            }
        }

    async def remind(hook_input: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        output = {"hookEventName": "UserPromptSubmit", "additionalContext": "the tide is high"}
        return {"hookSpecificOutput": output}

    hooks = {
        "PreToolUse": [harness.sdk.HookMatcher(matcher="Bash", hooks=[judge])],
        "UserPromptSubmit": [harness.sdk.HookMatcher(hooks=[remind])],
    }
    replies = [
        make_tool_call("Bash", command="touch no"),
        make_tool_call("Bash", command="touch yes"),
        "done",
    ]
    async with messages_server(replies) as server:
        await harness.run_query(server, "make them", hooks=hooks)
    assert "the tide is high" in dump_request(server, 0)
    assert "not this file" in dump_request(server, 1)
    assert [path.name for path in harness.project.iterdir()] == ["changed"]


@pytest.mark.slow
async def test_a_callback_that_times_out_blocks_the_call_and_one_that_raises_does_not(
    harness: SdkHarness,
) -> None:
    given_up = asyncio.Event()

    async def wait(hook_input: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        raise AssertionError("unreachable")

    async def fail(hook_input: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        raise ValueError("the hook broke")

    late = {"PreToolUse": [harness.sdk.HookMatcher(matcher="Bash", hooks=[wait], timeout=1)]}
    broken = {"PreToolUse": [harness.sdk.HookMatcher(matcher="Bash", hooks=[fail])]}
    strict = {"PreToolUse": [harness.sdk.HookMatcher(matcher="Bash", hooks=[fail], on_failure="block")]}
    async with messages_server(TOUCH * 3) as server:
        await harness.run_query(server, "one", hooks=late, allowed_tools=["Bash"])
        assert given_up.is_set()
        assert not (harness.project / "a").exists()
        await harness.run_query(server, "two", hooks=strict, allowed_tools=["Bash"])
        assert not (harness.project / "a").exists()
        await harness.run_query(server, "three", hooks=broken, allowed_tools=["Bash"])
    assert (harness.project / "a").exists()
    assert "did not answer within 1 s" in dump_request(server, 1)
    assert "the hook broke" in dump_request(server, 3)


async def test_a_callback_that_blocks_the_stop_sends_the_agent_back_to_work(harness: SdkHarness) -> None:
    objections = ["the deck is dirty"]

    async def judge(hook_input: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        return {"decision": "block", "reason": objections.pop()} if objections else {}

    hooks = {"Stop": [harness.sdk.HookMatcher(hooks=[judge])]}
    replies = ["done", "now it is clean"]
    async with messages_server(replies) as server, harness.create_client(server, hooks=hooks) as client:
        await client.query("clean the deck")
        messages = await receive_answer(client)
    assert messages.result.result == "now it is clean"
    assert "the deck is dirty" in dump_request(server, 1)


async def test_hook_events_are_sent_to_a_program_that_requests_them(harness: SdkHarness) -> None:
    async def note(hook_input: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        return {}

    hooks = {"PreToolUse": [harness.sdk.HookMatcher(matcher="Bash", hooks=[note])]}
    async with messages_server(TOUCH) as server:
        messages = await harness.run_query(
            server, "go", hooks=hooks, allowed_tools=["Bash"], include_hook_events=True
        )
    (ran,) = messages.filter_by_type(harness.sdk.HookEventMessage)
    assert (ran.subtype, ran.hook_event_name) == ("hook_response", "PreToolUse")


async def test_an_unknown_hook_event_fails_the_connection(harness: SdkHarness) -> None:
    async def note(hook_input: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        return {}

    hooks = {"Sunrise": [harness.sdk.HookMatcher(hooks=[note])]}
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(Exception, match="Sunrise"):
            await harness.create_client(None, hooks=hooks).connect()
