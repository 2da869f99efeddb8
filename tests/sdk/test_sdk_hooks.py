"""Hooks that are functions of the program, called through the public SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sdk_helpers import TIMEOUT, SdkHarness, dump_request, receive_answer
from shoal.testing import messages_server
from shoal.testing.mock_replies import make_tool_call

TOUCH = [make_tool_call("Bash", call_id="c1", command="touch a"), "done"]


async def test_a_callback_runs_before_and_after_a_call(rig: SdkHarness) -> None:
    heard: list[tuple[str, str | None, dict[str, Any]]] = []

    async def note(given: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        heard.append((given["hook_event_name"], call_id, given))
        return {}

    hooks = {
        "PreToolUse": [rig.sdk.HookMatcher(matcher="Bash", hooks=[note])],
        "PostToolUse": [rig.sdk.HookMatcher(hooks=[note])],
        "UserPromptSubmit": [rig.sdk.HookMatcher(hooks=[note])],
        "Stop": [rig.sdk.HookMatcher(hooks=[note])],
    }
    async with messages_server(TOUCH) as server:
        told = await rig.run_query(server, "make it", hooks=hooks, allowed_tools=["Bash"])
    assert [event for event, _, _ in heard] == ["UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"]
    before = heard[1][2]
    assert (before["tool_name"], before["tool_input"], heard[1][1]) == ("Bash", {"command": "touch a"}, "c1")
    assert before["session_id"] == told.result.session_id
    assert (rig.project / "a").exists()


async def test_a_function_denies_changes_and_adds(rig: SdkHarness) -> None:
    async def judge(given: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        command = given["tool_input"]["command"]
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

    async def remind(given: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        told = {"hookEventName": "UserPromptSubmit", "additionalContext": "the tide is high"}
        return {"hookSpecificOutput": told}

    hooks = {
        "PreToolUse": [rig.sdk.HookMatcher(matcher="Bash", hooks=[judge])],
        "UserPromptSubmit": [rig.sdk.HookMatcher(hooks=[remind])],
    }
    mind = [make_tool_call("Bash", command="touch no"), make_tool_call("Bash", command="touch yes"), "done"]
    async with messages_server(mind) as server:
        await rig.run_query(server, "make them", hooks=hooks)
    assert "the tide is high" in dump_request(server, 0)
    assert "not this file" in dump_request(server, 1)
    assert [path.name for path in rig.project.iterdir()] == ["changed"]


async def test_a_function_that_takes_too_long_blocks_and_one_that_raises_does_not(rig: SdkHarness) -> None:
    given_up = asyncio.Event()

    async def wait(given: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        raise AssertionError("unreachable")

    async def fail(given: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        raise ValueError("the hook broke")

    late = {"PreToolUse": [rig.sdk.HookMatcher(matcher="Bash", hooks=[wait], timeout=1)]}
    broken = {"PreToolUse": [rig.sdk.HookMatcher(matcher="Bash", hooks=[fail])]}
    strict = {"PreToolUse": [rig.sdk.HookMatcher(matcher="Bash", hooks=[fail], on_failure="block")]}
    async with messages_server(TOUCH * 3) as server:
        await rig.run_query(server, "one", hooks=late, allowed_tools=["Bash"])
        assert given_up.is_set()
        assert not (rig.project / "a").exists()
        await rig.run_query(server, "two", hooks=strict, allowed_tools=["Bash"])
        assert not (rig.project / "a").exists()
        await rig.run_query(server, "three", hooks=broken, allowed_tools=["Bash"])
    assert (rig.project / "a").exists()
    assert "did not answer within 1 s" in dump_request(server, 1)
    assert "the hook broke" in dump_request(server, 3)


async def test_a_function_that_objects_to_the_end_sends_the_agent_back(rig: SdkHarness) -> None:
    objections = ["the deck is dirty"]

    async def judge(given: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        return {"decision": "block", "reason": objections.pop()} if objections else {}

    hooks = {"Stop": [rig.sdk.HookMatcher(hooks=[judge])]}
    mind = ["done", "now it is clean"]
    async with messages_server(mind) as server, rig.create_client(server, hooks=hooks) as client:
        await client.query("clean the deck")
        told = await receive_answer(client)
    assert told.result.result == "now it is clean"
    assert "the deck is dirty" in dump_request(server, 1)


async def test_hook_events_are_sent_to_a_program_that_requests_them(rig: SdkHarness) -> None:
    async def note(given: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        return {}

    hooks = {"PreToolUse": [rig.sdk.HookMatcher(matcher="Bash", hooks=[note])]}
    async with messages_server(TOUCH) as server:
        told = await rig.run_query(
            server, "go", hooks=hooks, allowed_tools=["Bash"], include_hook_events=True
        )
    (ran,) = told.filter_by_type(rig.sdk.HookEventMessage)
    assert (ran.subtype, ran.hook_event_name) == ("hook_response", "PreToolUse")


async def test_an_event_nobody_knows_fails_the_connection(rig: SdkHarness) -> None:
    async def note(given: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        return {}

    hooks = {"Sunrise": [rig.sdk.HookMatcher(hooks=[note])]}
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(Exception, match="Sunrise"):
            await rig.create_client(None, hooks=hooks).connect()
