"""Members and the board: who is given a task, who takes one, and in which order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cast import Gate, all_turns, recorded, use
from shoal.core.events import AgentStarted, MemberWoken, ToolFinished, ToolReturned
from shoal.core.requests import Request
from troupe import config, home, inbox, last_words, member, opened, results, speaker, troupe

CREATE = use("TeamCreate", "create", team_name="crew", description="builds", agent_type="architect")


def completes(request: Request) -> Any:
    """Complete the task it is told of; end where it is told of none."""
    if results(request.messages[-1:]):
        return f"{speaker(request)} has done it"
    number = last_words(request).partition("Task #")[2].partition(" ")[0]
    return use("TaskUpdate", taskId=number, status="completed") if number else "ready"


def task(number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home() / "tasks" / "crew" / f"{number}.json").read_text())
    return found


@pytest.mark.spec("TSK-08", "MSG-01", "BOX-03")
async def test_a_member_hears_that_a_task_was_given_to_it(tmp_path: Path) -> None:
    gate = Gate()
    heard: list[str] = []

    def ann(request: Request) -> Any:
        heard.append(last_words(request))
        return use("TaskUpdate", taskId="1", status="completed")

    model = troupe(
        lead=[
            CREATE,
            member("ann"),
            use("Until"),
            use("TaskCreate", subject="paint it", description="all of it"),
            use("TaskUpdate", taskId="1", owner="ann"),
            use("Open"),
            "given",
            last_words,
        ],
        ann=[use("Gate"), ann, "painted"],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until, gate.open]) as session:
        await all_turns(session)
        _, envelope = inbox("crew", "ann")
        done = task(1)
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
async def test_a_completed_task_frees_the_next_and_wakes_an_idle_member(tmp_path: Path) -> None:
    order: list[str] = []

    def work(request: Request) -> Any:
        line = completes(request)
        if not isinstance(line, str):
            order.append(line.input["taskId"])
        return line

    tasks = [use("TaskCreate", f"t{n}", subject=f"step {n}", description="d") for n in range(1, 7)]
    chain = [use("TaskUpdate", f"u{n}", taskId=str(n), addBlockedBy=[str(n + 1)]) for n in range(1, 6)]
    model = troupe(
        lead=[CREATE, tasks, chain, [member("ann"), member("bob"), member("cyd")], "wait", last_words],
        ann=[work],
        bob=[work],
        cyd=[work],
    )
    async with opened(tmp_path, model) as session:
        await all_turns(session)
        states = [task(n)["status"] for n in range(1, 7)]
    assert order == ["6", "5", "4", "3", "2", "1"]
    assert states == ["completed"] * 6
    woken = sum(isinstance(event, MemberWoken) for event in recorded(session))
    assert woken <= 3 + 6, "each prompt and each task wakes one"


@pytest.mark.spec("TEAM-01", "TEAM-02", "TEAM-04", "TEAM-08", "TEAM-09", "AGT-09", "AGT-12")
async def test_what_is_made_is_told_to_programs_as_it_stands_in_the_files(tmp_path: Path) -> None:
    gate = Gate()
    model = troupe(
        lead=[
            CREATE,
            [member("ann", "Paint."), member("ann", "Build.", mode="acceptEdits")],
            use("Until"),
            "end",
        ],
        **{name: [use("Gate"), "end"] for name in ("ann", "ann-2")},
    )
    returned: dict[str, Any] = {}
    async with opened(tmp_path, model, tools=[gate.tool, gate.until]) as session:

        def note(event: Any) -> None:
            if isinstance(event, ToolReturned):
                returned.setdefault(event.call, event.data)

        session.watch(note)
        async for _ in session.run("Begin."):
            pass
        found = config("crew")
        lock = (home() / "tasks" / "crew" / ".lock").stat().st_size
        gate.opened.set()
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
async def test_a_member_s_mode_is_what_the_call_says_and_never_wider_than_the_lead_s(
    tmp_path: Path, lead: Any, wish: str | None, mode: str
) -> None:
    more = {} if wish is None else {"mode": wish}
    model = troupe(lead=[CREATE, member("ann", **more), "wait", "end"], ann=["ready"])
    async with opened(tmp_path, model, skip_permissions=False, mode=lead) as session:
        await all_turns(session)
    (started,) = [event for event in recorded(session) if isinstance(event, AgentStarted)]
    assert started.mode == mode


@pytest.mark.spec("CTL-06", "USR-08", "LIF-01")
async def test_the_lead_ends_a_member_at_once_with_task_stop(tmp_path: Path) -> None:
    gate = Gate()
    model = troupe(
        lead=[CREATE, member("ann"), use("Until"), use("TaskStop", task_id="ann"), "stopped", last_words],
        ann=[use("Gate"), "never"],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until]) as session:
        text = await all_turns(session)
        told = "\n".join(m.text for m in session.agent.conversation.messages)
        names = [each["name"] for each in config("crew")["members"]]
    assert "teammate_terminated: task ann@crew, type general-purpose, status killed" in told, text
    assert names == ["team-lead"]


@pytest.mark.spec("USR-25")
async def test_what_another_has_completed_is_not_completed_a_second_time(tmp_path: Path) -> None:
    gate = Gate()
    model = troupe(
        lead=[
            CREATE,
            use("TaskCreate", subject="paint it", description="all of it"),
            member("ann"),
            use("Until"),
            member("bob"),
            "wait",
            "good",
        ],
        ann=[
            use("TaskUpdate", taskId="1", status="in_progress"),
            use("TaskUpdate", "a", taskId="1", status="completed"),
            use("Gate"),
            "painted",
        ],
        bob=[use("TaskUpdate", "b", taskId="1", status="completed"), use("Open"), "so be it"],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until, gate.open]) as session:
        await all_turns(session)
        answers = {e.call: e for e in recorded(session) if isinstance(e, ToolFinished)}
        assert task(1)["owner"] == "ann"
    assert not answers["a"].is_error
    assert answers["b"].is_error
    assert "completed by ann already" in answers["b"].preview
