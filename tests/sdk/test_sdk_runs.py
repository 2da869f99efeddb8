"""Runs started by the public SDK: the options they get and the messages they return."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from sdk_helpers import TIMEOUT, SdkHarness, dump_request, receive_answer
from shoal.testing import messages_server
from shoal.testing.mock_replies import DelayedReplyFault, make_overloaded_fault, make_tool_call


def list_tool_names(body: Any) -> set[str]:
    return {tool["name"] for tool in body.get("tools", ())}


async def test_a_query_returns_the_answer_with_cost_and_usage(harness: SdkHarness) -> None:
    async with messages_server(["Four."]) as server:
        messages = await harness.run_query(server, "2 + 2?")
    assert (messages.result.result, messages.result.subtype, messages.result.is_error) == (
        "Four.",
        "success",
        False,
    )
    assert (messages.result.num_turns, messages.result.session_id) == (1, messages.init["session_id"])
    assert messages.result.total_cost_usd > 0
    assert messages.result.usage["output_tokens"] > 0
    assert messages.list_states() == []  # the library reads them; the program did not ask to
    (answer,) = messages.filter_by_type(harness.sdk.AssistantMessage)
    assert [block.text for block in answer.content] == ["Four."]


async def test_the_flags_of_a_run_reach_the_model(harness: SdkHarness) -> None:
    (harness.project / "prompt.md").write_text("You are a lighthouse.")
    extra_directory = harness.project.parent / "beside"
    extra_directory.mkdir()
    stderr_lines: list[str] = []
    async with messages_server(
        [make_tool_call("Read", file_path=str(extra_directory / "note")), "read it"]
    ) as server:
        (extra_directory / "note").write_text("the sea is calm")
        messages = await harness.run_query(
            server,
            "look",
            system_prompt={"type": "file", "path": str(harness.project / "prompt.md")},
            tools=["Read", "Bash"],
            disallowed_tools=["Bash"],
            add_dirs=[extra_directory],
            effort="high",
            betas=["context-1m-2025-08-07"],
            settings=json.dumps({"env": {"LAMP": "on"}}),
            setting_sources=[],
            max_turns=5,
            stderr=stderr_lines.append,
            extra_args={"debug-to-stderr": None},
        )
    first = server.requests[0]
    assert messages.result.result == "read it"
    assert "You are a lighthouse." in str(first.body["system"])
    assert list_tool_names(first.body) == {"Read"}
    assert first.body["thinking"] == {"type": "adaptive"}
    assert first.headers["anthropic-beta"] == "context-1m-2025-08-07"
    assert "the sea is calm" in dump_request(server, 1)
    assert any("request" in line for line in stderr_lines)  # --verbose: what the turn took


async def test_a_preset_appends_to_the_default_system_prompt(harness: SdkHarness) -> None:
    async with messages_server(["a", "b"]) as server:
        preset = {"type": "preset", "preset": "claude_code", "append": "Speak like a sailor."}
        await harness.run_query(server, "hi", system_prompt=preset, thinking={"type": "disabled"}, tools=[])
        await harness.run_query(server, "hi", system_prompt="Only this.", thinking={"type": "adaptive"})
    usual, replaced = (str(request.body["system"]) for request in server.requests)
    assert "Speak like a sailor." in usual
    assert len(usual) > len(replaced)
    assert "Only this." in replaced
    assert ["thinking" in request.body for request in server.requests] == [False, True]
    assert list_tool_names(server.requests[0].body) == set()


async def test_setting_sources_select_settings_and_agents(harness: SdkHarness) -> None:
    claude = harness.project / ".claude"
    (claude / "agents").mkdir(parents=True)
    (claude / "settings.json").write_text(json.dumps({"permissions": {"deny": ["Read(secret.txt)"]}}))
    (claude / "agents" / "diver.md").write_text("---\nname: diver\ndescription: dives\n---\nDive.\n")
    (harness.project / "secret.txt").write_text("pearls")
    replies = [make_tool_call("Read", file_path=str(harness.project / "secret.txt")), "done"]
    async with messages_server(replies * 2) as server:
        with_project = await harness.run_query(server, "look", setting_sources=["user", "project"])
        without_project = await harness.run_query(server, "look", setting_sources=["user"])
    assert ("diver" in with_project.init["agents"], "diver" in without_project.init["agents"]) == (
        True,
        False,
    )
    assert "pearls" not in dump_request(server, 1)
    assert "pearls" in dump_request(server, 3)


@pytest.mark.spec("CMP-117")
async def test_setting_sources_select_skills_commands_and_instructions(harness: SdkHarness) -> None:
    home, project = Path(os.environ["SHOAL_HOME"]), harness.project
    for root, name in ((home, "users"), (project / ".claude", "projects")):
        for kind, file in (("skills", f"{name}-skill/SKILL.md"), ("commands", f"{name}-command.md")):
            (root / kind / file).parent.mkdir(parents=True, exist_ok=True)
            text = f"---\nname: {name}-skill\ndescription: {name} skill text\n---\nGo.\n"
            (root / kind / file).write_text(text)
    (home / "CLAUDE.md").write_text("users instruction text")
    (project / "CLAUDE.md").write_text("projects instruction text")
    sources: tuple[list[str], ...] = (["user", "project"], ["user"], ["project"], [])
    async with messages_server(["ok"] * len(sources)) as server:
        runs = [await harness.run_query(server, "hi", setting_sources=each) for each in sources]
    for number, (run, names) in enumerate(zip(runs, sources, strict=True)):
        request = dump_request(server, number)
        for name in ("user", "project"):
            is_loaded = name in names
            assert (f"{name}s skill text" in request) is is_loaded
            assert (f"{name}s instruction text" in request) is is_loaded
            assert (f"{name}s-command" in run.init["slash_commands"]) is is_loaded
            assert (f"{name}s-skill" in run.init["skills"]) is is_loaded


@pytest.mark.spec("CMP-117")
async def test_unknown_skills_are_left_out_with_a_note(harness: SdkHarness) -> None:
    skill = Path(os.environ["SHOAL_HOME"]) / "skills/tides/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: tides\ndescription: Read the tides\n---\nGo.\n")
    lines: list[str] = []
    async with messages_server(["one", "two"]) as server:
        some = await harness.run_query(server, "hi", skills=["tides", "tidse"], stderr=lines.append)
        none = await harness.run_query(server, "hi", skills=["unknown"])
    assert (some.init["skills"], none.init["skills"]) == (["tides"], [])
    assert (some.result.result, none.result.result) == ("one", "two")
    assert "There is no skill named 'tidse'. Did you mean tides?" in "\n".join(lines)
    assert "shoal.open" not in "\n".join(lines)


async def test_verbatim_prompts_are_reported_as_ignored(harness: SdkHarness) -> None:
    if "verbatim_prompts" not in harness.sdk.ClaudeAgentOptions.__dataclass_fields__:
        pytest.skip("this version of the SDK has no verbatim_prompts")
    lines: list[str] = []
    async with messages_server(["one"]) as server:
        await harness.run_query(server, "hi", verbatim_prompts=True, stderr=lines.append)
    assert "ignored unknown fields: client_composed" in "\n".join(lines)


async def test_sessions_are_resumed_continued_forked_and_named(harness: SdkHarness) -> None:
    name = "6f2b1c9e-8d34-4a5b-9e0f-1a2b3c4d5e6f"
    async with messages_server(lambda body: f"answer {len(body['messages'])}") as server:
        first = await harness.run_query(server, "one", session_id=name)
        resumed = await harness.run_query(server, "two", resume=name)
        last = await harness.run_query(server, "three", continue_conversation=True)
        forked = await harness.run_query(server, "four", resume=name, fork_session=True)
        unsaved = await harness.run_query(server, "five", extra_args={"no-session-persistence": None})
    assert [first.result.session_id, resumed.result.session_id, last.result.session_id] == [name] * 3
    assert forked.result.session_id != name
    assert [len(request.body["messages"]) for request in server.requests] == [1, 3, 5, 7, 1]
    assert unsaved.result.session_id not in (name, forked.result.session_id)


@pytest.mark.spec("CMP-117")
async def test_a_session_that_the_sdk_forked_is_resumed_with_its_history(
    harness: SdkHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The SDK finds transcripts by the variable of the other program.
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", os.environ["SHOAL_HOME"])
    (harness.project / "note").write_text("the sea is calm")
    replies = [make_tool_call("Read", file_path=str(harness.project / "note")), "one", "two", "three"]
    async with messages_server(replies) as server:
        first = await harness.run_query(server, "first prompt")
        await harness.run_query(server, "second prompt", resume=first.result.session_id)
        entries = harness.sdk.get_session_messages(first.result.session_id, str(harness.project))
        cut = next(each for each in entries if "'one'" in str(each.message))
        fork = harness.sdk.fork_session(
            first.result.session_id, str(harness.project), up_to_message_id=cut.uuid, title="a branch"
        )
        resumed = await harness.run_query(server, "third prompt", resume=fork.session_id)
    assert resumed.error is None
    assert resumed.result.session_id == fork.session_id
    history = dump_request(server, 3)
    assert "first prompt" in history
    assert "the sea is calm" in history
    assert "second prompt" not in history
    assert "third prompt" in history


@pytest.mark.spec("CMP-117")
async def test_a_session_that_the_sdk_tagged_is_resumed_without_a_note(
    harness: SdkHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", os.environ["SHOAL_HOME"])
    async with messages_server(["one", "two"]) as server:
        first = await harness.run_query(server, "first prompt")
        harness.sdk.tag_session(first.result.session_id, "release", str(harness.project))
        errors: list[str] = []
        resumed = await harness.run_query(
            server, "second prompt", resume=first.result.session_id, stderr=errors.append
        )
    assert resumed.result.result == "two"
    assert not [line for line in errors if "unknown types" in line]


async def test_limits_end_a_run_with_a_result_that_names_them(harness: SdkHarness) -> None:
    endless = [make_tool_call("Bash", command="true"), make_tool_call("Bash", command="true"), "never"]
    async with messages_server(endless * 2) as server:
        turn_limited = await harness.run_query(server, "go", max_turns=1, allowed_tools=["Bash"])
        budget_limited = await harness.run_query(
            server, "go", max_budget_usd=0.0000001, allowed_tools=["Bash"]
        )
    assert (turn_limited.result.subtype, turn_limited.result.is_error) == ("error_max_turns", True)
    assert budget_limited.result.subtype == "error_max_budget_usd"
    assert isinstance(turn_limited.error, harness.sdk.ResultError)
    assert "--max-turns" in str(turn_limited.error)


async def test_an_unavailable_option_is_an_error_with_a_reason(harness: SdkHarness) -> None:
    stderr_lines: list[str] = []
    unknown_session = await harness.run_query(
        None, "hi", resume="aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", env={"NOTHING": "1"}
    )
    unknown_flag = await harness.run_query(
        None, "hi", extra_args={"sail-away": None}, stderr=stderr_lines.append
    )
    assert "aaaaaaaa" in str(unknown_session.error)
    assert unknown_flag.error is not None
    assert any("--sail-away" in line for line in stderr_lines)


async def test_the_fallback_model_answers_when_the_first_is_overloaded(harness: SdkHarness) -> None:
    def choose_reply(body: Any) -> Any:
        return make_overloaded_fault() if "haiku" in body["model"] else "from the other"

    async with messages_server(choose_reply) as server:
        messages = await harness.run_query(server, "hi", fallback_model="anthropic:claude-sonnet-5-5")
    assert messages.result.result == "from the other"
    assert [request.body["model"] for request in server.requests][-1] == "claude-sonnet-5-5"


async def test_an_agent_defined_by_the_program_works_in_the_background(harness: SdkHarness) -> None:
    """The run ends when the lead has processed the agent's report, although stdin is closed."""
    diver = harness.sdk.AgentDefinition(description="dives", prompt="You dive for pearls.", tools=["Read"])
    agent_call = make_tool_call(
        "Agent", description="dive", prompt="find pearls", subagent_type="diver", run_in_background=True
    )

    def choose_reply(body: Any) -> Any:
        text = str(body["messages"])
        if "You dive for pearls." in str(body["system"]):
            return "three pearls"
        if "<task-notification>" in text:
            return "The diver found three."
        return "Waiting." if "works in the background" in text else agent_call

    async with messages_server(choose_reply) as server:
        messages = await harness.run_query(server, "begin", agents={"diver": diver})
    assert "diver" in messages.init["agents"]
    (started,) = messages.filter_by_type(harness.sdk.TaskStartedMessage)
    (ended,) = messages.filter_by_type(harness.sdk.TaskNotificationMessage)
    assert (started.task_id, ended.status) == (ended.task_id, "completed")
    assert messages.result.result == "The diver found three."


