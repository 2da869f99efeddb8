"""Ending teammates: by their leave, and without it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from cast import Gate, all_turns, recorded, use
from shoal.core.events import AgentEnded, ToolReturned
from shoal.core.messages import result_text
from shoal.core.requests import Reply, Request
from shoal.models.scripted import ScriptedModel
from shoal.team.teams import SessionTeams
from shoal.testing import FakeClock
from troupe import (
    config,
    home,
    inbox,
    last_result,
    last_words,
    member,
    opened,
    request_id,
    results,
    speaker,
    troupe,
)

ASK = {"type": "shutdown_request", "reason": "we are done"}


async def drained(turn: Any) -> list[Any]:
    return [event async for event in turn]


def refuse(request: Request) -> Any:
    answer = {
        "type": "shutdown_response",
        "request_id": request_id(request),
        "approve": False,
        "reason": "I am not done",
    }
    return use("SendMessage", to="team-lead", message=answer)


@pytest.mark.spec("LIF-03", "MSG-03", "MSG-04", "SND-02", "SND-04")
async def test_a_member_may_refuse_once_with_its_reason(tmp_path: Path) -> None:
    seen: list[str] = []

    def told(request: Request) -> Any:
        seen.append(last_words(request))
        return use("SendMessage", type="shutdown_request", recipient="ann", content="really")

    def second(request: Request) -> str:
        seen.append(last_result(request))
        return "I give in"

    model = troupe(
        lead=[
            use("TeamCreate", team_name="crew"),
            member("ann"),
            "wait",
            use("SendMessage", to="ann", message=ASK),
            "asked",
            told,
            "asked again",
            last_words,
        ],
        ann=["ready", refuse, "go on", refuse, second],
    )
    settings = '{"shoal": {"shutdown_grace": 0.3}}'
    async with opened(tmp_path, model, settings=settings) as session:
        text = await all_turns(session)
        bodies = [each["text"] for each in inbox("crew", "ann")]
        answers = [each["text"] for each in inbox("crew", "team-lead")]
    assert "ann does not shut down: I am not done." in seen[0]
    assert '"requestId":"shutdown-' in bodies[1]
    assert '@ann","from":"team-lead","reason":"we are done"' in bodies[1]
    assert any('"type":"shutdown_rejected"' in each for each in answers)
    # The second time its word does not count, and the grace does.
    assert "asks for the second time" in seen[1]
    assert "did not answer the request to shut down within 0.3 s" in text
    assert [each["name"] for each in config("crew")["members"]] == ["team-lead"]


@pytest.mark.spec("SND-01", "SND-02", "SND-04", "LIF-03", "MSG-03", "MSG-04")
@pytest.mark.parametrize("form", ["newer", "older"])
async def test_a_shutdown_is_asked_for_refused_and_agreed_to_in_either_form_of_the_tool(
    tmp_path: Path, form: str
) -> None:
    def said(to: str, kind: str, words: str, **more: Any) -> Any:
        if form == "older":
            return use("SendMessage", type=kind, recipient=to, content=words, **more)
        return use("SendMessage", to=to, message={"type": kind, "reason": words, **more})

    def answer(words: str, *, approve: bool) -> Any:
        return lambda request: said(
            "team-lead", "shutdown_response", words, request_id=request_id(request), approve=approve
        )

    asks = [said("ann", "shutdown_request", "we are done"), "asked", said("ann", "shutdown_request", "now")]
    model = troupe(
        lead=[use("TeamCreate", team_name="crew"), member("ann"), "wait", *asks, "asked again", last_words],
        ann=["ready", answer("I am not done", approve=False), "go on", answer("", approve=True)],
    )
    answers: list[Any] = []

    def hear(event: Any) -> None:
        if isinstance(event, ToolReturned) and event.data is not None and "request_id" in event.data:
            answers.append(event.data)

    async with opened(tmp_path, model) as session:
        session.watch(hear)
        text = await all_turns(session)
        mail = [*inbox("crew", "ann"), *inbox("crew", "team-lead")]
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
    told = "ann is asked to shut down; it is ended if it does not answer."
    sent = {"success": True, "message": told, "target": "ann"}
    went_on = {"success": True, "message": "The lead is told that you go on.", "request_id": first}
    assert answers == [sent | {"request_id": first}, went_on, sent | {"request_id": second}]
    assert "it shut down as it was asked to" in text
    assert [each["name"] for each in config("crew")["members"]] == ["team-lead"]


@pytest.mark.spec("USR-08")
async def test_when_a_person_ends_a_member_its_refusal_only_takes_the_grace(tmp_path: Path) -> None:
    model = troupe(
        lead=[use("TeamCreate", team_name="crew"), member("ann"), "wait"], ann=["ready", refuse, "I go on"]
    )
    settings = '{"shoal": {"shutdown_grace": 0.3}}'
    async with opened(tmp_path, model, settings=settings) as session:
        await all_turns(session)
        teams = session.parts.teams
        assert isinstance(teams, SessionTeams)
        async with asyncio.timeout(0.3 + 5):
            assert await teams.shut_down("ann", "the person ends it")
        assert teams.members() == ()
        assert not await teams.shut_down("ann", "the person ends it")
        answers = [each["text"] for each in inbox("crew", "team-lead")]
    assert any('"type":"shutdown_rejected"' in each for each in answers)
    assert [each["name"] for each in config("crew")["members"]] == ["team-lead"]


class Hanging(ScriptedModel):
    """Never answers one of the agents, and tells that it was asked."""

    def __init__(self, model: ScriptedModel, name: str) -> None:
        super().__init__(lambda _: "")
        self._model = model
        self._name = name
        self.asked = asyncio.Event()

    async def reply(self, request: Request, hear: Any = None) -> Reply:
        if speaker(request) == self._name:
            self.asked.set()
            await asyncio.Event().wait()
        return await self._model.reply(request, hear)


@pytest.mark.spec("USR-08", "LIF-03", "TEAM-07")
@pytest.mark.parametrize("state", ["silent", "in a tool", "the model hangs"])
async def test_one_that_does_not_answer_is_ended_after_the_grace(tmp_path: Path, state: str) -> None:
    gate = Gate()
    ask = [use("TeamDelete"), use("SendMessage", to="ann", message=ASK)]
    begin = [use("TeamCreate", team_name="crew"), member("ann")]
    model: ScriptedModel = troupe(
        lead=[*begin, "wait", use("SendMessage", to="ann", message=ASK), "asked", last_words]
        if state == "silent"
        else [*begin, use("Until"), ask, last_result, last_words],
        ann=["ready", "I do not answer"] if state == "silent" else [use("Gate"), "never"],
    )
    if state == "the model hangs":
        model = Hanging(model, "ann")
        gate.reached = model.asked
    settings = '{"shoal": {"shutdown_grace": 0.2}}'
    async with opened(tmp_path, model, tools=[gate.tool, gate.until], settings=settings) as session:
        text = await all_turns(session)
        everything = "\n".join(message.text for message in session.agent.conversation.messages)
        refused = [result_text(each) for each in results(session.agent.conversation.messages)]
        left = [each["name"] for each in config("crew")["members"]]
    assert "teammate_terminated: task ann@crew, type general-purpose, status killed" in everything, text
    assert "did not answer the request to shut down within 0.2 s" in everything
    assert left == ["team-lead"]
    if state != "silent":
        assert any("still has active members: ann" in each for each in refused)
    (ended,) = [event for event in recorded(session) if isinstance(event, AgentEnded)]
    assert ended.completion.status == "killed"


@pytest.mark.spec("LIF-05")
async def test_members_end_with_the_session_and_are_idle_in_the_roster(tmp_path: Path) -> None:
    gate = Gate()
    model = troupe(
        lead=[use("TeamCreate", team_name="crew"), [member("ann"), member("bob")], use("Until"), "bye"],
        ann=[use("Gate"), "never"],
        bob=["ready"],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until]) as session:
        await drained(session.run("go"))
        assert next(e for e in config("crew")["members"] if e["name"] == "ann")["isActive"] is True
    assert [(e["name"], e.get("isActive")) for e in config("crew")["members"]] == [
        ("team-lead", None),
        ("ann", False),
        ("bob", False),
    ]
    ended = {e.completion.name: e.completion.status for e in recorded(session) if isinstance(e, AgentEnded)}
    assert ended == {"ann": "killed", "bob": "killed"}


@pytest.mark.spec("USR-22")
async def test_at_the_deadline_members_at_work_are_cut_short_and_listed(tmp_path: Path) -> None:
    clock, gate = FakeClock(), Gate()
    model = troupe(
        lead=[use("TeamCreate", team_name="crew"), member("ann"), use("Until"), "bye"],
        ann=[use("Gate"), "never"],
    )
    tools = [gate.tool, gate.until]
    async with opened(tmp_path, model, tools=tools, clock=clock, deadline=60) as session:
        await drained(session.run("go"))
        waiting = asyncio.create_task(session.next_turn())
        await clock.asleep()
        await clock.advance(61)
        assert await waiting is None
        assert [each.name for each in session.cut_short] == ["ann"]


@pytest.mark.spec("LIF-03")
async def test_one_that_ends_while_it_is_being_asked_to_is_gone_and_nothing_else(tmp_path: Path) -> None:
    model = troupe(lead=[use("TeamCreate", team_name="crew"), member("ann"), "wait", "end"], ann=["ready"])
    async with opened(tmp_path, model) as session, asyncio.timeout(20):
        await all_turns(session)
        teams = session.parts.teams
        # Another program writes to its inbox just now, so that the request has to wait.
        lock = home() / "teams" / "crew" / "inboxes" / "ann.json.lock"
        lock.mkdir()
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(teams.shut_down("ann", "done"))
            await asyncio.sleep(0)
            assert await teams.end("ann", "the person wants it so")
            lock.rmdir()
        assert asking.result()
        assert teams.members() == ()


@pytest.mark.spec("USR-08", "TSK-09")
async def test_what_a_member_had_claimed_is_free_when_it_was_ended(tmp_path: Path) -> None:
    gate = Gate()
    model = troupe(
        lead=[
            use("TeamCreate", team_name="crew"),
            use("TaskCreate", subject="saw", description="d"),
            member("ann"),
            use("Until"),
            use("TaskStop", task_id="ann"),
            "end",
        ],
        ann=[use("TaskUpdate", taskId="1", status="in_progress"), use("Gate"), "never"],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until]) as session:
        await all_turns(session)
        task = json.loads((home() / "tasks" / "crew" / "1.json").read_text())
    assert (task["status"], task.get("owner") or None) == ("pending", None)
