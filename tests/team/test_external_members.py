"""External members of the team of a live session."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import shoal
from agent_scripts import call_tool, run_all_turns
from server_scripts import call_once_after, open_process_session, run_provider
from shoal.app.teams.external_member import ExternalMember
from shoal.app.teams.external_task_board import ExternalMemberBoardAccess, ExternalTaskUpdateRequest
from shoal.app.teams.team_store import TeamStore
from shoal.core.clock import SystemClock
from shoal.core.conversation.messages import extract_tool_result_text
from shoal.core.errors import AgentRequestRefused, TaskUpdateRefused
from shoal.core.ids import IdGenerator
from shoal.core.names import TeamName
from shoal.core.teams.tasks import TaskDraft
from team_scripts import (
    approve_shutdown,
    find_tool_results,
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


def add_members_like_another_program(*names: str) -> None:
    path = get_home() / "teams" / "roof" / "config.json"
    roster = json.loads(path.read_text())
    for name in names or ("codex", "Code Reviewer"):
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


async def take_turn(session: shoal.Session, prompt: str) -> str:
    """Take a turn and return the result of its last call."""
    async for _ in session.run(prompt):
        pass
    return extract_tool_result_text(find_tool_results(session.agent.conversation.messages)[-1])


@pytest.mark.spec("LIM-12", "SND-03")
async def test_the_lead_is_told_about_members_that_another_program_adds(tmp_path: Path) -> None:
    shutdown = {"type": "shutdown_request", "reason": "done"}
    approval = {"type": "plan_approval_response", "request_id": "plan_approval-1@codex@roof", "approve": True}
    lead = [call_tool("TeamCreate", team_name="roof"), "made"]
    for call in (
        send_message("nobody", "Hello.", "greeting"),
        call_tool("ListAgents"),
        send_message("nobody", shutdown),
        send_message("Code-Reviewer", shutdown),
        send_message("Code Reviewer", approval),
    ):
        lead += [call, "told"]
    settings = json.dumps({"shoal": {"plan_approver": "lead"}})
    async with open_session(tmp_path, script_team(lead=lead), settings=settings) as session:
        await take_turn(session, "begin")
        add_members_like_another_program()
        unknown = await take_turn(session, "write")
        assert "Members of the team: team-lead, codex, Code Reviewer." in unknown
        listed = await take_turn(session, "list")
        assert "codex: teammate, worker on m, idle" in listed
        assert "Code Reviewer: teammate" in listed
        unknown = await take_turn(session, "end nobody")
        assert "Members: team-lead, codex, Code Reviewer." in unknown
        refused = await take_turn(session, "end it")
        assert refused.startswith("Another program runs Code Reviewer and decides when it ends.")
        assert not (get_home() / "teams" / "roof" / "inboxes" / "codex.json").read_text().strip("[]\n")
        await take_turn(session, "approve")
        (answer,) = read_inbox("roof", "Code-Reviewer")
        assert json.loads(answer["text"])["type"] == "plan_approval_response"
        assert "codex (worker), idle" in await session.teams.build_lead_briefing()


@pytest.mark.spec("LIM-12")
async def test_a_member_of_another_program_may_have_the_name_of_a_former_member(tmp_path: Path) -> None:
    lead = [
        call_tool("TeamCreate", team_name="roof"),
        spawn_member("ann"),
        "made",
        send_message("ann", {"type": "shutdown_request", "reason": "done"}),
        # The lead is also told about the end of ann, in a turn of its own.
        lambda _: next(notes) if "write" in prompts else "waiting",
    ]
    prompts: list[str] = []
    notes = iter(
        [
            *(send_message("ann", f"Note {number}.", "note") for number in range(70)),
            send_message("*", "Good morning.", "greeting"),
            "told",
        ]
    )
    settings = json.dumps({"shoal": {"max_unproductive_messages": None}})
    model = script_team(lead=lead, ann=["idle", approve_shutdown, "left"])
    async with open_session(tmp_path, model, settings=settings) as session:
        await run_all_turns(session, "begin")
        async with asyncio.timeout(30):
            await run_all_turns(session, "end it")
        assert [each["name"] for each in read_team_config("roof")["members"]] == ["team-lead"]
        former_mail = [mail["text"] for mail in read_inbox("roof", "ann")]
        add_members_like_another_program("ann")
        prompts.append("write")
        await run_all_turns(session, "write")
    expected = [*former_mail, *(f"Note {number}." for number in range(70)), "Good morning."]
    assert [mail["text"] for mail in read_inbox("roof", "ann")] == expected
    record, external = create_external_member(tmp_path)
    assert await record.rosters.list_members_of_other_programs(TeamName("roof")) == {"ann"}
    seat = await external.join_team("roof", "guest")
    await external.send_mail(seat, "ann", "From a guest.", "note")
    assert [mail["text"] for mail in read_inbox("roof", "ann")] == [*expected, "From a guest."]
    await record.aclose()


@pytest.mark.spec("LIM-12")
async def test_a_member_without_a_possible_inbox_does_not_keep_a_broadcast_from_the_others(
    tmp_path: Path,
) -> None:
    lead = [
        call_tool("TeamCreate", team_name="roof"),
        "made",
        send_message("*", "Good morning.", "greeting"),
        "told",
    ]
    async with open_session(tmp_path, script_team(lead=lead)) as session:
        await take_turn(session, "begin")
        add_members_like_another_program("x" * 80, "codex")
        told = await take_turn(session, "write")
        assert told.startswith("The message was sent to codex, but it did not reach everyone. xxx")
        record, external = create_external_member(tmp_path)
        seat = await external.join_team("roof", "guest")
        with pytest.raises(AgentRequestRefused, match="was sent to team-lead, codex, but"):
            await external.send_mail(seat, "*", "Hello.", "greeting")
        await record.aclose()
    assert [mail["text"] for mail in read_inbox("roof", "codex")] == ["Good morning.", "Hello."]


@pytest.mark.spec("LIM-12")
async def test_a_member_in_its_own_process_reaches_members_of_other_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead = [
        call_tool("TeamCreate", team_name="roof"),
        spawn_member("ann"),
        call_once_after(send_message("ann", "Write to them.", "request"), text="Write."),
    ]
    ann = [
        "Idle.",
        send_message("Code-Reviewer", "First.", "note"),
        send_message("codex@roof", "Second.", "note"),
        send_message("*", "Third.", "note"),
        send_message("nobody", "Fourth.", "note"),
        "Done.",
    ]
    async with (
        run_provider(monkeypatch, lead=lead, ann=ann),
        open_process_session(tmp_path) as session,
        asyncio.timeout(40),
    ):
        await run_all_turns(session, "Go.")
        add_members_like_another_program()
        await run_all_turns(session, "Write.")
    assert [mail["text"] for mail in read_inbox("roof", "Code-Reviewer")] == ["First.", "Third."]
    assert [mail["text"] for mail in read_inbox("roof", "codex")] == ["Second.", "Third."]
    assert "Third." in [mail["text"] for mail in read_inbox("roof", "team-lead")]
