"""A lead that is killed with its teammates in processes of their own, and the same team taken up again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cast import all_turns, use
from fleet import everything, opened, provider, said_to, speaker
from processes_in import processes_in
from shoal.testing import MockServer
from shoal.testing.replies import Body
from troupe import config, member

DRIVER = Path(__file__).with_name("dying_fleet.py")
WAIT = use("Bash", "b1", command="sleep 300 & sleep 300", timeout=400000)


def parts() -> dict[str, Any]:
    def lead(body: Body) -> Any:
        heard = everything(body)
        return "Good." if "ann found it" in heard or "heron" in heard else "Wait."

    def ann(body: Body) -> Any:
        return "ann found it" if "Your process ended" in everything(body) else WAIT

    begin = use("TaskUpdate", "t1", taskId="1", status="in_progress")
    tasks = use("TaskCreate", subject="One", description="Search.")
    spawn = [member("ann", "Remember the heron."), member("bob", "Rest.")]
    return {
        "lead": [use("TeamCreate", team_name="crew"), tasks, spawn, lead],
        "ann": [begin, ann],
        "bob": ["Resting."],
    }


async def reached(server: MockServer, wanted: Any) -> None:
    """Until such a request has come."""
    async with asyncio.timeout(15):
        while not any(wanted(request.body) for request in server.requests):
            await server.arrived(server.count + 1, within=15)


@pytest.mark.spec("USR-23", "LIF-05", "USR-12")
async def test_all_processes_are_gone_in_five_seconds_and_the_team_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = str(uuid4())
    async with provider(monkeypatch, **parts()) as server:
        lead = await asyncio.create_subprocess_exec(
            sys.executable, str(DRIVER), str(tmp_path), session, stderr=asyncio.subprocess.PIPE
        )
        await reached(server, lambda body: speaker(body) == "bob")
        await reached(server, lambda body: speaker(body) == "ann" and len(body["messages"]) >= 3)
        async with asyncio.timeout(10):
            while not any("sleep" in command(pid) for pid in processes_in(tmp_path)):
                await asyncio.sleep(0.01)
        os.kill(lead.pid, signal.SIGKILL)
        await lead.wait()
        async with asyncio.timeout(5):
            while processes_in(tmp_path):
                await asyncio.sleep(0.02)
        assert [each["name"] for each in config("crew")["members"]] == ["team-lead", "ann", "bob"]
        async with opened(tmp_path, resume=session) as again:
            await all_turns(again, "Go on.")
        asked = [request.body for request in server.requests if speaker(request.body) == "ann"][-1]
    assert "Remember the heron." in everything(asked)
    assert "Your process ended while you were at work" in said_to(asked)
    assert not processes_in(tmp_path)


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    except OSError:
        return ""
