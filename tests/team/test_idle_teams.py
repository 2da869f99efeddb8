"""Events that wake a lead, and its notification when the team is idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from team_helpers import read_task

from agent_scripts import ToolGate, call_tool, read_events, run_all_turns
from shoal.core.conversation.inbox_items import can_join_item_id, join_item_ids, split_item_ids
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import BadRequest
from shoal.core.events import MemberWentIdle, TurnStarted
from shoal.core.names import LEAD_NAME
from team_scripts import (
    find_speaker,
    find_tool_results,
    get_last_text,
    open_session,
    read_inbox,
    read_team_config,
    script_team,
    send_message,
    spawn_member,
)

NAMES = [f"m{n}" for n in range(8)]


def join_texts(request: ModelRequest) -> str:
    return "\n".join(message.text for message in request.messages)


def count_turns(session: Any) -> int:
    return sum(isinstance(event, TurnStarted) for event in read_events(session))


@pytest.mark.spec("USR-17", "USR-22", "LIF-02", "MSG-02", "TSK-07", "AGT-09")
async def test_eight_members_with_three_working_periods_each_cost_the_lead_one_turn(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    tasks = [call_tool("TaskCreate", f"t{n}", subject=f"task {n}", description="d") for n in range(16)]

    def work(request: ModelRequest) -> ToolUseBlock | str:
        if find_tool_results(request.messages[-1:]):
            return f"done by {find_speaker(request)}"
        number = get_last_text(request).partition("Task #")[2].partition(" ")[0]
        return call_tool("TaskUpdate", taskId=number, status="completed") if number else "ready"

    spawns = [spawn_member(name) for name in NAMES]
    model = script_team(
        lead=[call_tool("TeamCreate", team_name="crew"), tasks, spawns, "wait", get_last_text],
        **{name: [work] for name in NAMES},
    )
    async with open_session(tmp_path, model) as session:
        told = await run_all_turns(session)
    rested = [event.agent for event in read_events(session) if isinstance(event, MemberWentIdle)]
    assert len(rested) == 8 * 3
    assert count_turns(session) - 1 <= 3
    turns = count_turns(session) - 1
    record_property("measured", f"{len(rested)} working periods of 8 members, {turns} turns of the lead")
    # Every working period is told once, and none of the last words is lost.
    assert told.count("is idle (available).") == len(rested)
    assert told.count("sent no report") == len(rested)
    assert told.count("is completed.") == 16


@pytest.mark.needs("postgres", "asyncpg")
async def test_many_idle_notices_are_one_message_and_each_is_read_once(tmp_path: Path, database: str) -> None:
    # In a database, because an inbox file has at most 64 unread messages.
    count = 120
    tasks = [call_tool("TaskCreate", f"t{n}", subject=f"task {n}", description="d") for n in range(count)]

    def work(request: ModelRequest) -> ToolUseBlock | str:
        if find_tool_results(request.messages[-1:]):
            return f"done by {find_speaker(request)}"
        number = get_last_text(request).partition("Task #")[2].partition(" ")[0]
        return call_tool("TaskUpdate", taskId=number, status="completed") if number else "ready"

    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            tasks,
            [spawn_member(name) for name in NAMES],
            "wait",
            get_last_text,
        ],
        **{name: [work] for name in NAMES},
    )
    async with open_session(tmp_path, model, store=database) as session:
        await run_all_turns(session)
        mailboxes = session.runtime.team_store.open_mailboxes("crew")
        # Mail is marked as read after it is in the transcript, while the turn goes on.
        async with asyncio.timeout(60):
            while await mailboxes.take_unread(LEAD_NAME):
                pass
        answers = [each.text for each in session.agent.conversation.messages if each.role == "assistant"]
        rested = sum(isinstance(event, MemberWentIdle) for event in read_events(session))
        assert rested == count + len(NAMES)
        (told,) = (answer for answer in answers if "idle notices arrived together" in answer)
        assert told.count("is idle (available).") > 100
        assert "The whole text is in" not in told
        assert sum(answer.count("is idle (available).") for answer in answers) == rested
        session_id = session.id
    # Each of them counts as delivered, although they are one entry of the transcript.
    async with open_session(tmp_path, model, store=database, resume=session_id) as session:
        users = [each.text for each in session.agent.conversation.messages if each.role == "user"]
        assert sum(text.count("is idle (available).") for text in users) == rested


def test_ids_of_joined_items_are_taken_apart_and_others_are_not() -> None:
    ids = [f"rest-{number}" for number in range(3)]
    assert all(map(can_join_item_id, ids))
    assert list(split_item_ids(join_item_ids(ids))) == ids
    for other in ("rest-1", "mail\nrest-1", "rest-1\nmail", "", "a\nb"):
        assert list(split_item_ids(other)) == [other]
        assert not can_join_item_id(other) or other == "rest-1"


@pytest.mark.spec("USR-17")
async def test_a_report_wakes_the_lead_and_idle_notifications_do_not(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            [spawn_member("ann"), spawn_member("bob"), spawn_member("cyd")],
            "wait",
            lambda r: [f"first: {get_last_text(r)}", call_tool("Open")],
            "opened",
            lambda r: f"second: {get_last_text(r)}",
        ],
        ann=["ann has nothing to say"],
        bob=[call_tool("Until"), send_message("team-lead", "found it", "a find"), "bob ends"],
        cyd=[call_tool("Gate"), "cyd ends"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool, gate.open_tool]) as session:
        second = await run_all_turns(session)
        first = next(m.text for m in session.agent.conversation.messages if m.text.startswith("first: "))
    # What ann had to say came with bob's report; that cyd rests is told when the team has gone quiet.
    assert "found it" in first
    assert "cyd" not in first
    assert "cyd is idle" in second
    everything = first + second
    assert [everything.count(f"{name} is idle") for name in ("ann", "bob", "cyd")] == [1, 1, 1]
    assert "ann has nothing to say" in everything
    assert "bob ends" not in everything, "who reported is not quoted as well"
    assert count_turns(session) == 3


@pytest.mark.spec("LIF-06", "MSG-02")
async def test_a_failed_member_gives_the_reason_releases_its_task_and_can_be_woken(tmp_path: Path) -> None:
    broken, free = True, list[str]()

    def work(request: ModelRequest) -> str:
        if broken:
            raise BadRequest("the provider says no")
        return join_texts(request)

    def repair_and_retry(request: ModelRequest) -> Any:
        nonlocal broken
        broken = False
        free.append(read_task(1)["status"])
        return [get_last_text(request), send_message("ann", "again, please", "again")]

    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            call_tool("TaskCreate", subject="s", description="d"),
            spawn_member("ann"),
            "wait",
            repair_and_retry,
            "sent",
            get_last_text,
        ],
        ann=[call_tool("TaskUpdate", taskId="1", status="in_progress"), work],
    )
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
        said = "\n".join(message.text for message in session.agent.conversation.messages)
        mail = [each["text"] for each in read_inbox("crew", "team-lead")]
    assert "ann is idle (failed).\nIt failed: the provider says no" in said
    assert '"idleReason":"failed"' in mail[0]
    assert '"failureReason":"the provider says no"' in mail[0]
    assert free == ["pending"]
    assert "Your turn failed, so your tasks were released: #1." in said
    assert "again, please" in said


@pytest.mark.spec("LIF-06", "TRN-02")
async def test_a_member_that_failed_is_told_after_a_resume_that_it_has_no_task(tmp_path: Path) -> None:
    broken, heard = True, list[str]()

    def work(request: ModelRequest) -> str:
        if broken:
            raise BadRequest("the provider says no")
        heard.append(join_texts(request))
        return "I look at the board."

    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            call_tool("TaskCreate", subject="s", description="d"),
            spawn_member("ann"),
            "wait",
        ],
        ann=["Ready.", work],
    )
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
        ident = session.agent.identity.session
    assert read_task(1)["status"] == "pending"
    broken = False
    async with open_session(tmp_path, model, resume=ident) as session:
        await run_all_turns(session, "Go on.")
    assert "Task #1 is yours now" in heard[0]
    assert "No task in progress is yours: if you had one, it was released" in heard[0]


@pytest.mark.spec("LIF-06", "USR-17")
async def test_a_failed_member_wakes_the_lead_while_others_work(tmp_path: Path) -> None:
    """Bob works until the lead opens his gate, and only the failure of ann gives the lead a turn."""
    gate = ToolGate()

    def fail(request: ModelRequest) -> str:
        raise BadRequest("the provider says no")

    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            [spawn_member("ann"), spawn_member("bob")],
            "wait",
            lambda request: [get_last_text(request), call_tool("Open")],
            "opened",
            "end",
        ],
        ann=[call_tool("Until"), fail],
        bob=[call_tool("Gate"), "bob ends"],
    )
    tools = [gate.tool, gate.wait_tool, gate.open_tool]
    async with asyncio.timeout(60), open_session(tmp_path, model, tools=tools) as session:
        await run_all_turns(session)
        said = "\n".join(message.text for message in session.agent.conversation.messages)
    assert "It failed: the provider says no" in said


@pytest.mark.spec("LIF-04", "LIF-06", "TSK-09")
async def test_a_member_that_crashes_ends_alone_and_its_tasks_are_released(tmp_path: Path) -> None:
    def crash(request: ModelRequest) -> str:
        raise RuntimeError("a bug")

    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            call_tool("TaskCreate", subject="s", description="d"),
            spawn_member("ann"),
            "wait",
            get_last_text,
        ],
        ann=[call_tool("TaskUpdate", taskId="1", status="in_progress"), crash],
    )
    async with open_session(tmp_path, model) as session:
        text = await run_all_turns(session)
        task = read_task(1)
        names = [each["name"] for each in read_team_config("crew")["members"]]
    assert "teammate_terminated: task ann@crew, type general-purpose, status failed" in text
    assert "a bug" in text
    assert names == ["team-lead"]
    assert (task["status"], task.get("owner")) == ("pending", None)


@pytest.mark.spec("USR-10")
async def test_the_last_text_of_a_member_without_report_is_excerpted(tmp_path: Path) -> None:
    whole = "".join(f"line {n} of what was found\n" for n in range(4_000))
    model = script_team(
        lead=[call_tool("TeamCreate", team_name="crew"), spawn_member("ann"), "wait", get_last_text],
        ann=[whole],
    )
    async with open_session(tmp_path, model) as session:
        told = await run_all_turns(session)
    assert whole[:500] in told
    assert len(told) <= 4_000
    path = told.partition("[The whole text is in ")[2].partition("]")[0]
    assert Path(path).read_text() == whole
