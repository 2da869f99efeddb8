"""Resume of a team whose process was killed."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from crashing_scripts import SCRIPTS, TASKS
from team_helpers import CRASHING_LEAD, run_crashing_lead

from agent_scripts import call_tool, read_events, run_all_turns
from shoal.app.teams.team_store import TeamStore
from shoal.core.agents.background_shells import BackgroundShell
from shoal.core.clock import SystemClock
from shoal.core.events import AgentStarted, BackgroundShellStarted, RunFinished
from shoal.core.ids import LEAD_ID, IdGenerator
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.roster import NewMember
from shoal.core.teams.tasks import TaskDraft
from shoal.stores.files.sessions.file_journal import FileJournal
from team_scripts import (
    approve_shutdown,
    get_home,
    open_session,
    read_inbox,
    read_team_config,
    script_team,
    send_message,
    spawn_member,
)

CUT_OFF_COMMAND = BackgroundShell(shell="bash_1", agent=LEAD_ID, call="b1", command="sleep 9")
SESSION = "5e551011-0000-4000-8000-000000000001"


async def run_following_turns(session: Any) -> str:
    """Run the triggered turns; return the last text of the lead."""
    text = ""
    async with asyncio.timeout(30):
        while (turn := await session.next_turn()) is not None:
            async for event in turn:
                text = event.text if isinstance(event, RunFinished) else text
    return text


def read_transcript(name: str) -> str:
    (path,) = get_home().glob(f"projects/*/{SESSION}/subagents/agent-{name}@crew.jsonl")
    return path.read_text()


@pytest.mark.spec("TRN-02", "USR-12")
async def test_a_member_killed_in_a_tool_continues_and_does_its_task_once(tmp_path: Path) -> None:
    await run_crashing_lead(tmp_path, SESSION, "in a tool")
    async with open_session(tmp_path, script_team(**SCRIPTS["in a tool"]), resume=SESSION) as session:
        assert session.agent.identity.team == "crew"
        await run_following_turns(session)
        told = "\n".join(m.text for m in session.agent.conversation.messages if m.role == "user")
        task = (get_home() / "tasks/crew/1.json").read_text()
        members = [(each["name"], each.get("isActive")) for each in read_team_config("crew")["members"]]
    assert '"completed"' in task
    assert '"ann"' in task, "the task stayed with who had claimed it"
    assert told.count("ann is idle") == 1
    assert "all done" in told
    assert members == [("team-lead", None), ("bob", False), ("ann", False)]
    resumed = [event for event in read_events(session) if isinstance(event, AgentStarted) and event.resumed]
    assert sorted(event.name for event in resumed) == ["ann", "bob"]


@pytest.mark.spec("TRN-02", "USR-04", "BOX-04")
async def test_mail_in_transit_is_delivered_once(tmp_path: Path) -> None:
    await run_crashing_lead(tmp_path, SESSION, "mail on its way")
    async with open_session(tmp_path, script_team(**SCRIPTS["mail on its way"]), resume=SESSION) as session:
        text = await run_following_turns(session)
    assert "the second word" in text
    lines = read_transcript("ann").splitlines()
    assert sum('"type":"user"' in line and "second word" in line for line in lines) == 1
    assert all(each["read"] for each in read_inbox("crew", "ann"))
    assert all(each["read"] for each in read_inbox("crew", "team-lead"))


@pytest.mark.spec("TRN-02", "LIF-06", "USR-12")
async def test_a_resumed_idle_member_keeps_its_history(tmp_path: Path) -> None:
    await run_crashing_lead(tmp_path, SESSION, "idle")
    async with open_session(tmp_path, script_team(**SCRIPTS["idle"]), resume=SESSION) as session:
        text = await run_all_turns(session, "Go on.")
    assert "I said: I know 42" in text


@pytest.mark.spec("TRN-02", "TSK-07")
async def test_a_task_claimed_just_before_a_crash_is_announced_to_its_owner(
    tmp_path: Path,
) -> None:
    await run_crashing_lead(tmp_path, SESSION, "idle")
    record = TeamStore(get_home(), clock=SystemClock(), ids=IdGenerator())
    board = record.open_board("crew")
    task = await board.create(TaskDraft(subject="caulk it", description=""))
    assert (await board.claim(task.id, by=AgentName("ann"))).success
    await record.aclose()
    async with open_session(tmp_path, script_team(**SCRIPTS["idle"]), resume=SESSION) as session:
        await run_following_turns(session)
    assert read_transcript("ann").count(f"Task #{task.id} is yours now: caulk it") == 1


async def kill_during_work(cwd: Path, after: float) -> None:
    """Kill the lead some time after all members have joined."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, CRASHING_LEAD, cwd, SESSION, "workers", "0.02"
    )
    async with asyncio.timeout(60):
        while (
            not (get_home() / "teams/crew/config.json").exists()
            or len(read_team_config("crew")["members"]) < 6
        ):
            await asyncio.sleep(0.005)
        await asyncio.sleep(after)
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def list_delivered_ids(path: Path) -> list[str]:
    lines = map(json.loads, path.read_text().splitlines())
    return [line["delivered"] for line in lines if line.get("delivered")]


