"""External members of the team of a live session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_scripts import call_tool, run_all_turns
from shoal.app.teams.external_member import ExternalMember
from shoal.app.teams.external_task_board import ExternalMemberBoardAccess, ExternalTaskUpdateRequest
from shoal.app.teams.team_store import TeamStore
from shoal.core.clock import SystemClock
from shoal.core.errors import AgentRequestRefused, TaskUpdateRefused
from shoal.core.ids import IdGenerator
from shoal.core.teams.tasks import TaskDraft
from team_scripts import (
    get_home,
    open_session,
    read_inbox,
    read_team_config,
    script_team,
    send_message,
    spawn_member,
)

CLOCK = SystemClock()


def create_external_member(cwd: Path) -> tuple[TeamStore, ExternalMember]:
    record = TeamStore(get_home(), clock=CLOCK, ids=IdGenerator())
    return record, ExternalMember(record, home=get_home(), clock=CLOCK, ids=IdGenerator(), cwd=cwd)


async def test_a_resumed_lead_keeps_an_external_member_and_its_tasks(tmp_path: Path) -> None:
    lead = [
        call_tool("TeamCreate", team_name="roof"),
        "made",
        send_message("*", "Good morning.", "greeting"),
        "told",
    ]
    record, external = create_external_member(tmp_path)
    async with open_session(tmp_path, script_team(lead=lead)) as session:
        async for _ in session.run("begin"):
            pass
        seat = await external.join_team("roof", "codex")
        tasks = ExternalMemberBoardAccess(record, external)
        await tasks.create(seat, TaskDraft(subject="Look", description=""))
        _, attempt = await tasks.update(seat, "1", ExternalTaskUpdateRequest(status="in_progress"))
        assert attempt is not None
    async with open_session(tmp_path, script_team(lead=lead), resume=session.id) as session:
        async for _ in session.run("go on"):
            pass
        assert [each["name"] for each in read_team_config("roof")["members"]] == ["team-lead", "codex"]
        assert session.teams.list_members() == ()
        deliveries = await external.take_mail(seat, wait=0, limit=10)
        assert [delivery.mail.text for delivery in deliveries] == ["Good morning."]
        held = await tasks.get(seat, "1")
        assert (held.owner, held.claim_attempt) == ("codex", attempt)
    assert len(read_inbox("roof", "codex")) == 1
    await record.aclose()


@pytest.mark.spec("TSK-06", "TSK-08", "TSK-11")
async def test_task_changes_of_an_external_member_notify_the_others_but_not_itself(
    tmp_path: Path,
) -> None:
    record, external = create_external_member(tmp_path)
    async with open_session(
        tmp_path, script_team(lead=[call_tool("TeamCreate", team_name="roof"), "made"])
    ) as session:
        async for _ in session.run("begin"):
            pass
        seat = await external.join_team("roof", "codex")
        tasks = ExternalMemberBoardAccess(record, external)
        for subject in ("Dig", "Sow", "Water"):
            await tasks.create(seat, TaskDraft(subject=subject, description=""))
        await tasks.update(seat, "2", ExternalTaskUpdateRequest(owner="team-lead", blocked_by=["1"]))
        assert list_assigned_tasks("team-lead") == ["2"]
        await tasks.update(seat, "1", ExternalTaskUpdateRequest(status="completed"))
        assert list_assigned_tasks("team-lead") == ["2", "2"]
        await tasks.update(seat, "3", ExternalTaskUpdateRequest(owner="codex"))
        assert ((await tasks.get(seat, "3")).status, list_assigned_tasks("codex")) == ("in_progress", [])
    await record.aclose()


def list_assigned_tasks(name: str) -> list[str]:
    """List the tasks that were assigned by mail."""
    texts = [each["text"] for each in read_inbox("roof", name)]
    return [json.loads(text)["taskId"] for text in texts if '"type":"task_assignment"' in text]


async def test_an_external_member_may_not_act_as_the_lead(tmp_path: Path) -> None:
    lead = [
        call_tool("TeamCreate", team_name="roof"),
        call_tool("TaskCreate", "t1", subject="Test", description="", metadata={"acceptance": "make test"}),
        "made",
    ]
    record, external = create_external_member(tmp_path)
    async with open_session(tmp_path, script_team(lead=lead)) as session:
        async for _ in session.run("begin"):
            pass
        with pytest.raises(AgentRequestRefused, match="A live Shoal session leads"):
            await external.join_team("roof", "team-lead")
        with pytest.raises(AgentRequestRefused, match="You are in no team"):
            external.get_identity(None)
        seat = await external.join_team("roof", "codex")
        tasks = ExternalMemberBoardAccess(record, external)
        await tasks.update(seat, "1", ExternalTaskUpdateRequest(status="in_progress"))
        with pytest.raises(TaskUpdateRefused, match="acceptance command"):
            await tasks.update(seat, "1", ExternalTaskUpdateRequest(status="completed"))
        with pytest.raises(AgentRequestRefused, match="Only the lead"):
            await external.delete_team(seat)
        with pytest.raises(AgentRequestRefused, match="Only the lead"):
            await external.request_shutdown(seat, "team-lead", "go")
    await record.aclose()


def add_members_like_another_program() -> None:
    path = get_home() / "teams" / "roof" / "config.json"
    roster = json.loads(path.read_text())
    for name in ("codex", "Code Reviewer"):
        entry = {"agentId": f"{name}@roof", "name": name, "agentType": "worker", "model": "m"}
        roster["members"].append(entry | {"joinedAt": 1, "cwd": "/", "tmuxPaneId": "%1", "subscriptions": []})
    path.write_text(json.dumps(roster))


@pytest.mark.spec("LIM-12")
async def test_a_member_that_another_program_adds_gets_messages_and_broadcasts(tmp_path: Path) -> None:
    lead = [
        call_tool("TeamCreate", team_name="roof"),
        "made",
        *(send_message("codex", f"Note {number}.", "note") for number in range(70)),
        send_message("Code Reviewer", "Please review.", "review"),
        send_message("*", "Good morning.", "greeting"),
        "told",
    ]
    settings = json.dumps({"shoal": {"max_unproductive_messages": None}})
    async with open_session(tmp_path, script_team(lead=lead), settings=settings) as session:
        async for _ in session.run("begin"):
            pass
        add_members_like_another_program()
        async for _ in session.run("write"):
            pass
    notes = [f"Note {number}." for number in range(70)]
    assert [mail["text"] for mail in read_inbox("roof", "codex")] == [*notes, "Good morning."]
    reviewer = [mail["text"] for mail in read_inbox("roof", "Code-Reviewer")]
    assert reviewer == ["Please review.", "Good morning."]
    names = [each["name"] for each in read_team_config("roof")["members"]]
    assert names == ["team-lead", "codex", "Code Reviewer"]


@pytest.mark.spec("LIM-14")
async def test_a_resumed_lead_keeps_members_of_other_programs_and_people_reach_them(tmp_path: Path) -> None:
    lead = [
        call_tool("TeamCreate", team_name="roof"),
        spawn_member("ann"),
        "made",
        "resumed",
        send_message("Code Reviewer", "Please review.", "review"),
        "told",
    ]
    model = script_team(lead=lead, ann=["idle"])
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session, "begin")
    add_members_like_another_program()
    record, external = create_external_member(tmp_path)
    seat = await external.join_team("roof", "guest")
    for number in range(70):
        await external.send_mail(seat, "Code Reviewer", f"Note {number}.", "note")
    async with open_session(tmp_path, model, resume=session.id) as session:
        await run_all_turns(session, "write")
        for name in ("Code Reviewer", "Code-Reviewer", "codex@roof"):
            await session.send(name, "From the user.")
        assert [each.name for each in session.list_members()] == ["ann"]
        await run_all_turns(session, "write again")
    await record.aclose()
    names = [each["name"] for each in read_team_config("roof")["members"]]
    assert names == ["team-lead", "ann", "codex", "Code Reviewer", "guest"]
    reviewer = [mail["text"] for mail in read_inbox("roof", "Code-Reviewer")]
    assert reviewer[:70] == [f"Note {number}." for number in range(70)]
    assert sorted(reviewer[70:]) == [*["From the user."] * 2, "Please review."]
    assert [mail["text"] for mail in read_inbox("roof", "codex")] == ["From the user."]
