"""A program drives a run: prompts and control requests in, every message out, over one pair of pipes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shoal_process import MODEL, ShoalProgram, wait_for_result
from stream_driver import STREAMS, make_control_request, make_prompt, start_driver

from shoal.testing import messages_server
from shoal.testing.mock_replies import DelayedReplyFault, make_tool_call


async def test_prompts_become_turns_and_closing_stdin_ends_the_run_after_the_last(
    shoal: ShoalProgram,
) -> None:
    async with messages_server(["one", "two"]) as server:
        shoal.use_server(server)
        lines = b"".join(json.dumps(make_prompt(text)).encode() + b"\n" for text in ("q1", "q2"))
        ran = await shoal(*STREAMS, "--model", MODEL, stdin=lines)
    assert ran.code == 0
    results = [line["result"] for line in ran.lines if line["type"] == "result"]
    assert results == ["one", "two"]
    states = [line["state"] for line in ran.lines if line.get("subtype") == "session_state_changed"]
    assert states == ["running", "idle"] * 2
    # Only a change of the state follows the result of a turn.
    names = [line.get("subtype", line["type"]) for line in ran.lines]
    assert [line["type"] for line in ran.lines[-2:]] == ["result", "system"]
    assert names[-1] == "session_state_changed"
    assert [m["role"] for m in server.requests[1].body["messages"]] == ["user", "assistant", "user"]


async def test_initialize_is_answered_before_any_prompt(shoal: ShoalProgram) -> None:
    async with messages_server([]) as server:
        shoal.use_server(server)
        async with start_driver(shoal) as driver:
            await driver.send_lines(make_control_request("req_1", "initialize", hooks=None))
            answer = await driver.wait_for_response()
            assert (answer["subtype"], answer["request_id"]) == ("success", "req_1")
            agents = {agent["name"]: agent["model"] for agent in answer["response"]["agents"]}
            assert (agents["Explore"], agents["general-purpose"]) == ("haiku", "inherit")
            ran = await wait_for_result(driver.process)
    assert (ran.code, ran.out) == (0, b"")


async def test_interrupt_ends_the_turn_and_not_the_session(shoal: ShoalProgram) -> None:
    async with messages_server([["never", DelayedReplyFault(seconds=60)], "second"]) as server:
        shoal.use_server(server)
        async with start_driver(shoal) as driver:
            await driver.send_lines(make_prompt("q1"))
            await server.wait_for_requests(1)
            await driver.send_lines(make_control_request("r1", "interrupt"))
            result = await driver.wait_for_line("result")
            assert result["subtype"] == "error_during_execution"
            await driver.send_lines(make_prompt("q2"))
            assert (await driver.wait_for_line("result"))["result"] == "second"
            ran = await wait_for_result(driver.process)
    assert ran.code == 0
    assert any(line["type"] == "control_response" for line in driver.received_lines)


async def test_the_mode_and_the_model_can_be_changed_between_turns(
    shoal: ShoalProgram, project: Path
) -> None:
    replies = [make_tool_call("Write", file_path=str(project / "x"), content="1"), "wrote", "again"]
    async with messages_server(replies) as server:
        shoal.use_server(server)
        async with start_driver(shoal) as driver:
            await driver.send_lines(
                make_control_request("r1", "set_permission_mode", mode="acceptEdits"), make_prompt("write")
            )
            assert (await driver.wait_for_response())["subtype"] == "success"
            init = await driver.wait_for_line("system", subtype="init")
            assert init["permissionMode"] == "acceptEdits"
            await driver.wait_for_line("result")
            await driver.send_lines(
                make_control_request("r2", "set_model", model="anthropic:claude-sonnet-5-5"),
                make_prompt("more"),
            )
            assert (await driver.wait_for_response())["request_id"] == "r2"
            await driver.wait_for_line("result")
            await driver.send_lines(make_control_request("r3", "set_permission_mode", mode="sometimes"))
            assert "sometimes" in (await driver.wait_for_response())["error"]
            await driver.send_lines(make_control_request("r4", "fly"))
            assert "fly" in (await driver.wait_for_response())["error"]
            assert (await wait_for_result(driver.process)).code == 0
    assert (project / "x").read_text() == "1"
    assert [r.body["model"] for r in server.requests] == ["claude-haiku-5-5"] * 2 + ["claude-sonnet-5-5"]


@pytest.mark.spec("DLG-02")
async def test_delegate_mode_is_switched_by_the_program(shoal: ShoalProgram, project: Path) -> None:
    write = make_tool_call("Write", file_path=str(project / "x"), content="1")
    async with messages_server([write, "refused", write, "wrote"]) as server:
        shoal.use_server(server)
        async with start_driver(shoal, "--permission-mode", "acceptEdits") as driver:
            await driver.send_lines(make_control_request("r1", "set_delegate", on=True), make_prompt("write"))
            assert (await driver.wait_for_response())["subtype"] == "success"
            await driver.wait_for_line("result")
            assert not (project / "x").exists()
            await driver.send_lines(
                make_control_request("r2", "set_delegate", on=False), make_prompt("again")
            )
            await driver.wait_for_line("result", result="wrote")
            await driver.send_lines(make_control_request("r3", "set_delegate"))
            assert 'needs "on"' in (await driver.wait_for_response())["error"]
            assert (await wait_for_result(driver.process)).code == 0
    assert (project / "x").read_text() == "1"


async def test_a_prompt_while_a_tool_runs_reaches_the_agent_with_the_result(
    shoal: ShoalProgram, project: Path
) -> None:
    command = "while [ ! -e go ]; do sleep 0.01; done"
    async with messages_server([make_tool_call("Bash", command=command), "heard you"]) as server:
        shoal.use_server(server)
        async with start_driver(shoal, "--allowedTools", "Bash") as driver:
            await driver.send_lines(make_prompt("wait"))
            await driver.wait_for_line("assistant")
            await driver.send_lines(make_prompt("and hurry"), make_control_request("r1", "initialize"))
            await driver.wait_for_response()
            (project / "go").touch()
            assert (await driver.wait_for_line("result"))["result"] == "heard you"
            assert (await wait_for_result(driver.process)).code == 0
    last = server.requests[1].body["messages"][-1]["content"]
    assert [block["type"] for block in last] == ["tool_result", "text"]
    assert "and hurry" in last[1]["text"]


async def test_an_invalid_protocol_line_is_reported_and_sets_the_exit_code(
    shoal: ShoalProgram,
) -> None:
    async with messages_server(["fine"]) as server:
        shoal.use_server(server)
        lines = b"not json\n" + json.dumps(make_prompt("q")).encode() + b"\n"
        ran = await shoal(*STREAMS, "--model", MODEL, stdin=lines)
    assert ran.code == 1
    assert ran.result["result"] == "fine"
    assert "line 1 of stdin is ignored" in ran.err


async def test_prompts_may_come_from_a_plain_file(shoal: ShoalProgram, project: Path) -> None:
    (project / "in.jsonl").write_text(json.dumps(make_prompt("q")) + "\n")
    async with messages_server(["from a file"]) as server:
        shoal.use_server(server)
        from_file = ("sh", "-c", 'exec "$0" "$@" <in.jsonl')
        ran = await shoal(*STREAMS, "--model", MODEL, prefix=from_file)
    assert (ran.code, ran.result["result"]) == (0, "from a file")


def make_decision(question: dict[str, Any], **body: Any) -> dict[str, Any]:
    response = {"subtype": "success", "request_id": question["request_id"], "response": body}
    return {"type": "control_response", "response": response}


async def test_a_driving_program_answers_permission_questions(shoal: ShoalProgram, project: Path) -> None:
    replies = [make_tool_call("Bash", command="touch a"), make_tool_call("Bash", command="touch b"), "done"]
    async with messages_server(replies) as server:
        shoal.use_server(server)
        async with start_driver(shoal, "--permission-prompt-tool", "stdio") as driver:
            await driver.send_lines(make_prompt("make them"))
            first = await driver.wait_for_line("control_request")
            assert first["request"]["subtype"] == "can_use_tool"
            assert first["request"]["tool_name"] == "Bash"
            assert first["request"]["input"]["command"] == "touch a"
            await driver.send_lines(
                make_decision(first, behavior="allow", updatedInput={"command": "touch changed"})
            )
            second = await driver.wait_for_line("control_request")
            await driver.send_lines(make_decision(second, behavior="deny", message="not that one"))
            result = await driver.wait_for_line("result")
            assert (await wait_for_result(driver.process)).code == 0
    assert sorted(path.name for path in project.iterdir()) == ["changed"]
    assert [denial["tool_input"] for denial in result["permission_denials"]] == [{"command": "touch b"}]
    assert "not that one" in str(server.requests[2].body["messages"][-1])
    states = [
        line["state"] for line in driver.received_lines if line.get("subtype") == "session_state_changed"
    ]
    assert states == ["running", "requires_action", "running", "requires_action", "running"]


@pytest.mark.spec("PRM-04")
async def test_a_driving_program_gets_suggestions_and_can_apply_them(
    shoal: ShoalProgram, project: Path
) -> None:
    replies = [make_tool_call("Bash", command="touch a"), make_tool_call("Bash", command="touch a b"), "done"]
    async with messages_server(replies) as server:
        shoal.use_server(server)
        async with start_driver(shoal, "--permission-prompt-tool", "stdio") as driver:
            await driver.send_lines(make_prompt("make them"))
            question = await driver.wait_for_line("control_request")
            suggestions = question["request"]["permission_suggestions"]
            assert suggestions[0] == {
                "type": "addRules",
                "rules": [{"toolName": "Bash", "ruleContent": "touch a"}],
                "behavior": "allow",
                "destination": "session",
            }
            wider = {**suggestions[0], "rules": [{"toolName": "Bash", "ruleContent": "touch:*"}]}
            saved_rule = {**wider, "destination": "localSettings"}
            changes = [wider, saved_rule, {"type": "nonsense"}]
            await driver.send_lines(make_decision(question, behavior="allow", updatedPermissions=changes))
            assert (await wait_for_result(driver.process)).code == 0
    assert {"a", "b"} <= {path.name for path in project.iterdir()}
    saved_settings = json.loads((project / ".claude" / "settings.local.json").read_text())
    assert saved_settings == {"permissions": {"allow": ["Bash(touch:*)"]}}
    assert [line["type"] for line in driver.received_lines].count("control_request") == 1


async def test_unanswerable_questions_are_denied_and_cancelled_ones_reported(
    shoal: ShoalProgram,
) -> None:
    replies = [
        make_tool_call("Bash", command="touch a"),
        make_tool_call("Bash", command="touch b"),
        "could not",
    ]
    async with messages_server(replies) as server:
        shoal.use_server(server)
        async with start_driver(shoal, "--permission-prompt-tool", "stdio") as driver:
            await driver.send_lines(make_prompt("first"))
            question = await driver.wait_for_line("control_request")
            await driver.send_lines(make_control_request("r1", "interrupt"))
            while not {"control_cancel_request", "result"} <= {
                line["type"] for line in driver.received_lines
            }:
                await driver.read_line()
            (cancelled,) = (
                line for line in driver.received_lines if line["type"] == "control_cancel_request"
            )
            assert cancelled["request_id"] == question["request_id"]
            await driver.send_lines(make_prompt("second"))
            await driver.wait_for_line("control_request")
            ran = await wait_for_result(driver.process)
    assert ran.code == 0
    assert ran.result["result"] == "could not"
    assert "has disconnected" in str(server.requests[2].body["messages"][-1])


async def test_an_interrupt_directly_after_a_prompt_does_not_end_the_run(shoal: ShoalProgram) -> None:
    async with messages_server(lambda _: "heard") as server:
        shoal.use_server(server)
        async with start_driver(shoal) as driver:
            await driver.send_lines(
                make_prompt("one"), make_control_request("1", "interrupt"), make_prompt("two")
            )
            ran = await wait_for_result(driver.process)
    assert [line["type"] for line in ran.lines].count("result") == 2
    assert ran.code == 0


@pytest.mark.spec("QUE-03", "QUE-06")
async def test_a_late_answer_of_a_driving_program_reaches_the_agent(
    shoal: ShoalProgram, project: Path
) -> None:
    flags = ("--permission-prompt-tool", "stdio")
    async with messages_server([make_tool_call("Bash", command="touch a"), "resumed", "heard"]) as server:
        shoal.use_server(server)
        async with start_driver(shoal, *flags) as driver:
            await driver.send_lines(make_prompt("make it"))
            question = await driver.wait_for_line("control_request")
            session = driver.received_lines[0]["session_id"]
        # Leaving the block has killed it.
        async with start_driver(shoal, *flags, "--resume", session) as driver:
            await driver.send_lines(make_prompt("go on"))
            assert (await driver.wait_for_line("result"))["result"] == "resumed"
            await driver.send_lines(make_decision(question, behavior="deny", message="no"))
            await driver.send_lines(make_decision({"request_id": "nobody-asked"}, behavior="allow"))
            await driver.send_lines(make_decision(question, behavior="allow"))
            assert (await driver.wait_for_line("result"))["result"] == "heard"
            await driver.send_lines(make_decision(question, behavior="allow"))
            ran = await wait_for_result(driver.process)
    assert "<permission-granted tool=" in json.dumps(server.requests[-1].body["messages"][-1])
    assert not (project / "a").exists()
    _, no, unknown, again = ["", *(line for line in ran.err.splitlines() if "of stdin answers" in line)]
    assert "nothing to deny" in no
    assert "There is no question 'nobody-asked'" in unknown
    assert "counts only once" in again