@pytest.mark.spec("USR-12", "USR-04", "TRN-02")
@pytest.mark.parametrize("after", [0.0, 0.1, 0.2, 0.3, 0.5])
@pytest.mark.sampled(2)
async def test_all_tasks_are_done_and_all_mail_is_delivered_once_after_a_kill_at_any_moment(
    tmp_path: Path, after: float
) -> None:
    await kill_during_work(tmp_path, after)
    async with open_session(tmp_path, script_team(**SCRIPTS["workers"]), resume=SESSION) as session:
        await run_following_turns(session)
        tasks = [json.loads((get_home() / f"tasks/crew/{n + 1}.json").read_text()) for n in range(TASKS)]
    record = TeamStore(get_home(), clock=SystemClock(), ids=IdGenerator())
    # One that had just been entered in the roster and got no inbox is out of it again.
    names = [each["name"] for each in read_team_config("crew")["members"]]
    boxes = {name: await record.open_mailboxes("crew").read_history(AgentName(name)) for name in names}
    await record.aclose()
    assert [task["status"] for task in tasks] == ["completed"] * TASKS
    (main,) = get_home().glob(f"projects/*/{SESSION}.jsonl")
    for name, box in boxes.items():
        path = main if name == "team-lead" else main.with_suffix("") / f"subagents/agent-{name}@crew.jsonl"
        heard = list_delivered_ids(path)
        assert len(heard) == len(set(heard)), f"{name} heard something twice"
        assert all(mail.read for mail in box), f"{name} has unread mail"
        assert {mail.id for mail in box} <= set(heard), f"{name} missed something"
    reports = "\n".join(mail.text for mail in boxes["team-lead"])
    assert all(f"task {n + 1} by" in reports for n in range(TASKS))


@pytest.mark.spec("USR-04", "TRN-02")
async def test_unmarked_mail_that_is_in_the_transcript_is_marked_read_and_not_delivered_again(
    tmp_path: Path,
) -> None:
    await run_crashing_lead(tmp_path, SESSION, "idle")
    for name in ("ann", "team-lead"):
        # As they are when the process dies between the transcript and the mark.
        path = get_home() / "teams/crew/inboxes" / f"{name}.json"
        path.write_text(path.read_text().replace('"read":true', '"read":false'))
        assert '"read":true' not in path.read_text()
    async with open_session(tmp_path, script_team(**SCRIPTS["idle"]), resume=SESSION) as session:
        await run_all_turns(session, "Go on.")
    (main,) = get_home().glob(f"projects/*/{SESSION}.jsonl")
    for path in (main, main.with_suffix("") / "subagents/agent-ann@crew.jsonl"):
        assert len(list_delivered_ids(path)) == len(set(list_delivered_ids(path)))
    assert all(mail["read"] for name in ("ann", "team-lead") for mail in read_inbox("crew", name))


@pytest.mark.spec("USR-08", "USR-12")
@pytest.mark.parametrize("part", ["asked to end", "asked after the clock was set back"])
async def test_a_shutdown_request_is_continued_by_the_next_process(tmp_path: Path, part: str) -> None:
    await run_crashing_lead(tmp_path, SESSION, part)
    model, settings = script_team(**SCRIPTS[part]), '{"shoal": {"shutdown_grace": 0.2}}'
    async with open_session(tmp_path, model, resume=SESSION, settings=settings) as session:
        await run_following_turns(session)
        told = "\n".join(m.text for m in session.agent.conversation.messages if m.role == "user")
    assert "teammate_terminated: task ann@crew" in told
    assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]


@pytest.mark.spec("USR-12", "TRN-02")
async def test_files_of_a_dead_team_do_not_prevent_a_new_one(tmp_path: Path) -> None:
    await run_crashing_lead(tmp_path, SESSION, "idle")
    model = script_team(lead=[call_tool("TeamCreate", team_name="crew"), "made"])
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
        assert session.agent.identity.team == "crew-2"


@pytest.mark.spec("TRN-02", "LIF-04")
async def test_a_new_member_does_not_continue_the_conversation_of_a_former_one(tmp_path: Path) -> None:
    """The lead is killed after the new member is in the roster and before its description is stored."""
    shutdown = {"type": "shutdown_request", "reason": "all is done"}
    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            spawn_member("ann"),
            "waiting",
            send_message("ann", shutdown),
            "all is done",
        ],
        ann=["I am the former one.", approve_shutdown],
    )
    async with open_session(tmp_path, model, session_id=SESSION) as session:
        await run_all_turns(session, "Begin.")
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]
    record = TeamStore(get_home(), clock=SystemClock(), ids=IdGenerator())
    new_member = NewMember(
        name=AgentName("ann"), agent_type="Explore", model="m", cwd=str(tmp_path), prompt="Look around."
    )
    await record.add_member(TeamName("crew"), new_member)
    await record.aclose()
    # The end of a command that died with the process is journaled before the note about the member.
    journal = FileJournal(get_home() / "shoal/runs" / SESSION / "journal.jsonl", SystemClock())
    journal.append(BackgroundShellStarted(agent=LEAD_ID, facts=CUT_OFF_COMMAND))
    journal.close()
    before = read_transcript("ann")
    async with open_session(tmp_path, script_team(lead=["done"], ann=["?"]), resume=SESSION) as session:
        await run_all_turns(session, "Go on.")
        assert any("start of the teammate ann was interrupted" in note for note in session.notes)
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]
    assert read_transcript("ann") == before
