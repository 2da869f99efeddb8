"""Sessions with teammates on the machines of a cluster, and what tests look at."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

import shoal
from agent_scripts import call_tool
from elapsed_times import scale_to_load
from postgres_server import get_shared_server
from ray_machines import RayMachine, RayMachines
from server_scripts import join_conversation, list_requests_of
from shoal.core.events import AgentStarted, Event, NoteAdded
from shoal.core.teams.team_operations import TeammateStatusSnapshot
from shoal.testing import MockServer
from team_scripts import send_message

CREATE = call_tool("TeamCreate", team_name="crew")
PATIENCE = 90


def open_cluster_session(
    tmp_path: Path, machines: RayMachines, database: str, **options: Any
) -> shoal.Session:
    given = {
        "skip_permissions": True,
        "settings": machines.build_settings(),
        "store": database,
        "model": "anthropic:claude-sonnet-4-5",
    }
    return shoal.open(cwd=tmp_path, **{**given, **options})


async def run_turns(session: shoal.Session, *, patience: float = PATIENCE) -> None:
    async with asyncio.timeout(patience):
        turn = session.run("Go.")
        while turn is not None:
            async for _ in turn:
                pass
            turn = await session.next_turn()


def find_member(session: shoal.Session, name: str) -> TeammateStatusSnapshot:
    return next(each for each in session.teams.list_members() if each.name == name)


async def wait_for_file(path: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        while not path.exists():
            await asyncio.sleep(0.05)


class StartTimes:
    """Notes when a member was started, and where."""

    def __init__(self, session: shoal.Session, machines: RayMachines, name: str) -> None:
        self.starts: list[float] = []
        self.changed = asyncio.Event()
        self._id = f"{name}@crew"
        self.notes: list[str] = []
        session.subscribe(self._note_start)

    def _note_start(self, event: Event) -> None:
        if isinstance(event, NoteAdded):
            self.notes.append(event.text)
            self.changed.set()
        if isinstance(event, AgentStarted) and event.agent == self._id:
            self.starts.append(time.monotonic())
            self.changed.set()

    async def wait_for_note(self, text: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not any(text in note for note in self.notes):
                self.changed.clear()
                await self.changed.wait()

    async def wait_for_start(self, count: int) -> float:
        try:
            async with asyncio.timeout(PATIENCE):
                while len(self.starts) < count:
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            pytest.fail(f"It was not started. Notes: {self.notes}")
        return self.starts[count - 1]


def has_line(server: MockServer, name: str, text: str) -> bool:
    return any(text in join_conversation(body) for body in list_requests_of(server, name))


def report_done(name: str) -> Any:
    return send_message("team-lead", f"{name} is done.", "report")


def read_rows(address: str, query: str) -> list[list[object]]:
    return get_shared_server().execute(query, database=urlsplit(address).path[1:])


async def assert_no_member_process_is_left(machines: RayMachines) -> None:
    """Fail if a process of a member is left on a machine 10 s after the run ended.

    These are also its guardian, its commands and their daemons.
    """
    limit = scale_to_load(10)
    deadline = time.monotonic() + limit
    while any(left := [machine.list_programs_of_agents() for machine in machines.machines]):
        assert time.monotonic() < deadline, f"left after {limit:.0f} s: {left}"
        await asyncio.sleep(0.1)


def note_figure(name: str, value: float) -> None:
    """Write a measured figure to the file of the variable CLUSTER_FIGURES, if it is set."""
    if path := os.environ.get("CLUSTER_FIGURES"):
        with Path(path).open("a") as file:
            file.write(f"{name}: {value:.1f}\n")


def restore_machine(machine: RayMachine) -> None:
    machine.start()
    machine.wait_until_started()


def wait_for_name(name: str, reached: str) -> Any:
    """Return a command that runs until a file exists."""
    command = f"touch {reached}; while [ ! -e {name} ]; do sleep 0.1; done"
    return call_tool("Bash", reached, command=command, timeout=600_000)


async def start_lead(
    cwd: Path, prompt: str, *arguments: str, stderr: int | None = None, machine: RayMachine | None = None
) -> asyncio.subprocess.Process:
    """Start a lead: by default on this machine and with the home of the test.

    On another machine, it has another host name, so that its process id means nothing on this one.
    """
    command = [sys.executable, "-m", "shoal", "-p", prompt, *arguments]
    rename = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', f"far-{uuid4().hex[:8]}")
    return await asyncio.create_subprocess_exec(
        *(command if machine is None else machine.build_command([*rename, *command])),
        cwd=cwd,
        env=None if machine is None else os.environ | machine.variables,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=stderr,
    )


def run_git(directory: Path, *arguments: str, check: bool = True) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=directory, check=check, capture_output=True, text=True
    )
    return done.stdout.strip()


async def run_shoal(*arguments: str, cwd: Path, home: Path | None = None) -> str:
    """Run a command to its end; return what it prints."""
    env = os.environ | ({} if home is None else {"SHOAL_HOME": str(home)})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shoal", *arguments),
        cwd=cwd,
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(PATIENCE):
        output, _ = await process.communicate()
    return output.decode()


async def wait_until_all_joined(machines: RayMachines, cwd: Path) -> None:
    """Wait until every machine is in the cluster, for example after its head was started again."""
    async with asyncio.timeout(PATIENCE):
        while True:
            printed = await run_shoal("cluster", "status", "--address", machines.address, "--json", cwd=cwd)
            with contextlib.suppress(json.JSONDecodeError):
                if sum(row["state"] == "alive" for row in json.loads(printed)) == len(machines.machines):
                    return