async def test_invalid_agent_definitions_are_refused_when_the_run_starts(harness: SdkHarness) -> None:
    invalid_agent = harness.sdk.AgentDefinition(description="", prompt="x")
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(Exception, match="description"):
            await harness.create_client(None, agents={"nobody": invalid_agent}).connect()


async def test_partial_messages_have_the_shape_of_the_messages_api(harness: SdkHarness) -> None:
    replies = [["Let me see.", make_tool_call("Bash", command="echo hi")], "It says hi."]
    async with messages_server(replies) as server:
        messages = await harness.run_query(
            server, "go", include_partial_messages=True, allowed_tools=["Bash"]
        )
    events = [message.event for message in messages.filter_by_type(harness.sdk.StreamEvent)]
    kinds = [event["type"] for event in events]
    assert kinds.count("message_start") == kinds.count("message_stop") == 2
    starts = [event["message"] for event in events if event["type"] == "message_start"]
    answers = messages.filter_by_type(harness.sdk.AssistantMessage)
    assert [start["id"] for start in starts] == [answer.message_id for answer in answers]
    assert all(start["id"] and start["usage"].keys() >= {"input_tokens", "output_tokens"} for start in starts)
    ends = [event["usage"] for event in events if event["type"] == "message_delta"]
    assert all(end["input_tokens"] > 0 for end in ends)
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 3
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == "Let me see.It says hi."
    started_blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [block["type"] for block in started_blocks] == ["text", "tool_use", "text"]
    (input_json,) = (delta["partial_json"] for delta in deltas if delta["type"] == "input_json_delta")
    assert json.loads(input_json) == {"command": "echo hi"}


