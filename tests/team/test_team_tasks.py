"""Assignment, claims and order of the tasks of a team."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from team_helpers import complete_announced_task, read_task

from agent_scripts import ToolGate, call_tool, read_events, run_all_turns
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import AgentStarted, MemberWoken, ToolFinished, ToolOutputReturned
from team_scripts import (
    get_home,
    get_last_text,
    open_session,
    read_inbox,
    read_team_config,
    script_team,
    spawn_member,
)

CREATE = call_tool("TeamCreate", "create", team_name="crew", description="builds", agent_type="architect")


@pytest.mark.spec("TSK-08", "MSG-01", "BOX-03")
async def test_a_member_is_notified_of_an_assigned_task(tmp_path: Path) -> None:
    gate = ToolGate()
    heard: list[str] = []

    def ann(request: ModelRequest) -> Any:
        heard.append(get_last_text(request))
        return call_tool("TaskUpdate", taskId="1", status="completed")

    model = script_team(
        lead=[
            CREATE,
            spawn_member("ann"),
            call_tool("Until"),
            call_tool("TaskCreate", subject="paint it", description="all of it"),
            call_tool("TaskUpdate", taskId="1", owner="ann"),
            call_tool("Open"),
            "given",
            get_last_text,
        ],
        ann=[call_tool("Gate"), ann, "painted"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool, gate.open_tool]) as session:
        await run_all_turns(session)
        _, envelope = read_inbox("crew", "ann")
        done = read_task(1)
    assert envelope["from"] == "team-lead"
    assert "summary" not in envelope
    assert "color" not in envelope
    assert json.loads(envelope["text"]) == {
        "type": "task_assignment",
        "taskId": "1",
        "subject": "paint it",
        "description": "all of it",
        "assignedBy": "team-lead",
        "timestamp": envelope["timestamp"],
    }
    assert "Task #1 is yours now: paint it\n\nall of it" in heard[0]
    assert (done["status"], done["owner"]) == ("completed", "ann")


@pytest.mark.spec("TSK-06", "TSK-07", "TSK-04")
async def test_completing_a_task_unblocks_the_next_and_wakes_an_idle_member(tmp_path: Path) -> None:
    order: list[str] = []

    def work(request: ModelRequest) -> Any:
        line = complete_announced_task(request)
        if not isinstance(line, str):
            order.append(line.input["taskId"])
        return line

    tasks = [call_tool("TaskCreate", f"t{n}", subject=f"step {n}", description="d") for n in range(1, 7)]
    chain = [call_tool("TaskUpdate", f"u{n}", taskId=str(n), addBlockedBy=[str(n + 1)]) for n in range(1, 6)]
    model = script_team(
        lead=[
            CREATE,
            tasks,
            chain,
            [spawn_member("ann"), spawn_member("bob"), spawn_member("cyd")],
            "wait",
            get_last_text,
        ],
        ann=[work],
        bob=[work],
        cyd=[work],
    )
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
        states = [read_task(n)["status"] for n in range(1, 7)]
    assert order == ["6", "5", "4", "3", "2", "1"]
    assert states == ["completed"] * 6
    woken = sum(isinstance(event, MemberWoken) for event in read_events(session))
    assert woken <= 3 + 6, "each prompt and each task wakes one"


@pytest.mark.spec("TEAM-01", "TEAM-02", "TEAM-04", "TEAM-08", "TEAM-09", "AGT-09", "AGT-12")
async def test_tool_results_describe_the_team_as_it_is_stored(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_team(
        lead=[
            CREATE,
            [spawn_member("ann", "Paint."), spawn_member("ann", "Build.", mode="acceptEdits")],
            call_tool("Until"),
            "end",
        ],
        **{name: [call_tool("Gate"), "end"] for name in ("ann", "ann-2")},
    )
    returned: dict[str, Any] = {}
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool]) as session:

        def note(event: Any) -> None:
            if isinstance(event, ToolOutputReturned):
                returned.setdefault(event.call, event.data)

        session.subscribe(note)
        async for _ in session.run("Begin."):
            pass
        found = read_team_config("crew")
        lock = (get_home() / "tasks" / "crew" / ".lock").stat().st_size
        gate.is_open.set()
    made = returned["create"]["config"]
    assert {key: made[key] for key in ("name", "description", "leadAgentId", "leadSessionId")} == {
        "name": "crew",
        "description": "builds",
        "leadAgentId": "team-lead@crew",
        "leadSessionId": session.id,
    }
    lead = found["members"][0]
    assert lead == made["members"][0]
    assert (lead["name"], lead["agentType"]) == ("team-lead", "architect")
    assert (lead["model"], lead["cwd"]) == ("scripted", str(tmp_path))
    one, two = found["members"][1:]
    assert [each["name"] for each in (one, two)] == ["ann", "ann-2"]
    assert [each["color"] for each in (one, two)] == ["blue", "green"]
    assert (one["tmuxPaneId"], one["backendType"], one["subscriptions"]) == ("in-process", "in-process", [])
    assert "mode" not in two
    assert "permissionMode" not in two
    assert lock == 0
    spawned = returned["spawn-ann"]
    assert spawned["status"] == "teammate_spawned"
    assert spawned["team_name"] == "crew"
    assert spawned["teammate_id"] == f"{spawned['name']}@crew"


@pytest.mark.spec("AGT-11", "AGT-07", "AGT-01")
@pytest.mark.parametrize(
    ("lead", "wish", "mode"),
    [
        ("acceptEdits", None, "acceptEdits"),
        ("acceptEdits", "delegate", "acceptEdits"),
        ("default", "acceptEdits", "default"),
        ("default", "bypassPermissions", "default"),
        ("acceptEdits", "plan", "plan"),
    ],
)
async def test_a_member_gets_the_requested_mode_but_never_a_wider_one_than_its_lead(
    tmp_path: Path, lead: Any, wish: str | None, mode: str
) -> None:
    more = {} if wish is None else {"mode": wish}
    model = script_team(lead=[CREATE, spawn_member("ann", **more), "wait", "end"], ann=["ready"])
    async with open_session(tmp_path, model, skip_permissions=False, mode=lead) as session:
        await run_all_turns(session)
    (started,) = [event for event in read_events(session) if isinstance(event, AgentStarted)]
    assert started.mode == mode


@pytest.mark.spec("CTL-06", "USR-08", "LIF-01")
async def test_the_lead_ends_a_member_at_once_with_task_stop(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_team(
        lead=[
            CREATE,
            spawn_member("ann"),
            call_tool("Until"),
            call_tool("TaskStop", task_id="ann"),
            "stopped",
            get_last_text,
        ],
        ann=[call_tool("Gate"), "never"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool]) as session:
        text = await run_all_turns(session)
        told = "\n".join(m.text for m in session.agent.conversation.messages)
        names = [each["name"] for each in read_team_config("crew")["members"]]
    assert "teammate_terminated: task ann@crew, type general-purpose, status killed" in told, text
    assert names == ["team-lead"]


@pytest.mark.spec("USR-25")
async def test_a_task_completed_by_another_member_cannot_be_completed_again(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_team(
        lead=[
            CREATE,
            call_tool("TaskCreate", subject="paint it", description="all of it"),
            spawn_member("ann"),
            call_tool("Until"),
            spawn_member("bob"),
            "wait",
            "good",
        ],
        ann=[
            call_tool("TaskUpdate", taskId="1", status="in_progress"),
            call_tool("TaskUpdate", "a", taskId="1", status="completed"),
            call_tool("Gate"),
            "painted",
        ],
        bob=[call_tool("TaskUpdate", "b", taskId="1", status="completed"), call_tool("Open"), "so be it"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool, gate.open_tool]) as session:
        await run_all_turns(session)
        answers = {e.call: e for e in read_events(session) if isinstance(e, ToolFinished)}
        assert read_task(1)["owner"] == "ann"
    assert not answers["a"].is_error
    assert answers["b"].is_error
    assert "already completed by ann" in answers["b"].preview
