"""A program drives a run: prompts and control requests in, every message out, over one pair of pipes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from shoal_process import MODEL, PATIENCE, Program, ended

from shoal.testing import messages_server
from shoal.testing.replies import Delay, call

STREAMS = ("--output-format", "stream-json", "--input-format", "stream-json", "--verbose")


def user(text: str) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None}


def request(number: str, subtype: str, **more: Any) -> dict[str, Any]:
    return {"type": "control_request", "request_id": number, "request": {"subtype": subtype, **more}}


class Driver:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.heard: list[dict[str, Any]] = []

    async def say(self, *lines: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        for line in lines:
            self.process.stdin.write(json.dumps(line).encode() + b"\n")
        await self.process.stdin.drain()

    async def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line: dict[str, Any] = json.loads(await self.process.stdout.readline())
        self.heard.append(line)
        return line

    async def until(self, kind: str, **like: Any) -> dict[str, Any]:
        """The next line of this type with these values."""
        async with asyncio.timeout(PATIENCE):
            while True:
                line = await self.hear()
                if line["type"] == kind and all(line.get(key) == value for key, value in like.items()):
                    return line

    async def answer(self) -> dict[str, Any]:
        return (await self.until("control_response"))["response"]


@asynccontextmanager
async def driven(shoal: Program, *flags: str) -> AsyncIterator[Driver]:
    async with shoal.started(*STREAMS, "--model", MODEL, *flags) as process:
        yield Driver(process)


async def test_prompts_become_turns_and_closing_stdin_ends_the_run_after_the_last(shoal: Program) -> None:
    async with messages_server(["one", "two"]) as server:
        shoal.talks_to(server)
        lines = b"".join(json.dumps(user(text)).encode() + b"\n" for text in ("q1", "q2"))
        ran = await shoal(*STREAMS, "--model", MODEL, stdin=lines)
    assert ran.code == 0
    results = [line["result"] for line in ran.lines if line["type"] == "result"]
    assert results == ["one", "two"]
    states = [line["state"] for line in ran.lines if line.get("subtype") == "session_state_changed"]
    assert states == ["running", "idle"] * 2
    assert [m["role"] for m in server.requests[1].body["messages"]] == ["user", "assistant", "user"]


async def test_initialize_is_answered_before_any_prompt(shoal: Program) -> None:
    async with messages_server([]) as server:
        shoal.talks_to(server)
        async with driven(shoal) as driver:
            await driver.say(request("req_1", "initialize", hooks=None))
            answer = await driver.answer()
            assert (answer["subtype"], answer["request_id"]) == ("success", "req_1")
            agents = {agent["name"]: agent["model"] for agent in answer["response"]["agents"]}
            assert (agents["Explore"], agents["general-purpose"]) == ("haiku", "inherit")
            ran = await ended(driver.process)
    assert (ran.code, ran.out) == (0, b"")


async def test_interrupt_ends_the_turn_and_not_the_session(shoal: Program) -> None:
    async with messages_server([["never", Delay(seconds=60)], "second"]) as server:
        shoal.talks_to(server)
        async with driven(shoal) as driver:
            await driver.say(user("q1"))
            await server.arrived(1)
            await driver.say(request("r1", "interrupt"))
            result = await driver.until("result")
            assert result["subtype"] == "error_during_execution"
            await driver.say(user("q2"))
            assert (await driver.until("result"))["result"] == "second"
            ran = await ended(driver.process)
    assert ran.code == 0
    assert any(line["type"] == "control_response" for line in driver.heard)


async def test_the_mode_and_the_model_can_be_changed_between_turns(shoal: Program, project: Path) -> None:
    mind = [call("Write", file_path=str(project / "x"), content="1"), "wrote", "again"]
    async with messages_server(mind) as server:
        shoal.talks_to(server)
        async with driven(shoal) as driver:
            await driver.say(request("r1", "set_permission_mode", mode="acceptEdits"), user("write"))
            assert (await driver.answer())["subtype"] == "success"
            init = await driver.until("system", subtype="init")
            assert init["permissionMode"] == "acceptEdits"
            await driver.until("result")
            await driver.say(request("r2", "set_model", model="anthropic:claude-sonnet-5-5"), user("more"))
            assert (await driver.answer())["request_id"] == "r2"
            await driver.until("result")
            await driver.say(request("r3", "set_permission_mode", mode="sometimes"))
            assert "sometimes" in (await driver.answer())["error"]
            await driver.say(request("r4", "fly"))
            assert "fly" in (await driver.answer())["error"]
            assert (await ended(driver.process)).code == 0
    assert (project / "x").read_text() == "1"
    assert [r.body["model"] for r in server.requests] == ["claude-haiku-5-5"] * 2 + ["claude-sonnet-5-5"]


@pytest.mark.spec("DLG-02")
async def test_delegate_mode_is_switched_by_the_program(shoal: Program, project: Path) -> None:
    write = call("Write", file_path=str(project / "x"), content="1")
    async with messages_server([write, "refused", write, "wrote"]) as server:
        shoal.talks_to(server)
        async with driven(shoal, "--permission-mode", "acceptEdits") as driver:
            await driver.say(request("r1", "set_delegate", on=True), user("write"))
            assert (await driver.answer())["subtype"] == "success"
            await driver.until("result")
            assert not (project / "x").exists()
            await driver.say(request("r2", "set_delegate", on=False), user("again"))
            await driver.until("result", result="wrote")
            await driver.say(request("r3", "set_delegate"))
            assert 'needs "on"' in (await driver.answer())["error"]
            assert (await ended(driver.process)).code == 0
    assert (project / "x").read_text() == "1"


async def test_a_prompt_while_a_tool_runs_reaches_the_agent_with_the_result(
    shoal: Program, project: Path
) -> None:
    command = "while [ ! -e go ]; do sleep 0.01; done"
    async with messages_server([call("Bash", command=command), "heard you"]) as server:
        shoal.talks_to(server)
        async with driven(shoal, "--allowedTools", "Bash") as driver:
            await driver.say(user("wait"))
            await driver.until("assistant")
            await driver.say(user("and hurry"), request("r1", "initialize"))
            await driver.answer()
            (project / "go").touch()
            assert (await driver.until("result"))["result"] == "heard you"
            assert (await ended(driver.process)).code == 0
    last = server.requests[1].body["messages"][-1]["content"]
    assert [block["type"] for block in last] == ["tool_result", "text"]
    assert "and hurry" in last[1]["text"]


async def test_a_line_that_is_not_of_the_protocol_is_told_and_costs_the_exit_code(shoal: Program) -> None:
    async with messages_server(["fine"]) as server:
        shoal.talks_to(server)
        lines = b"not json\n" + json.dumps(user("q")).encode() + b"\n"
        ran = await shoal(*STREAMS, "--model", MODEL, stdin=lines)
    assert ran.code == 1
    assert ran.result["result"] == "fine"
    assert "line 1 of stdin is ignored" in ran.err


async def test_prompts_may_come_from_a_plain_file(shoal: Program, project: Path) -> None:
    (project / "in.jsonl").write_text(json.dumps(user("q")) + "\n")
    async with messages_server(["from a file"]) as server:
        shoal.talks_to(server)
        from_file = ("sh", "-c", 'exec "$0" "$@" <in.jsonl')
        ran = await shoal(*STREAMS, "--model", MODEL, prefix=from_file)
    assert (ran.code, ran.result["result"]) == (0, "from a file")


def decision(asked: dict[str, Any], **body: Any) -> dict[str, Any]:
    response = {"subtype": "success", "request_id": asked["request_id"], "response": body}
    return {"type": "control_response", "response": response}


async def test_a_driving_program_is_asked_and_its_answer_counts(shoal: Program, project: Path) -> None:
    mind = [call("Bash", command="touch a"), call("Bash", command="touch b"), "done"]
    async with messages_server(mind) as server:
        shoal.talks_to(server)
        async with driven(shoal, "--permission-prompt-tool", "stdio") as driver:
            await driver.say(user("make them"))
            first = await driver.until("control_request")
            assert first["request"]["subtype"] == "can_use_tool"
            assert first["request"]["tool_name"] == "Bash"
            assert first["request"]["input"]["command"] == "touch a"
            await driver.say(decision(first, behavior="allow", updatedInput={"command": "touch changed"}))
            second = await driver.until("control_request")
            await driver.say(decision(second, behavior="deny", message="not that one"))
            result = await driver.until("result")
            assert (await ended(driver.process)).code == 0
    assert sorted(path.name for path in project.iterdir()) == ["changed"]
    assert [denial["tool_input"] for denial in result["permission_denials"]] == [{"command": "touch b"}]
    assert "not that one" in str(server.requests[2].body["messages"][-1])
    states = [line["state"] for line in driver.heard if line.get("subtype") == "session_state_changed"]
    assert states == ["running", "requires_action", "running", "requires_action", "running"]


@pytest.mark.spec("PRM-04")
async def test_a_driving_program_is_told_suggestions_and_may_take_them_over(
    shoal: Program, project: Path
) -> None:
    mind = [call("Bash", command="touch a"), call("Bash", command="touch a b"), "done"]
    async with messages_server(mind) as server:
        shoal.talks_to(server)
        async with driven(shoal, "--permission-prompt-tool", "stdio") as driver:
            await driver.say(user("make them"))
            asked = await driver.until("control_request")
            suggestions = asked["request"]["permission_suggestions"]
            assert suggestions[0] == {
                "type": "addRules",
                "rules": [{"toolName": "Bash", "ruleContent": "touch a"}],
                "behavior": "allow",
                "destination": "session",
            }
            wider = {**suggestions[0], "rules": [{"toolName": "Bash", "ruleContent": "touch:*"}]}
            kept = {**wider, "destination": "localSettings"}
            changes = [wider, kept, {"type": "nonsense"}]
            await driver.say(decision(asked, behavior="allow", updatedPermissions=changes))
            assert (await ended(driver.process)).code == 0
    assert {"a", "b"} <= {path.name for path in project.iterdir()}
    settings = json.loads((project / ".claude" / "settings.local.json").read_text())
    assert settings == {"permissions": {"allow": ["Bash(touch:*)"]}}
    assert [line["type"] for line in driver.heard].count("control_request") == 1


async def test_questions_nobody_will_answer_are_refused_and_cancelled_ones_are_told(shoal: Program) -> None:
    mind = [call("Bash", command="touch a"), call("Bash", command="touch b"), "could not"]
    async with messages_server(mind) as server:
        shoal.talks_to(server)
        async with driven(shoal, "--permission-prompt-tool", "stdio") as driver:
            await driver.say(user("first"))
            asked = await driver.until("control_request")
            await driver.say(request("r1", "interrupt"))
            while not {"control_cancel_request", "result"} <= {line["type"] for line in driver.heard}:
                await driver.hear()
            (cancelled,) = (line for line in driver.heard if line["type"] == "control_cancel_request")
            assert cancelled["request_id"] == asked["request_id"]
            await driver.say(user("second"))
            await driver.until("control_request")
            ran = await ended(driver.process)
    assert ran.code == 0
    assert ran.result["result"] == "could not"
    assert "hung up" in str(server.requests[2].body["messages"][-1])


async def test_an_interrupt_right_behind_a_prompt_leaves_the_run_going(shoal: Program) -> None:
    async with messages_server(lambda _: "heard") as server:
        shoal.talks_to(server)
        async with driven(shoal) as driver:
            await driver.say(user("one"), request("1", "interrupt"), user("two"))
            ran = await ended(driver.process)
    assert [line["type"] for line in ran.lines].count("result") == 2
    assert ran.code == 0


@pytest.mark.spec("QUE-03", "QUE-06")
async def test_a_late_answer_of_a_driving_program_is_told_to_the_agent(shoal: Program, project: Path) -> None:
    flags = ("--permission-prompt-tool", "stdio")
    async with messages_server([call("Bash", command="touch a"), "resumed", "heard"]) as server:
        shoal.talks_to(server)
        async with driven(shoal, *flags) as driver:
            await driver.say(user("make it"))
            asked = await driver.until("control_request")
            session = driver.heard[0]["session_id"]
        # Leaving the block has killed it.
        async with driven(shoal, *flags, "--resume", session) as driver:
            await driver.say(user("go on"))
            assert (await driver.until("result"))["result"] == "resumed"
            await driver.say(decision(asked, behavior="deny", message="no"))
            await driver.say(decision({"request_id": "nobody-asked"}, behavior="allow"))
            await driver.say(decision(asked, behavior="allow"))
            assert (await driver.until("result"))["result"] == "heard"
            await driver.say(decision(asked, behavior="allow"))
            ran = await ended(driver.process)
    assert "<permission-granted tool=" in json.dumps(server.requests[-1].body["messages"][-1])
    assert not (project / "a").exists()
    _, no, unknown, again = ["", *(line for line in ran.err.splitlines() if "of stdin answers" in line)]
    assert "nothing left to deny" in no
    assert "There is no question 'nobody-asked'" in unknown
    assert "counts once" in again
