"""The permission callback of the public SDK, called before a tool runs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sdk_helpers import SdkHarness, receive_answer
from shoal.testing import messages_server
from shoal.testing.mock_replies import make_tool_call


async def test_a_permission_callback_changes_one_call_and_denies_another(harness: SdkHarness) -> None:
    calls: list[tuple[str, dict[str, Any], Any]] = []

    async def decide_permission(tool: str, tool_input: dict[str, Any], context: Any) -> Any:
        calls.append((tool, tool_input, context))
        if tool_input["command"] == "touch a":
            return harness.sdk.PermissionResultAllow(updated_input={"command": "touch changed"})
        return harness.sdk.PermissionResultDeny(message="not that one")

    replies = [
        make_tool_call("Bash", call_id="c1", command="touch a"),
        make_tool_call("Bash", command="touch b"),
        "done",
    ]
    async with messages_server(replies) as server:
        env = {"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}
        messages = await harness.run_query(server, "make them", can_use_tool=decide_permission, env=env)
    assert [tool_input["command"] for _, tool_input, _ in calls] == ["touch a", "touch b"]
    assert {tool for tool, _, _ in calls} == {"Bash"}
    context = calls[0][2]
    assert context.tool_use_id == "c1"
    assert context.suggestions[0].rules[0].tool_name == "Bash"
    assert sorted(path.name for path in harness.project.iterdir()) == ["changed"]
    assert [denial["tool_input"]["command"] for denial in messages.result.permission_denials] == ["touch b"]
    assert "not that one" in str(server.requests[2].body["messages"][-1])
    assert messages.list_states() == ["running", *["requires_action", "running"] * 2, "idle"]


async def test_a_rule_the_callback_adds_for_the_session_prevents_a_second_question(
    harness: SdkHarness,
) -> None:
    commands: list[str] = []

    async def decide_permission(tool: str, tool_input: dict[str, Any], context: Any) -> Any:
        commands.append(tool_input["command"])
        rule = harness.sdk.types.PermissionRuleValue(tool_name="Bash", rule_content="touch:*")
        update = harness.sdk.PermissionUpdate(
            type="addRules", rules=[rule], behavior="allow", destination="session"
        )
        return harness.sdk.PermissionResultAllow(updated_permissions=[update])

    replies = [make_tool_call("Bash", command="touch a"), make_tool_call("Bash", command="touch b"), "done"]
    async with messages_server(replies) as server:
        await harness.run_query(server, "make them", can_use_tool=decide_permission)
    assert commands == ["touch a"]
    assert {path.name for path in harness.project.iterdir()} == {"a", "b"}


async def test_a_denial_can_end_the_turn(harness: SdkHarness) -> None:
    async def decide_permission(tool: str, tool_input: dict[str, Any], context: Any) -> Any:
        return harness.sdk.PermissionResultDeny(message="stop all of it", interrupt=True)

    replies = [make_tool_call("Bash", command="touch a"), "unheard", "second"]
    async with (
        messages_server(replies) as server,
        harness.create_client(server, can_use_tool=decide_permission) as client,
    ):
        await client.query("one")
        first = await receive_answer(client)
        request_count = len(server.requests)
        await client.query("two")
        await receive_answer(client)
    assert request_count == 1
    assert [denial["tool_name"] for denial in first.result.permission_denials] == ["Bash"]
    assert first.result.subtype == "error_during_execution"
    assert not list(harness.project.iterdir())


async def test_a_permission_callback_that_raises_denies_the_call(harness: SdkHarness) -> None:
    async def decide_permission(tool: str, tool_input: dict[str, Any], context: Any) -> Any:
        raise ValueError("the callback broke")

    async with messages_server([make_tool_call("Bash", command="touch a"), "could not"]) as server:
        messages = await harness.run_query(server, "go", can_use_tool=decide_permission)
    assert messages.result.result == "could not"
    assert "the callback broke" in str(server.requests[1].body["messages"][-1])
    assert not list(harness.project.iterdir())


async def test_a_hanging_permission_callback_is_cancelled_after_question_patience(
    harness: SdkHarness,
) -> None:
    given_up = asyncio.Event()

    async def decide_permission(tool: str, tool_input: dict[str, Any], context: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    patience = json.dumps({"shoal": {"question_patience": 1}})
    async with messages_server([make_tool_call("Bash", command="touch a"), "without it"]) as server:
        messages = await harness.run_query(server, "go", can_use_tool=decide_permission, settings=patience)
    assert messages.result.result == "without it"
    assert given_up.is_set()  # the SDK was told not to go on with it
    assert "within 1 second" in str(server.requests[1].body["messages"][-1])


@pytest.mark.slow
async def test_a_hanging_permission_callback_ends_at_the_deadline_of_the_run(harness: SdkHarness) -> None:
    async def decide_permission(tool: str, tool_input: dict[str, Any], context: Any) -> Any:
        await asyncio.Event().wait()

    async with messages_server([make_tool_call("Bash", command="touch a"), "never"]) as server:
        messages = await harness.run_query(
            server, "go", can_use_tool=decide_permission, extra_args={"deadline": "2s"}
        )
    assert (messages.result.subtype, messages.result.is_error) == ("error_during_execution", True)
    assert "deadline" in str(messages.error)


async def test_the_permission_callback_is_called_for_background_agents(
    harness: SdkHarness,
) -> None:
    contexts: list[Any] = []

    async def decide_permission(tool: str, tool_input: dict[str, Any], context: Any) -> Any:
        contexts.append(context)
        return harness.sdk.PermissionResultAllow()

    agent_call = make_tool_call("Agent", description="dive", prompt="job dive", run_in_background=True)

    def choose_reply(body: Any) -> Any:
        text = str(body["messages"])
        if text.startswith("[{'role': 'user', 'content': [{'type': 'text', 'text': 'job dive'"):
            return "dived" if "tool_result" in text else make_tool_call("Bash", command="touch deep")
        if "<task-notification>" in text:
            return "It dived."
        return "Waiting." if "works in the background" in text else agent_call

    async with messages_server(choose_reply) as server:
        messages = await harness.run_query(server, "begin", can_use_tool=decide_permission)
    (started,) = messages.filter_by_type(harness.sdk.TaskStartedMessage)
    assert [context.agent_id for context in contexts] == [started.task_id]
    assert (harness.project / "deep").exists()
    assert messages.result.result == "It dived."
