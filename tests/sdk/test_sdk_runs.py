"""One run after another by the public SDK: what it passes on, and what it is told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sdk_helpers import TIMEOUT, SdkHarness, dump_request, receive_answer
from shoal.testing import messages_server
from shoal.testing.mock_replies import DelayedReplyFault, make_overloaded_fault, make_tool_call


def tools_of(body: Any) -> set[str]:
    return {tool["name"] for tool in body.get("tools", ())}


async def test_a_query_is_answered_and_says_what_it_took(rig: SdkHarness) -> None:
    async with messages_server(["Four."]) as server:
        told = await rig.run_query(server, "2 + 2?")
    assert (told.result.result, told.result.subtype, told.result.is_error) == ("Four.", "success", False)
    assert (told.result.num_turns, told.result.session_id) == (1, told.init["session_id"])
    assert told.result.total_cost_usd > 0
    assert told.result.usage["output_tokens"] > 0
    assert told.list_states() == []  # the library reads them; the program did not ask to
    (said,) = told.filter_by_type(rig.sdk.AssistantMessage)
    assert [block.text for block in said.content] == ["Four."]


async def test_the_flags_of_a_run_reach_the_model(rig: SdkHarness) -> None:
    (rig.project / "prompt.md").write_text("You are a lighthouse.")
    beside = rig.project.parent / "beside"
    beside.mkdir()
    heard: list[str] = []
    async with messages_server([make_tool_call("Read", file_path=str(beside / "note")), "read it"]) as server:
        (beside / "note").write_text("the sea is calm")
        told = await rig.run_query(
            server,
            "look",
            system_prompt={"type": "file", "path": str(rig.project / "prompt.md")},
            tools=["Read", "Bash"],
            disallowed_tools=["Bash"],
            add_dirs=[beside],
            effort="high",
            betas=["context-1m-2025-08-07"],
            settings=json.dumps({"env": {"LAMP": "on"}}),
            setting_sources=[],
            max_turns=5,
            stderr=heard.append,
            extra_args={"debug-to-stderr": None, "quiet": None},
        )
    first = server.requests[0]
    assert told.result.result == "read it"
    assert "You are a lighthouse." in str(first.body["system"])
    assert tools_of(first.body) == {"Read"}
    assert first.body["thinking"] == {"type": "adaptive"}
    assert first.headers["anthropic-beta"] == "context-1m-2025-08-07"
    assert "the sea is calm" in dump_request(server, 1)
    assert any("request" in line for line in heard)  # --verbose: what the turn took


async def test_a_preset_keeps_the_usual_prompt_and_adds_to_it(rig: SdkHarness) -> None:
    async with messages_server(["a", "b"]) as server:
        preset = {"type": "preset", "preset": "claude_code", "append": "Speak like a sailor."}
        await rig.run_query(server, "hi", system_prompt=preset, thinking={"type": "disabled"}, tools=[])
        await rig.run_query(server, "hi", system_prompt="Only this.", thinking={"type": "adaptive"})
    usual, replaced = (str(request.body["system"]) for request in server.requests)
    assert "Speak like a sailor." in usual
    assert len(usual) > len(replaced)
    assert "Only this." in replaced
    assert ["thinking" in request.body for request in server.requests] == [False, True]
    assert tools_of(server.requests[0].body) == set()


async def test_sources_of_settings_and_agents_can_be_left_out(rig: SdkHarness) -> None:
    claude = rig.project / ".claude"
    (claude / "agents").mkdir(parents=True)
    (claude / "settings.json").write_text(json.dumps({"permissions": {"deny": ["Read(secret.txt)"]}}))
    (claude / "agents" / "diver.md").write_text("---\nname: diver\ndescription: dives\n---\nDive.\n")
    (rig.project / "secret.txt").write_text("pearls")
    mind = [make_tool_call("Read", file_path=str(rig.project / "secret.txt")), "done"]
    async with messages_server(mind * 2) as server:
        with_project = await rig.run_query(server, "look", setting_sources=["user", "project"])
        without = await rig.run_query(server, "look", setting_sources=["user"])
    assert ("diver" in with_project.init["agents"], "diver" in without.init["agents"]) == (True, False)
    assert "pearls" not in dump_request(server, 1)
    assert "pearls" in dump_request(server, 3)


async def test_sessions_are_resumed_continued_forked_and_named(rig: SdkHarness) -> None:
    name = "6f2b1c9e-8d34-4a5b-9e0f-1a2b3c4d5e6f"
    async with messages_server(lambda body: f"answer {len(body['messages'])}") as server:
        first = await rig.run_query(server, "one", session_id=name)
        resumed = await rig.run_query(server, "two", resume=name)
        last = await rig.run_query(server, "three", continue_conversation=True)
        forked = await rig.run_query(server, "four", resume=name, fork_session=True)
        kept_nothing = await rig.run_query(server, "five", extra_args={"no-session-persistence": None})
    assert [first.result.session_id, resumed.result.session_id, last.result.session_id] == [name] * 3
    assert forked.result.session_id != name
    assert [len(request.body["messages"]) for request in server.requests] == [1, 3, 5, 7, 1]
    assert kept_nothing.result.session_id not in (name, forked.result.session_id)


async def test_limits_end_a_run_with_a_result_that_names_them(rig: SdkHarness) -> None:
    endless = [make_tool_call("Bash", command="true"), make_tool_call("Bash", command="true"), "never"]
    async with messages_server(endless * 2) as server:
        many = await rig.run_query(server, "go", max_turns=1, allowed_tools=["Bash"])
        dear = await rig.run_query(server, "go", max_budget_usd=0.0000001, allowed_tools=["Bash"])
    assert (many.result.subtype, many.result.is_error) == ("error_max_turns", True)
    assert dear.result.subtype == "error_max_budget_usd"
    assert isinstance(many.error, rig.sdk.ResultError)
    assert "--max-turns" in str(many.error)


async def test_an_unavailable_option_is_an_error_with_a_reason(rig: SdkHarness) -> None:
    heard: list[str] = []
    lost = await rig.run_query(
        None, "hi", resume="aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", env={"NOTHING": "1"}
    )
    unknown = await rig.run_query(None, "hi", extra_args={"sail-away": None}, stderr=heard.append)
    assert "aaaaaaaa" in str(lost.error)
    assert unknown.error is not None
    assert any("--sail-away" in line for line in heard)


async def test_another_model_is_asked_when_the_first_does_not_answer(rig: SdkHarness) -> None:
    def mind(body: Any) -> Any:
        return make_overloaded_fault() if "haiku" in body["model"] else "from the other"

    async with messages_server(mind) as server:
        told = await rig.run_query(server, "hi", fallback_model="anthropic:claude-sonnet-5-5")
    assert told.result.result == "from the other"
    assert [request.body["model"] for request in server.requests][-1] == "claude-sonnet-5-5"


async def test_an_agent_of_the_program_does_a_job_in_the_background(rig: SdkHarness) -> None:
    """Stdin is closed by then: the run ends when the agent's report has been taken up."""
    diver = rig.sdk.AgentDefinition(description="dives", prompt="You dive for pearls.", tools=["Read"])
    order = make_tool_call(
        "Agent", description="dive", prompt="find pearls", subagent_type="diver", run_in_background=True
    )

    def mind(body: Any) -> Any:
        text = str(body["messages"])
        if "You dive for pearls." in str(body["system"]):
            return "three pearls"
        if "<task-notification>" in text:
            return "The diver found three."
        return "Waiting." if "works in the background" in text else order

    async with messages_server(mind) as server:
        told = await rig.run_query(server, "begin", agents={"diver": diver})
    assert "diver" in told.init["agents"]
    (started,) = told.filter_by_type(rig.sdk.TaskStartedMessage)
    (ended,) = told.filter_by_type(rig.sdk.TaskNotificationMessage)
    assert (started.task_id, ended.status) == (ended.task_id, "completed")
    assert told.result.result == "The diver found three."


