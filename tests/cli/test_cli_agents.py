"""Agents of a headless run: the run waits for them and reports them to programs."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from reply_scripts import YES, AsyncFifoGate, make_agent_call, make_bash_call, script_replies
from shoal_process import MODEL, TIMEOUT, ShoalProgram, wait_for_result
from stream_driver import STREAMS, StreamDriver, make_control_request, make_prompt, start_driver

from shoal.testing import messages_server
from shoal.testing.mock_replies import make_unauthorized_fault


def filter_task_starts(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line.get("subtype") == "task_started"]


def close_stdin(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()


@pytest.mark.spec("USR-22", "QUE-04")
async def test_a_run_waits_for_its_background_agents_and_the_last_turn_is_the_answer(
    shoal: ShoalProgram, project: Path
) -> None:
    gate = AsyncFifoGate(project / "gate")
    steps = script_replies(
        {"match": "begin", "tools": [make_agent_call("one", background=True)]},
        {"match": "job one", "tools": [make_bash_call(gate.command)]},
        {"match": "gate opened", "text": "the report of one"},
        {"match": "<task-notification>", "text": "All is done: the agent reported."},
        {"match": "works in the background", "text": "I have started one."},
    )
    async with messages_server(steps) as server:
        shoal.use_server(server)
        async with shoal.start_process("-p", "begin", "--model", MODEL, *YES) as process:
            close_stdin(process)
            # The lead's turn is over when both of its requests and the agent's first are answered.
            await server.wait_for_requests(3)
            await gate.open()
            ran = await wait_for_result(process)
    assert (ran.code, ran.text) == (0, "All is done: the agent reported.\n")
    assert "agent general-purpose started in the background: do one" in ran.err
    assert "general-purpose: Bash" in ran.err
    assert "agent general-purpose completed (1 tool call" in ran.err
    assert not server.responder_errors


@pytest.mark.slow
@pytest.mark.spec("USR-22")
async def test_agents_running_at_the_deadline_are_stopped_and_listed(shoal: ShoalProgram) -> None:
    steps = script_replies(
        {
            "match": "begin",
            "tools": [make_agent_call("slow", background=True), make_agent_call("quick", background=True)],
        },
        {"match": "job slow", "tools": [make_bash_call("sleep 600")]},
        {"match": "job quick", "text": "quick is done"},
        {"match": "<task-notification>", "text": "One has reported.", "repeat": True},
        {"match": "works in the background", "text": "Both are started."},
    )
    async with messages_server(steps) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "begin", "--model", MODEL, "--deadline", "4s", *YES)
    assert ran.code == 4
    assert ran.text.startswith(("Both are started.", "One has reported."))
    listed = [line for line in ran.err.splitlines() if "do slow" in line and "output:" in line]
    assert len(listed) == 1, ran.err
    assert "general-purpose: do slow (" in listed[0]
    assert "tool call" in listed[0]
    assert "do quick (0 tool calls" not in ran.err.split("Stopped before")[1]
    assert "shoal --resume " in ran.err


@pytest.mark.slow
@pytest.mark.spec("USR-22")
@pytest.mark.parametrize("form", ["json", "stream-json"])
async def test_a_program_is_notified_of_agents_stopped_before_completion(
    shoal: ShoalProgram, form: str
) -> None:
    steps = script_replies(
        {"match": "begin", "tools": [make_agent_call("slow", background=True)]},
        {"match": "job slow", "tools": [make_bash_call("sleep 600")]},
        {"match": "works in the background", "text": "It is started."},
    )
    async with messages_server(steps) as server:
        shoal.use_server(server)
        ran = await shoal(
            "-p", "begin", "--model", MODEL, "--deadline", "3s", "--output-format", form, "--verbose", *YES
        )
    lines = [json.loads(line) for line in ran.text.splitlines()]
    last = [line for line in lines if line["type"] == "result"][-1]
    assert ran.code == 4
    assert last["is_error"]
    assert last["subtype"] == "error_during_execution"
    assert "do slow" in last["errors"][-1]


@pytest.mark.spec("USR-22")
async def test_agents_are_stopped_and_listed_after_a_failed_turn(shoal: ShoalProgram) -> None:
    steps = script_replies(
        {"match": "begin", "tools": [make_agent_call("slow", background=True)]},
        {"match": "job slow", "tools": [make_bash_call("sleep 600")]},
        {"match": "works in the background", "faults": (make_unauthorized_fault(),)},
    )
    async with messages_server(steps) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "begin", "--model", MODEL, *YES)
    assert ran.code == 1
    assert "Stopped before it finished:" in ran.err
    assert "general-purpose: do slow (" in ran.err


async def test_a_background_shell_running_at_the_end_is_stopped_and_listed(shoal: ShoalProgram) -> None:
    steps = script_replies(
        {"match": "begin", "tools": [make_bash_call("sleep 600 # a server", run_in_background=True)]},
        {"text": "It serves."},
    )
    async with messages_server(steps) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "begin", "--model", MODEL, *YES)
    assert (ran.code, ran.text) == (0, "It serves.\n")
    assert (
        "Stopped because they were still running in the background:\n  bash_1  sleep 600 # a server"
        in ran.err
    )


async def test_a_resumed_run_names_the_agents_that_died_with_the_last_one(shoal: ShoalProgram) -> None:
    steps = script_replies(
        {"match": "begin", "tools": [make_agent_call("slow", background=True, name="joe")]},
        {"match": "job slow", "tools": [make_bash_call("sleep 600")]},
        {"match": "works in the background", "text": "Started."},
        {"match": "<task-notification>", "text": "I know."},
    )
    async with messages_server(steps) as server:
        shoal.use_server(server)
        flags = ("--output-format", "stream-json")
        async with shoal.start_process("-p", "begin", "--model", MODEL, *flags, *YES) as process:
            close_stdin(process)
            await StreamDriver(process).wait_for_line("result")
            process.kill()
            await wait_for_result(process)
        ran = await shoal("-p", "and now?", "--model", MODEL, "--continue", *YES)
    assert ran.text == "I know.\n"
    assert "These agents were interrupted when the last run of this session died: joe (do slow, " in ran.err


@pytest.mark.spec("USR-22")
async def test_ctrl_c_while_the_run_waits_stops_and_lists_its_agents(shoal: ShoalProgram) -> None:
    steps = script_replies(
        {"match": "begin", "tools": [make_agent_call("slow", background=True)]},
        {"match": "job slow", "tools": [make_bash_call("sleep 600")]},
        {"match": "works in the background", "text": "Started."},
    )
    async with messages_server(steps) as server:
        shoal.use_server(server)
        flags = ("--output-format", "stream-json", "--verbose")
        async with shoal.start_process("-p", "begin", "--model", MODEL, *flags, *YES) as process:
            close_stdin(process)
            await StreamDriver(process).wait_for_line("result")
            process.send_signal(signal.SIGINT)
            ran = await wait_for_result(process)
    assert ran.code == 130
    assert "general-purpose: do slow (" in ran.err


@pytest.mark.spec("RUN-03", "TRN-03")
async def test_messages_of_agents_carry_the_call_that_started_them_at_any_depth(shoal: ShoalProgram) -> None:
    steps = script_replies(
        {"match": "begin", "tools": [make_agent_call("outer") | {"id": "call_outer"}]},
        {
            "match": "job outer",
            "text": "I ask another.",
            "tools": [make_agent_call("inner") | {"id": "call_inner"}],
        },
        {"match": "job inner", "tools": [make_bash_call("echo deep inside")]},
        {"match": "deep inside", "text": "inner reports"},
        {"match": "inner reports", "text": "outer reports"},
        {"match": "outer reports", "text": "The lead answers."},
    )
    async with messages_server(steps) as server:
        shoal.use_server(server)
        flags = ("--output-format", "stream-json", "--verbose", "--include-partial-messages")
        ran = await shoal("-p", "begin", "--model", MODEL, *flags, *YES)
    assert (ran.code, ran.result["result"]) == (0, "The lead answers.")
    parent_calls = {
        block["text"]: line["parent_tool_use_id"]
        for line in ran.lines
        if line["type"] == "assistant"
        for block in line["message"]["content"]
        if block["type"] == "text"
    }
    assert parent_calls == {
        "I ask another.": "call_outer",
        "inner reports": "call_inner",
        "outer reports": "call_outer",
        "The lead answers.": None,
    }
    results = [line["parent_tool_use_id"] for line in ran.lines if line["type"] == "user"]
    assert results == ["call_inner", "call_outer", None]
    pieces = {line["parent_tool_use_id"] for line in ran.lines if line["type"] == "stream_event"}
    assert pieces == {None, "call_outer", "call_inner"}
    outer, inner = filter_task_starts(ran.lines)
    assert (outer["tool_use_id"], outer["description"]) == ("call_outer", "do outer")
    assert (inner["tool_use_id"], inner["is_background"]) == ("call_inner", False)
    assert all(line["uuid"] and line["session_id"] == ran.result["session_id"] for line in (outer, inner))
    (progress,) = (
        line
        for line in ran.lines
        if line.get("subtype") == "task_progress" and line["last_tool_name"] == "Bash"
    )
    assert progress["task_id"] == inner["task_id"]
    assert set(progress["usage"]) == {"total_tokens", "tool_uses", "duration_ms"}
    ends = [line for line in ran.lines if line.get("subtype") == "task_notification"]
    assert [line["task_id"] for line in ends] == [inner["task_id"], outer["task_id"]]
    assert all(line["status"] == "completed" and Path(line["output_file"]).exists() for line in ends)
    assert "do inner" in ends[0]["summary"]


async def test_init_names_the_agents_and_calls_their_tool_task(shoal: ShoalProgram, project: Path) -> None:
    definitions = project / ".claude" / "agents"
    definitions.mkdir(parents=True)
    (definitions / "plumber.md").write_text("---\nname: plumber\ndescription: Mends pipes.\n---\nMend.\n")
    async with messages_server(["hi"]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "hello", "--model", MODEL, "--output-format", "stream-json", "--verbose")
    init = ran.lines[0]
    assert "Task" in init["tools"]
    assert "Agent" not in init["tools"]
    assert {"plumber", "general-purpose"} <= set(init["agents"])


@pytest.mark.spec("USR-22", "QUE-04")
async def test_closing_stdin_lets_background_agents_finish_and_each_woken_turn_has_a_result(
    shoal: ShoalProgram,
) -> None:
    steps = script_replies(
        {"match": "begin", "tools": [make_agent_call("one", background=True)]},
        {"match": "job one", "tools": [make_bash_call("echo some work")]},
        {"match": "some work", "text": "one reports"},
        {"match": "<task-notification>", "text": "I was woken."},
        {"match": "works in the background", "text": "Started."},
    )
    async with messages_server(steps) as server:
        shoal.use_server(server)
        ran = await shoal(
            *STREAMS, "--model", MODEL, *YES, stdin=json.dumps(make_prompt("begin")).encode() + b"\n"
        )
    assert ran.code == 0
    # The notification may come while the first turn still runs; then one turn takes it up.
    results = [line["result"] for line in ran.lines if line["type"] == "result"]
    assert results[-1] == "I was woken."
    inits = [line for line in ran.lines if line.get("subtype") == "init"]
    states = [line["state"] for line in ran.lines if line.get("subtype") == "session_state_changed"]
    assert len(inits) == len(results)
    # A program holds its end open until idle, so that comes after the agents.
    assert states == ["running", "idle"]


@pytest.mark.spec("QUE-04", "RUN-06")
async def test_an_agent_that_ends_while_stdin_is_open_wakes_the_lead_and_an_interrupt_does_not_stop_it(
    shoal: ShoalProgram, project: Path
) -> None:
    gate = AsyncFifoGate(project / "gate")
    steps = script_replies(
        {"match": "begin", "tools": [make_agent_call("one", background=True)]},
        {"match": "job one", "tools": [make_bash_call(gate.command)]},
        {"match": "gate opened", "text": "one reports"},
        {"match": "<task-notification>", "text": "I was woken."},
        {"match": "works in the background", "text": "never said", "delay": 60.0},
    )
    async with messages_server(steps) as server:
        shoal.use_server(server)
        async with start_driver(shoal, *YES) as driver:
            await driver.send_lines(make_prompt("begin"))
            await server.wait_for_requests(3)
            await driver.send_lines(make_control_request("r1", "interrupt"))
            assert (await driver.wait_for_line("result"))["is_error"]
            await gate.open()
            assert (await driver.wait_for_line("system", subtype="task_notification"))[
                "status"
            ] == "completed"
            assert (await driver.wait_for_line("result"))["result"] == "I was woken."
            ran = await wait_for_result(driver.process)
    assert ran.code == 0


@pytest.mark.spec("RUN-04")
async def test_a_program_moves_an_agent_to_the_background_and_stops_it(
    shoal: ShoalProgram, project: Path
) -> None:
    gate = AsyncFifoGate(project / "gate")
    steps = script_replies(
        {"match": "begin", "tools": [make_agent_call("one")]},
        {"match": "job one", "tools": [make_bash_call(gate.command)]},
        {"match": "continues in the background", "text": "It goes on without me."},
        {"match": "<status>killed</status>", "text": "It was stopped."},
    )
    async with messages_server(steps) as server:
        shoal.use_server(server)
        async with start_driver(shoal, *YES) as driver:
            await driver.send_lines(make_prompt("begin"))
            task = (await driver.wait_for_line("system", subtype="task_progress"))["task_id"]
            await driver.send_lines(make_control_request("r0", "stop_task", task_id="nobody"))
            assert "nobody" in (await driver.wait_for_response())["error"]
            await driver.send_lines(make_control_request("r1", "background_task", task_id=task))
            assert (await driver.wait_for_response())["response"] == {"moved": [task]}
            assert (await driver.wait_for_line("result"))["result"] == "It goes on without me."
            await driver.send_lines(make_control_request("r2", "stop_task", task_id=task))
            async with asyncio.timeout(TIMEOUT):
                assert (await driver.wait_for_line("system", subtype="task_notification"))[
                    "status"
                ] == "stopped"
            assert (await driver.wait_for_line("result"))["result"] == "It was stopped."
            ran = await wait_for_result(driver.process)
    assert ran.code == 0
    # The same run went on: its one request for the job was never asked again.
    jobs = [body for body in server.requests if "job one" in str(body.body["messages"][0])]
    assert len(jobs) == 1


@pytest.mark.spec("USR-22")
async def test_stopping_a_waiting_run_from_outside_lists_the_stopped_agents(
    shoal: ShoalProgram,
) -> None:
    steps = script_replies(
        {"match": "begin", "tools": [make_agent_call("slow", background=True)]},
        {"match": "job slow", "tools": [make_bash_call("sleep 600")]},
        {"match": "works in the background", "text": "Started."},
    )
    async with messages_server(steps) as server:
        shoal.use_server(server)
        flags = ("--output-format", "stream-json", "--verbose")
        async with shoal.start_process("-p", "begin", "--model", MODEL, *flags, *YES) as process:
            close_stdin(process)
            session = (await StreamDriver(process).wait_for_line("result"))["session_id"]
            assert (await shoal("stop", session)).code == 0
            ran = await wait_for_result(process)
    assert ran.code == 4
    assert "general-purpose: do slow (" in ran.err


@pytest.mark.spec("USR-05", "USR-26")
async def test_a_question_of_an_agent_reaches_the_program_while_the_lead_is_idle(
    shoal: ShoalProgram, project: Path
) -> None:
    steps = script_replies(
        {"match": "begin", "tools": [make_agent_call("one", background=True)]},
        {"match": "job one", "tools": [make_bash_call("touch asked-for")]},
        {"match": "(no output)", "text": "one reports"},
        {"match": "<task-notification>", "text": "I was woken."},
        {"match": "works in the background", "text": "Started."},
    )
    async with messages_server(steps) as server:
        shoal.use_server(server)
        async with start_driver(shoal, "--permission-prompt-tool", "stdio") as driver:
            await driver.send_lines(make_prompt("begin"))
            question = await driver.wait_for_line("control_request")
            (task,) = filter_task_starts(driver.received_lines)
            assert question["request"]["agent_id"] == task["task_id"]
            while not any(line["type"] == "result" for line in driver.received_lines):
                await driver.read_line()
            yes = {"behavior": "allow", "updatedInput": question["request"]["input"]}
            answer = {"subtype": "success", "request_id": question["request_id"], "response": yes}
            await driver.send_lines({"type": "control_response", "response": answer})
            assert (await driver.wait_for_line("result"))["result"] == "I was woken."
            ran = await wait_for_result(driver.process)
    assert ran.code == 0
    assert (project / "asked-for").exists()
    lines = driver.received_lines + ran.lines
    states = [line["state"] for line in lines if line.get("subtype") == "session_state_changed"]
    assert states == ["running", "requires_action", "running", "idle"]
