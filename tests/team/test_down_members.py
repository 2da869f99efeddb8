"""Members that failed unexpectedly: they are down, stay in the team and are started again."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from team_helpers import make_shoal_settings, watch_for_event

import shoal
from agent_scripts import call_tool, read_events, run_all_turns
from server_scripts import (
    get_last_text,
    join_conversation,
    list_requests_of,
    open_process_session,
    run_provider,
)
from shoal.app.agents.backend_launcher import LOG_DIRECTORY
from shoal.core.events import AgentStarted, MemberWentDown, MemberWentIdle, NoteAdded, ToolStarted
from shoal.team.members import member_recovery
from team_scripts import get_home, open_session, read_team_config, script_team, send_message, spawn_member
from web_client import serve_home

CREATE = call_tool("TeamCreate", team_name="crew")
WAIT = call_tool("Bash", "b1", command="sleep 100", timeout=120000)


def find_pid(session: shoal.Session, name: str = "ann") -> int:
    pid = next(each.pid for each in session.list_members() if each.name == name)
    assert pid is not None
    return pid


def find_state(session: shoal.Session, name: str = "ann") -> str:
    return next(each.state for each in session.list_members() if each.name == name)


def find_roster_entry(name: str = "ann") -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in read_team_config("crew")["members"] if each["name"] == name)
    return found


@contextmanager
def block_member_starts(session: shoal.Session) -> Iterator[None]:
    """Make every start of a member's process fail: its log cannot be opened."""
    logs = get_home() / "shoal" / "runs" / session.id / LOG_DIRECTORY
    logs.rename(logs.with_suffix(".away"))
    logs.write_text("not a directory")
    try:
        yield
    finally:
        logs.unlink()
        logs.with_suffix(".away").rename(logs)


@pytest.mark.spec("LIF-04", "TEAM-05")
async def test_a_member_whose_process_is_killed_twice_in_a_row_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        run_provider(
            monkeypatch,
            lead=[CREATE, spawn_member("ann", "Remember the word heron."), "Wait.", "Good."],
            ann=[WAIT, get_last_text, "Rest."],
        ) as server,
        open_process_session(tmp_path) as session,
        asyncio.timeout(60),
    ):
        in_a_tool = watch_for_event(session, lambda e: isinstance(e, ToolStarted) and e.agent == "ann@crew")
        async with asyncio.TaskGroup() as tasks:
            turns = tasks.create_task(run_all_turns(session))
            await in_a_tool.wait()
            for _ in range(2):
                again = watch_for_event(session, lambda e: isinstance(e, AgentStarted) and e.resumed)
                os.kill(find_pid(session), signal.SIGKILL)
                await again.wait()
            await turns
        assert find_state(session) == "idle"
        assert "shoal" not in find_roster_entry()
    assert "Remember the word heron." in join_conversation(list_requests_of(server, "ann")[-1])


@pytest.mark.sampled(1)
@pytest.mark.spec("LIF-04", "TEAM-05")
@pytest.mark.parametrize("victim", ["member", "fork server", "guardian"])
async def test_a_member_that_cannot_be_restarted_is_down_until_a_message_restarts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    async with (
        run_provider(
            monkeypatch,
            lead=[
                CREATE,
                spawn_member("ann"),
                "Wait.",
                "Good.",
                send_message("ann", "Are you back?"),
                "Good.",
                "I see.",
            ],
            ann=["Ready.", "I am back."],
        ) as server,
        open_process_session(
            tmp_path, settings=make_shoal_settings(teammate_mode="process", teammate_restarts=2)
        ) as session,
        asyncio.timeout(60),
    ):
        await run_all_turns(session)
        processes = session.runtime.processes.launcher
        fork_server = read_parent_pid(find_pid(session))
        pids = {"member": find_pid(session), "fork server": fork_server, "guardian": processes.guardian_pid}
        with block_member_starts(session):
            down = watch_for_event(session, lambda e: isinstance(e, MemberWentDown))
            os.kill(pids[victim] or 0, signal.SIGKILL)
            await down.wait()
            await session.teams.wait_until_idle()
            assert find_state(session) == "down"
            entry = find_roster_entry()
            assert (entry["isActive"], entry["shoal"]) == (False, {"state": "down"})
        again = watch_for_event(session, lambda e: isinstance(e, AgentStarted) and e.resumed)
        await run_all_turns(session, "Ask ann.")
        assert again.is_set()
        assert find_state(session) == "idle"
        assert "shoal" not in find_roster_entry()
        with block_member_starts(session):
            down = watch_for_event(session, lambda e: isinstance(e, MemberWentDown))
            os.kill(find_pid(session), signal.SIGKILL)
            await down.wait()
            await session.teams.wait_until_idle()
        await run_all_turns(session, None)
    told = join_conversation(list_requests_of(server, "lead")[-1])
    assert told.count("The teammate ann is down") == 2
    assert "Are you back?" in join_conversation(list_requests_of(server, "ann")[-1])