async def test_agents_that_cannot_be_are_refused_when_the_run_begins(rig: SdkHarness) -> None:
    bad = rig.sdk.AgentDefinition(description="", prompt="x")
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(Exception, match="description"):
            await rig.create_client(None, agents={"nobody": bad}).connect()


async def test_partial_messages_have_the_shape_of_the_messages_api(rig: SdkHarness) -> None:
    mind = [["Let me see.", make_tool_call("Bash", command="echo hi")], "It says hi."]
    async with messages_server(mind) as server:
        told = await rig.run_query(server, "go", include_partial_messages=True, allowed_tools=["Bash"])
    events = [each.event for each in told.filter_by_type(rig.sdk.StreamEvent)]
    kinds = [event["type"] for event in events]
    assert kinds.count("message_start") == kinds.count("message_stop") == 2
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 3
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == "Let me see.It says hi."
    begun = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [block["type"] for block in begun] == ["text", "tool_use", "text"]
    (given,) = (delta["partial_json"] for delta in deltas if delta["type"] == "input_json_delta")
    assert json.loads(given) == {"command": "echo hi"}


async def test_session_states_are_sent_to_a_program_that_requests_them(rig: SdkHarness) -> None:
    async with messages_server(["hello"]) as server:
        env = {"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}
        told = await rig.run_query(server, "hi", env=env, extra_args={"replay-user-messages": None})
    assert told.list_states() == ["running", "idle"]
    (said,) = told.filter_by_type(rig.sdk.UserMessage)
    assert said.uuid


async def test_a_client_takes_turns_and_is_steered_between_them(rig: SdkHarness) -> None:
    async with messages_server(lambda body: body["model"]) as server, rig.create_client(server) as client:
        info = await client.get_server_info()
        await client.query("one")
        first = await receive_answer(client)
        await client.set_model("anthropic:claude-sonnet-5-5")
        await client.set_permission_mode("acceptEdits")
        await client.query("two")
        second = await receive_answer(client)
        await client.set_model(None)
        await client.query("three")
        third = await receive_answer(client)
        usage = await client.get_context_usage()
        with pytest.raises(Exception, match="fly"):
            await client._query._send_control_request({"subtype": "fly"})
    assert {"Explore", "general-purpose"} <= {agent["name"] for agent in info["agents"]}
    models = [told.result.result for told in (first, second, third)]
    assert models == ["claude-haiku-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"]
    assert second.init["permissionMode"] == "acceptEdits"
    assert len(server.requests[2].body["messages"]) == 5
    assert usage["totalTokens"] > 0
    assert usage["maxTokens"] > usage["totalTokens"]
    assert {each["name"] for each in usage["categories"]} >= {"System prompt", "Messages"}


async def test_a_client_interrupts_a_turn_and_goes_on(rig: SdkHarness) -> None:
    mind = [["never", DelayedReplyFault(seconds=60)], "second"]
    async with messages_server(mind) as server, rig.create_client(server) as client:
        await client.query("one")
        await server.wait_for_requests(1)
        await client.interrupt()
        assert (await receive_answer(client)).result.subtype == "error_during_execution"
        await client.query("two")
        assert (await receive_answer(client)).result.result == "second"


async def test_files_are_brought_back_to_before_a_message(rig: SdkHarness) -> None:
    note = rig.project / "note.txt"
    note.write_text("before")
    mind = [
        make_tool_call("Read", file_path=str(note)),
        make_tool_call("Write", file_path=str(note), content="after"),
        "written",
    ]
    async with messages_server(mind) as server:
        flags = {"permission_mode": "acceptEdits", "enable_file_checkpointing": True}
        async with rig.create_client(server, extra_args={"replay-user-messages": None}, **flags) as client:
            await client.query("change it")
            told = await receive_answer(client)
            assert note.read_text() == "after"
            prompt = next(
                each for each in told.filter_by_type(rig.sdk.UserMessage) if "change it" in str(each.content)
            )
            await client.rewind_files(prompt.uuid)
            with pytest.raises(Exception, match="no-such-message"):
                await client.rewind_files("no-such-message")
    assert note.read_text() == "before"


async def test_an_answer_that_does_not_fit_its_schema_is_asked_for_again(rig: SdkHarness) -> None:
    schema = {
        "type": "object",
        "properties": {"depth": {"type": "integer", "minimum": 0}, "kind": {"enum": ["reef", "sand"]}},
        "required": ["depth", "kind"],
        "additionalProperties": False,
    }
    mind = [
        "It is twelve deep.",
        make_tool_call("StructuredOutput", depth="twelve", kind="mud"),
        make_tool_call("StructuredOutput", depth=12, kind="reef"),
        "Done.",
    ]
    async with messages_server(mind) as server:
        form = {"type": "json_schema", "schema": schema}
        told = await rig.run_query(server, "how deep?", output_format=form, tools=[])
    assert told.result.structured_output == {"depth": 12, "kind": "reef"}
    assert (told.result.subtype, told.result.result) == ("success", "Done.")
    assert tools_of(server.requests[0].body) == {"StructuredOutput"}
    refused = dump_request(server, 2)
    assert "depth: integer is expected" in refused
    assert "none of 'reef', 'sand'" in refused


async def test_an_answer_that_never_fits_ends_the_run_with_an_error(rig: SdkHarness) -> None:
    async with messages_server(lambda _: "I would rather talk.") as server:
        form = {"type": "json_schema", "schema": {"type": "array", "items": {"type": "string"}}}
        told = await rig.run_query(server, "list them", output_format=form)
    assert told.result.subtype == "error_max_structured_output_retries"
    assert told.result.structured_output is None
    assert len(server.requests) == 4
