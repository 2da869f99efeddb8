"""Shutdown of members, with and without their approval."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import ToolGate, call_tool, read_events, run_all_turns
from session_helpers import collect_events
from shoal.core.conversation.messages import extract_tool_result_text
from shoal.core.conversation.model_requests import ModelReply, ModelRequest
from shoal.core.events import AgentEnded, ToolOutputReturned
from shoal.models.scripted_model import ScriptedModel
from shoal.team.session_teams import SessionTeams
from shoal.testing import FakeClock
from team_scripts import (
    find_request_id,
    find_speaker,
    find_tool_results,
    get_home,
    get_last_result,
    get_last_text,
    open_session,
    read_inbox,
    read_team_config,
    script_team,
    spawn_member,
)

ASK = {"type": "shutdown_request", "reason": "we are done"}


def reject_shutdown(request: ModelRequest) -> Any:
    answer = {
        "type": "shutdown_response",
        "request_id": find_request_id(request),
        "approve": False,
        "reason": "I am not done",
    }
    return call_tool("SendMessage", to="team-lead", message=answer)


@pytest.mark.spec("LIF-03", "MSG-03", "MSG-04", "SND-02", "SND-04")
async def test_a_member_may_reject_one_shutdown_request(tmp_path: Path) -> None:
    seen: list[str] = []

    def request_shutdown_again(request: ModelRequest) -> Any:
        seen.append(get_last_text(request))
        return call_tool("SendMessage", type="shutdown_request", recipient="ann", content="really")

    def second(request: ModelRequest) -> str:
        seen.append(get_last_result(request))
        return "I give in"

    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            spawn_member("ann"),
            "wait",
            call_tool("SendMessage", to="ann", message=ASK),
            "asked",
            request_shutdown_again,
            "asked again",
            get_last_text,
        ],
        ann=["ready", reject_shutdown, "go on", reject_shutdown, second],
    )
    settings = '{"shoal": {"shutdown_grace": 0.3}}'
    async with open_session(tmp_path, model, settings=settings) as session:
        text = await run_all_turns(session)
        bodies = [each["text"] for each in read_inbox("crew", "ann")]
        answers = [each["text"] for each in read_inbox("crew", "team-lead")]
    assert "ann will not shut down: I am not done." in seen[0]
    assert '"requestId":"shutdown-' in bodies[1]
    assert '@ann","from":"team-lead","reason":"we are done"' in bodies[1]
    assert any('"type":"shutdown_rejected"' in each for each in answers)
    # The second time its word does not count, and the grace does.
    assert "is asking a second time" in seen[1]
    assert "did not answer the request to shut down within 0.3 s" in text
    assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]


@pytest.mark.spec("SND-01", "SND-02", "SND-04", "LIF-03", "MSG-03", "MSG-04")
@pytest.mark.parametrize("form", ["newer", "older"])
async def test_a_shutdown_is_requested_rejected_and_approved_in_either_form_of_the_tool(
    tmp_path: Path, form: str
) -> None:
    def build_shutdown_call(to: str, kind: str, words: str, **more: Any) -> Any:
        if form == "older":
            return call_tool("SendMessage", type=kind, recipient=to, content=words, **more)
        return call_tool("SendMessage", to=to, message={"type": kind, "reason": words, **more})

    def answer(words: str, *, approve: bool) -> Any:
        return lambda request: build_shutdown_call(
            "team-lead", "shutdown_response", words, request_id=find_request_id(request), approve=approve
        )

    asks = [
        build_shutdown_call("ann", "shutdown_request", "we are done"),
        "asked",
        build_shutdown_call("ann", "shutdown_request", "now"),
    ]
    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            spawn_member("ann"),
            "wait",
            *asks,
            "asked again",
            get_last_text,
        ],
        ann=["ready", answer("I am not done", approve=False), "go on", answer("", approve=True)],
    )
    answers: list[Any] = []

    def hear(event: Any) -> None:
        if isinstance(event, ToolOutputReturned) and event.data is not None and "request_id" in event.data:
            answers.append(event.data)

    async with open_session(tmp_path, model) as session:
        session.subscribe(hear)
        text = await run_all_turns(session)
        mail = [*read_inbox("crew", "ann"), *read_inbox("crew", "team-lead")]
    bodies = [json.loads(each["text"]) for each in mail if each["text"].startswith("{")]
    for each in bodies:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", each.pop("timestamp"))
    asked = [each for each in bodies if each["type"] == "shutdown_request"]
    first, second = (each["requestId"] for each in asked)
    assert all(re.fullmatch(r"shutdown-\d{13}@ann", each) for each in (first, second))
    ask = {"type": "shutdown_request", "from": "team-lead"}
    assert asked == [
        ask | {"requestId": first, "reason": "we are done"},
        ask | {"requestId": second, "reason": "now"},
    ]
    (refused,) = [each for each in bodies if each["type"] == "shutdown_rejected"]
    no = {"type": "shutdown_rejected", "from": "ann", "reason": "I am not done"}
    assert refused == no | {"requestId": first}
    (agreed,) = [each for each in bodies if each["type"] == "shutdown_approved"]
    yes = {"type": "shutdown_approved", "from": "ann", "paneId": "in-process", "backendType": "in-process"}
    assert agreed == yes | {"requestId": second}
    # What the tool tells programs of the two requests, and of the answer that let ann go on.
    told = "ann was asked to shut down; if it does not answer, it is stopped."
    sent = {"success": True, "message": told, "target": "ann"}
    went_on = {"success": True, "message": "The lead was told that you will continue.", "request_id": first}
    assert answers == [sent | {"request_id": first}, went_on, sent | {"request_id": second}]
    assert "it shut down on request" in text
    assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]


@pytest.mark.spec("USR-08")
async def test_a_rejection_only_delays_a_shutdown_by_the_user_by_the_grace(tmp_path: Path) -> None:
    model = script_team(
        lead=[call_tool("TeamCreate", team_name="crew"), spawn_member("ann"), "wait"],
        ann=["ready", reject_shutdown, "I go on"],
    )
    settings = '{"shoal": {"shutdown_grace": 0.3}}'
    async with open_session(tmp_path, model, settings=settings) as session:
        await run_all_turns(session)
        teams = session.teams
        assert isinstance(teams, SessionTeams)
        async with asyncio.timeout(0.3 + 5):
            assert await teams.shut_down_member("ann", "the user ends it")
        assert teams.list_members() == ()
        assert not await teams.shut_down_member("ann", "the user ends it")
        answers = [each["text"] for each in read_inbox("crew", "team-lead")]
    assert any('"type":"shutdown_rejected"' in each for each in answers)
    assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]


class UnansweringModel(ScriptedModel):
    """Never answers one of the agents; `asked` is set on its request."""

    def __init__(self, model: ScriptedModel, name: str) -> None:
        super().__init__(lambda _: "")
        self._model = model
        self._name = name
        self.asked = asyncio.Event()

    async def generate_reply(self, request: ModelRequest, on_delta: Any = None) -> ModelReply:
        if find_speaker(request) == self._name:
            self.asked.set()
            await asyncio.Event().wait()
        return await self._model.generate_reply(request, on_delta)


@pytest.mark.spec("USR-08", "LIF-03", "TEAM-07")
@pytest.mark.parametrize("state", ["silent", "in a tool", "the model hangs"])
async def test_a_member_that_does_not_answer_is_ended_after_the_grace(tmp_path: Path, state: str) -> None:
    gate = ToolGate()
    ask = [call_tool("TeamDelete"), call_tool("SendMessage", to="ann", message=ASK)]
    begin = [call_tool("TeamCreate", team_name="crew"), spawn_member("ann")]
    model: ScriptedModel = script_team(
        lead=[*begin, "wait", call_tool("SendMessage", to="ann", message=ASK), "asked", get_last_text]
        if state == "silent"
        else [*begin, call_tool("Until"), ask, get_last_result, get_last_text],
        ann=["ready", "I do not answer"] if state == "silent" else [call_tool("Gate"), "never"],
    )
    if state == "the model hangs":
        model = UnansweringModel(model, "ann")
        gate.is_reached = model.asked
    settings = '{"shoal": {"shutdown_grace": 0.2}}'
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool], settings=settings) as session:
        text = await run_all_turns(session)
        everything = "\n".join(message.text for message in session.agent.conversation.messages)
        refused = [
            extract_tool_result_text(each) for each in find_tool_results(session.agent.conversation.messages)
        ]
        left = [each["name"] for each in read_team_config("crew")["members"]]
    assert "teammate_terminated: task ann@crew, type general-purpose, status killed" in everything, text
    assert "did not answer the request to shut down within 0.2 s" in everything
    assert left == ["team-lead"]
    if state != "silent":
        assert any("still has active members: ann" in each for each in refused)
    (ended,) = [event for event in read_events(session) if isinstance(event, AgentEnded)]
    assert ended.completion.status == "killed"


@pytest.mark.spec("LIF-05")
async def test_members_end_with_the_session_and_are_idle_in_the_roster(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            [spawn_member("ann"), spawn_member("bob")],
            call_tool("Until"),
            "bye",
        ],
        ann=[call_tool("Gate"), "never"],
        bob=["ready"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool]) as session:
        await collect_events(session.run("go"))
        assert next(e for e in read_team_config("crew")["members"] if e["name"] == "ann")["isActive"] is True
    assert [(e["name"], e.get("isActive")) for e in read_team_config("crew")["members"]] == [
        ("team-lead", None),
        ("ann", False),
        ("bob", False),
    ]
    ended = {
        e.completion.name: e.completion.status for e in read_events(session) if isinstance(e, AgentEnded)
    }
    assert ended == {"ann": "killed", "bob": "killed"}


@pytest.mark.spec("USR-22")
async def test_members_at_work_are_interrupted_and_listed_at_the_deadline(tmp_path: Path) -> None:
    clock, gate = FakeClock(), ToolGate()
    model = script_team(
        lead=[call_tool("TeamCreate", team_name="crew"), spawn_member("ann"), call_tool("Until"), "bye"],
        ann=[call_tool("Gate"), "never"],
    )
    tools = [gate.tool, gate.wait_tool]
    async with open_session(tmp_path, model, tools=tools, clock=clock, deadline=60) as session:
        await collect_events(session.run("go"))
        waiting = asyncio.create_task(session.next_turn())
        await clock.wait_for_sleepers()
        await clock.advance(61)
        assert await waiting is None
        assert [each.name for each in session.interrupted_agents] == ["ann"]


@pytest.mark.spec("LIF-03")
async def test_a_member_can_end_while_its_shutdown_request_is_sent(tmp_path: Path) -> None:
    model = script_team(
        lead=[call_tool("TeamCreate", team_name="crew"), spawn_member("ann"), "wait", "end"], ann=["ready"]
    )
    async with open_session(tmp_path, model) as session, asyncio.timeout(20):
        await run_all_turns(session)
        teams = session.teams
        # Another program writes to its inbox just now, so that the request has to wait.
        lock = get_home() / "teams" / "crew" / "inboxes" / "ann.json.lock"
        lock.mkdir()
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(teams.shut_down_member("ann", "done"))
            await asyncio.sleep(0)
            assert await teams.end_member("ann", "the user wants it so")
            lock.rmdir()
        assert asking.result()
        assert teams.list_members() == ()


@pytest.mark.spec("USR-08", "TSK-09")
async def test_tasks_of_an_ended_member_are_released(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            call_tool("TaskCreate", subject="saw", description="d"),
            spawn_member("ann"),
            call_tool("Until"),
            call_tool("TaskStop", task_id="ann"),
            "end",
        ],
        ann=[call_tool("TaskUpdate", taskId="1", status="in_progress"), call_tool("Gate"), "never"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool]) as session:
        await run_all_turns(session)
        task = json.loads((get_home() / "tasks" / "crew" / "1.json").read_text())
    assert (task["status"], task.get("owner") or None) == ("pending", None)