async def test_session_states_are_sent_to_a_program_that_requests_them(harness: SdkHarness) -> None:
    async with messages_server(["hello"]) as server:
        env = {"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}
        messages = await harness.run_query(server, "hi", env=env, extra_args={"replay-user-messages": None})
    assert messages.list_states() == ["running", "idle"]
    (prompt,) = messages.filter_by_type(harness.sdk.UserMessage)
    assert prompt.uuid


async def test_a_client_changes_model_and_mode_between_turns(harness: SdkHarness) -> None:
    async with messages_server(lambda body: body["model"]) as server, harness.create_client(server) as client:
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
    models = [messages.result.result for messages in (first, second, third)]
    assert models == ["claude-haiku-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"]
    assert second.init["permissionMode"] == "acceptEdits"
    assert len(server.requests[2].body["messages"]) == 5
    assert usage["totalTokens"] > 0
    assert usage["maxTokens"] > usage["totalTokens"]
    assert {category["name"] for category in usage["categories"]} >= {"System prompt", "Messages"}


async def test_a_client_interrupts_a_turn_and_goes_on(harness: SdkHarness) -> None:
    replies = [["never", DelayedReplyFault(seconds=60)], "second"]
    async with messages_server(replies) as server, harness.create_client(server) as client:
        await client.query("one")
        await server.wait_for_requests(1)
        await client.interrupt()
        assert (await receive_answer(client)).result.subtype == "error_during_execution"
        await client.query("two")
        assert (await receive_answer(client)).result.result == "second"


async def test_files_are_rewound_to_their_state_before_a_message(harness: SdkHarness) -> None:
    note = harness.project / "note.txt"
    note.write_text("before")
    replies = [
        make_tool_call("Read", file_path=str(note)),
        make_tool_call("Write", file_path=str(note), content="after"),
        "written",
    ]
    async with messages_server(replies) as server:
        flags = {"permission_mode": "acceptEdits", "enable_file_checkpointing": True}
        async with harness.create_client(
            server, extra_args={"replay-user-messages": None}, **flags
        ) as client:
            await client.query("change it")
            messages = await receive_answer(client)
            assert note.read_text() == "after"
            prompt = next(
                message
                for message in messages.filter_by_type(harness.sdk.UserMessage)
                if "change it" in str(message.content)
            )
            await client.rewind_files(prompt.uuid)
            with pytest.raises(Exception, match="no-such-message"):
                await client.rewind_files("no-such-message")
    assert note.read_text() == "before"


async def test_an_answer_that_does_not_match_its_schema_is_requested_again(harness: SdkHarness) -> None:
    schema = {
        "type": "object",
        "properties": {"depth": {"type": "integer", "minimum": 0}, "kind": {"enum": ["reef", "sand"]}},
        "required": ["depth", "kind"],
        "additionalProperties": False,
    }
    replies = [
        "It is twelve deep.",
        make_tool_call("StructuredOutput", depth="twelve", kind="mud"),
        make_tool_call("StructuredOutput", depth=12, kind="reef"),
        "Done.",
    ]
    async with messages_server(replies) as server:
        output_format = {"type": "json_schema", "schema": schema}
        messages = await harness.run_query(server, "how deep?", output_format=output_format, tools=[])
    assert messages.result.structured_output == {"depth": 12, "kind": "reef"}
    assert (messages.result.subtype, messages.result.result) == ("success", "Done.")
    assert list_tool_names(server.requests[0].body) == {"StructuredOutput"}
    refused = dump_request(server, 2)
    assert "depth: expected integer, got 'twelve'" in refused
    assert "is not one of 'reef', 'sand'" in refused


async def test_an_answer_that_never_matches_its_schema_ends_the_run_with_an_error(
    harness: SdkHarness,
) -> None:
    async with messages_server(lambda _: "I would rather talk.") as server:
        output_format = {"type": "json_schema", "schema": {"type": "array", "items": {"type": "string"}}}
        messages = await harness.run_query(server, "list them", output_format=output_format)
    assert messages.result.subtype == "error_max_structured_output_retries"
    assert messages.result.structured_output is None
    assert len(server.requests) == 4