@pytest.mark.spec("LIF-04")
async def test_a_member_whose_process_is_asked_to_end_stays_in_its_team(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        run_provider(
            monkeypatch,
            lead=[
                CREATE,
                spawn_member("ann"),
                "Wait.",
                send_message("ann", "Are you back?"),
                "Good.",
                "Good.",
            ],
            ann=["Ready.", "I am back."],
        ) as server,
        open_process_session(tmp_path, settings=make_shoal_settings(teammate_mode="process")) as session,
        asyncio.timeout(60),
    ):
        await run_all_turns(session)
        before = find_pid(session)
        again = watch_for_event(session, lambda e: isinstance(e, AgentStarted) and e.resumed)
        os.kill(before, signal.SIGTERM)
        await again.wait()
        await session.teams.wait_until_idle()
        assert find_pid(session) != before
        assert find_state(session) == "idle"
        await run_all_turns(session, "Ask ann.")
    assert "Are you back?" in join_conversation(list_requests_of(server, "ann")[-1])


@pytest.mark.sampled(2)
@pytest.mark.spec("LIF-04", "TEAM-05")
@pytest.mark.parametrize("door", ["member", "inbox command", "other program", "web page"])
async def test_mail_from_another_process_and_the_page_restart_a_down_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    # The next attempt without a message would come after the end of the test.
    monkeypatch.setattr(member_recovery, "RETRY_DELAYS", (0.0, 0.0, 3600.0))
    async with (
        run_provider(
            monkeypatch,
            lead=[CREATE, spawn_member("ann"), spawn_member("bob"), "Wait.", "Good.", "Good."],
            ann=["Ready.", "I am back."],
            bob=["Ready.", send_message("ann", "Are you back?"), "Asked."],
        ) as server,
        serve_home() as web,
        open_process_session(
            tmp_path, settings=make_shoal_settings(teammate_mode="process", teammate_restarts=1)
        ) as session,
        asyncio.timeout(60),
    ):
        await run_all_turns(session)
        with block_member_starts(session):
            down = watch_for_event(session, lambda e: isinstance(e, MemberWentDown))
            os.kill(find_pid(session), signal.SIGKILL)
            await down.wait()
            await session.teams.wait_until_idle()
            assert find_state(session) == "down"
        again = watch_for_event(session, lambda e: isinstance(e, AgentStarted) and e.resumed)
        match door:
            case "member":
                await session.send("bob", "Ask ann.")
            case "inbox command":
                await run_shoal_command("inbox", "send", "ann", "Are you back?", "--team", "crew")
            case "other program":
                # In place, as programs do that know only the file.
                inbox = get_home() / "teams" / "crew" / "inboxes" / "ann.json"
                letter = {"from": "cat", "text": "Are you back?", "timestamp": "x", "read": False}
                inbox.write_text(json.dumps([*json.loads(inbox.read_text()), letter]))
            case _:
                await web.post_json(f"/runs/{session.id}/restart", {"agent": "ann@crew"})
        await again.wait()
        await session.teams.wait_until_idle()
        assert find_state(session) == "idle"
    if door != "web page":
        assert "Are you back?" in join_conversation(list_requests_of(server, "ann")[-1])


async def run_shoal_command(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shoal", *arguments, stdout=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0


def read_parent_pid(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.spec("LIF-04", "TEAM-05")
async def test_a_member_that_met_a_full_disk_is_restarted_when_there_is_room_again(tmp_path: Path) -> None:
    model = script_team(
        lead=[CREATE, spawn_member("ann", "Remember the word heron."), "Wait.", "Good."],
        ann=["Ready.", "x" * 2000, "Rested."],
    )
    async with open_session(tmp_path, model) as session, asyncio.timeout(60):
        await run_all_turns(session)
        (transcript,) = get_home().glob("projects/*/*/subagents/agent-ann@crew.jsonl")
        with limit_file_size(transcript.stat().st_size + 1000):
            await session.send("ann", "Say a lot.")
            while find_state(session) != "down":  # the journal has no room to tell
                await asyncio.sleep(0)
        idle = watch_for_event(session, lambda e: isinstance(e, MemberWentIdle))
        await session.send("ann", "Continue.")
        await idle.wait()
        assert find_state(session) == "idle"
        assert "shoal" not in find_roster_entry()
        notes = [event.text for event in read_events(session) if isinstance(event, NoteAdded)]
    assert sum("ann failed (" in note and note.endswith(" and was restarted.") for note in notes) == 1
    said = "\n".join(
        message.text for message in session.agent.conversation.messages if message.role == "user"
    )
    assert "teammate_terminated" not in said
    history = transcript.read_text()
    assert history.count("Say a lot.") == 1
    assert history.count("Continue.") == 1
    assert "heron" in history


@contextmanager
def limit_file_size(size: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
