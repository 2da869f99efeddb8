"""The program is asked before a tool runs, through the callback it gave the public SDK."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from sdk_helpers import SdkHarness, receive_answer
from shoal.testing import messages_server
from shoal.testing.mock_replies import make_tool_call


async def test_a_callback_allows_changes_and_denies(rig: SdkHarness) -> None:
    asked: list[tuple[str, dict[str, Any], Any]] = []

    async def may(tool: str, given: dict[str, Any], context: Any) -> Any:
        asked.append((tool, given, context))
        if given["command"] == "touch a":
            return rig.sdk.PermissionResultAllow(updated_input={"command": "touch changed"})
        return rig.sdk.PermissionResultDeny(message="not that one")

    mind = [
        make_tool_call("Bash", call_id="c1", command="touch a"),
        make_tool_call("Bash", command="touch b"),
        "done",
    ]
    async with messages_server(mind) as server:
        env = {"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}
        told = await rig.run_query(server, "make them", can_use_tool=may, env=env)
    assert [given["command"] for _, given, _ in asked] == ["touch a", "touch b"]
    assert {tool for tool, _, _ in asked} == {"Bash"}
    context = asked[0][2]
    assert context.tool_use_id == "c1"
    assert context.suggestions[0].rules[0].tool_name == "Bash"
    assert sorted(path.name for path in rig.project.iterdir()) == ["changed"]
    assert [each["tool_input"]["command"] for each in told.result.permission_denials] == ["touch b"]
    assert "not that one" in str(server.requests[2].body["messages"][-1])
    assert told.list_states() == ["running", *["requires_action", "running"] * 2, "idle"]


async def test_what_a_callback_allows_for_the_session_is_not_asked_again(rig: SdkHarness) -> None:
    asked: list[str] = []

    async def may(tool: str, given: dict[str, Any], context: Any) -> Any:
        asked.append(given["command"])
        rule = rig.sdk.types.PermissionRuleValue(tool_name="Bash", rule_content="touch:*")
        update = rig.sdk.PermissionUpdate(
            type="addRules", rules=[rule], behavior="allow", destination="session"
        )
        return rig.sdk.PermissionResultAllow(updated_permissions=[update])

    mind = [make_tool_call("Bash", command="touch a"), make_tool_call("Bash", command="touch b"), "done"]
    async with messages_server(mind) as server:
        await rig.run_query(server, "make them", can_use_tool=may)
    assert asked == ["touch a"]
    assert {path.name for path in rig.project.iterdir()} == {"a", "b"}


async def test_a_denial_can_end_the_turn(rig: SdkHarness) -> None:
    async def may(tool: str, given: dict[str, Any], context: Any) -> Any:
        return rig.sdk.PermissionResultDeny(message="stop all of it", interrupt=True)

    mind = [make_tool_call("Bash", command="touch a"), "unheard", "second"]
    async with messages_server(mind) as server, rig.create_client(server, can_use_tool=may) as client:
        await client.query("one")
        first = await receive_answer(client)
        sent = len(server.requests)
        await client.query("two")
        await receive_answer(client)
    assert sent == 1
    assert [each["tool_name"] for each in first.result.permission_denials] == ["Bash"]
    assert first.result.subtype == "error_during_execution"
    assert not list(rig.project.iterdir())


async def test_a_callback_that_raises_denies(rig: SdkHarness) -> None:
    async def may(tool: str, given: dict[str, Any], context: Any) -> Any:
        raise ValueError("the callback broke")

    async with messages_server([make_tool_call("Bash", command="touch a"), "could not"]) as server:
        told = await rig.run_query(server, "go", can_use_tool=may)
    assert told.result.result == "could not"
    assert "the callback broke" in str(server.requests[1].body["messages"][-1])
    assert not list(rig.project.iterdir())


async def test_a_callback_that_never_answers_is_given_up_after_the_patience_of_the_settings(
    rig: SdkHarness,
) -> None:
    given_up = asyncio.Event()

    async def may(tool: str, given: dict[str, Any], context: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    patience = json.dumps({"shoal": {"question_patience": 1}})
    async with messages_server([make_tool_call("Bash", command="touch a"), "without it"]) as server:
        told = await rig.run_query(server, "go", can_use_tool=may, settings=patience)
    assert told.result.result == "without it"
    assert given_up.is_set()  # the SDK was told not to go on with it
    assert "within 1 second" in str(server.requests[1].body["messages"][-1])


async def test_a_callback_that_never_answers_ends_with_the_deadline_of_the_run(rig: SdkHarness) -> None:
    async def may(tool: str, given: dict[str, Any], context: Any) -> Any:
        await asyncio.Event().wait()

    async with messages_server([make_tool_call("Bash", command="touch a"), "never"]) as server:
        told = await rig.run_query(server, "go", can_use_tool=may, extra_args={"deadline": "2s"})
    assert (told.result.subtype, told.result.is_error) == ("error_during_execution", True)
    assert "deadline" in str(told.error)


async def test_a_callback_is_asked_for_an_agent_in_the_background_too(
    rig: SdkHarness,
) -> None:
    asked: list[Any] = []

    async def may(tool: str, given: dict[str, Any], context: Any) -> Any:
        asked.append(context)
        return rig.sdk.PermissionResultAllow()

    order = make_tool_call("Agent", description="dive", prompt="job dive", run_in_background=True)

    def mind(body: Any) -> Any:
        text = str(body["messages"])
        if text.startswith("[{'role': 'user', 'content': [{'type': 'text', 'text': 'job dive'"):
            return "dived" if "tool_result" in text else make_tool_call("Bash", command="touch deep")
        if "<task-notification>" in text:
            return "It dived."
        return "Waiting." if "works in the background" in text else order

    async with messages_server(mind) as server:
        told = await rig.run_query(server, "begin", can_use_tool=may)
    (started,) = told.filter_by_type(rig.sdk.TaskStartedMessage)
    assert [context.agent_id for context in asked] == [started.task_id]
    assert (rig.project / "deep").exists()
    assert told.result.result == "It dived."
