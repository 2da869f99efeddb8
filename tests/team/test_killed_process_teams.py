"""A killed lead with process members, and the resumed team."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from team_helpers import make_shoal_settings, watch_for_event

from agent_scripts import call_tool, run_all_turns
from elapsed_times import scale_to_load
from process_search import find_processes_in
from server_scripts import find_speaker, join_conversation, open_process_session, run_provider
from shoal.core.events import ToolStarted
from shoal.testing import MockServer
from shoal.testing.mock_replies import RequestBody
from team_scripts import read_team_config, spawn_member

DRIVER = Path(__file__).with_name("crashing_process_team.py")
WAIT = call_tool("Bash", "b1", command="sleep 300 & sleep 300", timeout=400000)


def make_scripts() -> dict[str, Any]:
    def lead(body: RequestBody) -> Any:
        heard = join_conversation(body)
        return "Good." if "ann found it" in heard or "heron" in heard else "Wait."

    def ann(body: RequestBody) -> Any:
        return "ann found it" if "Your process ended" in join_conversation(body) else WAIT

    begin = call_tool("TaskUpdate", "t1", taskId="1", status="in_progress")
    tasks = call_tool("TaskCreate", subject="One", description="Search.")
    # Else bob, who is idle first, might claim the task.
    assign = call_tool("TaskUpdate", taskId="1", owner="ann")
    spawns = [spawn_member("ann", "Remember the heron."), spawn_member("bob", "Rest.")]
    return {
        "lead": [call_tool("TeamCreate", team_name="crew"), tasks, spawns[0], assign, spawns[1], lead],
        "ann": [begin, ann],
        "bob": ["Resting."],
    }


async def wait_for_request(server: MockServer, wanted: Any) -> None:
    """Wait for a matching request."""
    async with asyncio.timeout(60):
        while not any(wanted(request.body) for request in server.requests):
            await server.wait_for_requests(server.request_count + 1, within=60)


@pytest.mark.spec("USR-23", "LIF-05", "USR-12")
async def test_all_processes_exit_within_five_seconds_and_the_team_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = str(uuid4())
    async with run_provider(monkeypatch, **make_scripts()) as server:
        lead = await asyncio.create_subprocess_exec(
            sys.executable, str(DRIVER), str(tmp_path), session, stderr=asyncio.subprocess.PIPE
        )
        await wait_for_request(server, lambda body: find_speaker(body) == "bob")
        await wait_for_request(
            server, lambda body: find_speaker(body) == "ann" and len(body["messages"]) >= 3
        )
        async with asyncio.timeout(60):
            while not any("sleep" in read_command_line(pid) for pid in find_processes_in(tmp_path)):
                await asyncio.sleep(0.01)
        os.kill(lead.pid, signal.SIGKILL)
        await lead.wait()
        async with asyncio.timeout(scale_to_load(5)):
            while find_processes_in(tmp_path):
                await asyncio.sleep(0.02)
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead", "ann", "bob"]
        async with open_process_session(tmp_path, resume=session) as again:
            await run_all_turns(again, "Go on.")
        asked = [request.body for request in server.requests if find_speaker(request.body) == "ann"][-1]
    assert "Remember the heron." in join_conversation(asked)
    # Its task may be assigned again in a message after this notice.
    assert "Your process ended while you were working" in join_conversation(asked)
    assert "These tasks in progress are yours: #1." in join_conversation(asked)
    assert not find_processes_in(tmp_path)


@pytest.mark.spec("USR-23", "USR-12", "LIF-04")
async def test_temporary_files_of_a_killed_member_are_removed_with_its_team(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without restarts, it leaves the team, so no later process of it removes them."""
    project, temporary = tmp_path / "project", tmp_path / "tmp"
    project.mkdir()
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    lead = [call_tool("TeamCreate", team_name="crew"), spawn_member("ann"), "Wait.", "Good."]
    settings = make_shoal_settings(teammate_mode="process", teammate_restarts=0)
    async with (
        run_provider(monkeypatch, lead=lead, ann=[call_tool("Bash", "b0", command="true"), WAIT]),
        open_process_session(project, settings=settings) as session,
        asyncio.timeout(60),
    ):
        waits = watch_for_event(session, lambda e: isinstance(e, ToolStarted) and e.call == "b1")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run_all_turns(session, "Go."))
            await waits.wait()
            (ann,) = session.list_members()
            assert ann.pid is not None
            assert list(temporary.iterdir())
            os.kill(ann.pid, signal.SIGKILL)
        assert session.list_members() == ()
    assert not list(temporary.iterdir())


def read_command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    except OSError:
        return ""
