"""Teammates on the machines of a real Ray cluster, with a real database."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import shoal
from agent_scripts import call_tool
from postgres_server import get_shared_server
from ray_machines import RayMachine, RayMachines
from server_scripts import join_conversation, list_requests_of, run_provider
from shoal.core.events import AgentStarted, Event, NoteAdded
from shoal.core.teams.team_operations import TeammateStatusSnapshot
from shoal.testing import MockServer
from team_scripts import send_message, spawn_member

pytestmark = [pytest.mark.exhaustive, pytest.mark.needs("ray", "postgres", "asyncpg")]
CREATE = call_tool("TeamCreate", team_name="crew")
PATIENCE = 90
SESSION = "b0000000-0000-4000-8000-000000000022"


def open_cluster_session(
    tmp_path: Path, machines: RayMachines, database: str, **options: Any
) -> shoal.Session:
    given = {"skip_permissions": True, "settings": machines.build_settings(), "store": database}
    return shoal.open(cwd=tmp_path, model="anthropic:claude-sonnet-4-5", **{**given, **options})


async def run_turns(session: shoal.Session, prompt: str = "Go.") -> None:
    async with asyncio.timeout(PATIENCE):
        turn = session.run(prompt)
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


async def test_members_work_on_other_machines_and_report(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("ann", "ben")
    where = {name: call_tool("Bash", "w", command=f"echo $PPID > {name}.pid; hostname") for name in names}
    async with run_provider(
        monkeypatch,
        lead=[CREATE, spawn_member("ann"), spawn_member("ben"), "They work.", "Over."],
        **{
            name: [where[name], send_message("team-lead", f"{name} is done.", "report"), "Done."]
            for name in names
        },
    ) as server:
        machines.use_provider(server.url)
        async with open_cluster_session(tmp_path, machines, cluster_database) as session:
            await run_turns(session)
            found = {machines.find_machine(find_member(session, name).pid) for name in names}
            assert found <= set(machines.nodes)
            assert len(found) == 2  # spread over the machines
        for name in names:
            assert has_line(server, "lead", f"{name} is done.")
    assert {
        row[0] for row in read_rows(cluster_database, "SELECT DISTINCT agent FROM shoal.transcript_lines")
    } >= {
        "lead",
        "ann@crew",
        "ben@crew",
    }
    await assert_no_member_process_is_left(machines)


async def assert_no_member_process_is_left(machines: RayMachines) -> None:
    async with asyncio.timeout(10):
        while any(is_member_process(pid) for machine in machines.machines for pid in machine.pids):
            await asyncio.sleep(0.1)


def is_member_process(pid: int) -> bool:
    try:
        return b"MemberHostActor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


async def test_a_member_of_a_killed_machine_continues_on_another(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = call_tool("Bash", "b1", command="echo the first command")
    blocked = call_tool("Bash", "b2", command="touch reached; sleep 600")
    async with run_provider(
        monkeypatch,
        lead=[CREATE, spawn_member("ann"), "Ann works.", "Over."],
        ann=[first, blocked, send_message("team-lead", "I moved.", "report"), "Done."],
    ) as server:
        machines.use_provider(server.url)
        async with open_cluster_session(tmp_path, machines, cluster_database) as session:
            starts = StartTimes(session, machines, "ann")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_turns(session))
                await wait_for_file(tmp_path / "reached")
                before = machines.find_machine(find_member(session, "ann").pid)
                killed_at = time.monotonic()
                before.kill()
                moved = await starts.wait_for_start(2) - killed_at
                after = machines.find_machine(find_member(session, "ann").pid)
            assert after is not before
            note_figure("killed machine, seconds until the member works elsewhere", moved)
            assert moved < 60
        last = list_requests_of(server, "ann")[-1]
        assert "the first command" in join_conversation(last)
        assert has_line(server, "lead", "I moved.")
    restore_machine(before)


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


async def test_members_work_without_a_head_and_are_placed_again_by_the_next_one(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_provider(
        monkeypatch,
        lead=[CREATE, spawn_member("ann"), "Ann works.", "Good.", "Over."],
        ann=[
            wait_for_name("go", "reached"),
            send_message("team-lead", "No head, no matter.", "report"),
            wait_for_name("never", "reached-again"),
            send_message("team-lead", "I moved.", "report"),
            "Done.",
        ],
    ) as server:
        machines.use_provider(server.url)
        async with open_cluster_session(tmp_path, machines, cluster_database) as session:
            starts = StartTimes(session, machines, "ann")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_turns(session))
                await wait_for_file(tmp_path / "reached")
                machines.head.kill()
                (tmp_path / "go").touch()
                await wait_for_file(tmp_path / "reached-again")
                assert len(starts.starts) == 1
                replaced_at = time.monotonic()
                machines.head.start()
                placed = await starts.wait_for_start(2) - replaced_at
            note_figure("lost head, seconds from the command until the member is placed again", placed)
            assert placed < 90
        assert has_line(server, "lead", "No head, no matter.")
        assert has_line(server, "lead", "I moved.")
    machines.head.wait_until_started()


async def test_members_of_a_killed_lead_end_and_the_session_is_resumed(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_provider(
        monkeypatch,
        lead=[CREATE, spawn_member("ann"), "Ann works.", "Good.", "Over."],
        ann=[wait_for_name("never", "reached"), send_message("team-lead", "I moved.", "report"), "Done."],
    ) as server:
        machines.use_provider(server.url)
        arguments = ("--settings", machines.build_settings(), "--model", "anthropic:claude-sonnet-4-5")
        arguments += ("--permission-mode", "bypassPermissions")
        monkeypatch.setenv("SHOAL_STORE", cluster_database)
        lead = await start_lead(tmp_path, "Go.", "--session-id", SESSION, *arguments)
        await wait_for_file(tmp_path / "reached")
        lead.kill()
        await lead.wait()
        killed_at = time.monotonic()
        await assert_no_member_process_is_left(machines)
        note_figure("killed lead, seconds until no member process is left", time.monotonic() - killed_at)
        again = await start_lead(tmp_path, "Continue.", "--resume", SESSION, *arguments)
        async with asyncio.timeout(PATIENCE):
            assert await again.wait() == 0
        assert has_line(server, "lead", "I moved.")
    await assert_no_member_process_is_left(machines)


async def start_lead(cwd: Path, prompt: str, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shoal", "-p", prompt, *arguments), cwd=cwd, stdout=asyncio.subprocess.DEVNULL
    )


async def test_work_of_a_killed_machine_is_in_the_project_and_continues_elsewhere(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text("by the lead\n")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        run_git(project, *arguments)
    reached = tmp_path / "reached"
    write = call_tool("Bash", "b1", command="echo half >> notes.txt")
    blocked = call_tool("Bash", "b2", command=f"touch {reached}; sleep 600")
    finish = call_tool("Bash", "b3", command="echo done >> notes.txt")
    report = send_message("team-lead", "I moved.", "report")
    async with run_provider(
        monkeypatch,
        lead=[CREATE, spawn_member("ann"), "Ann works.", "Over."],
        ann=[write, blocked, finish, report, "Done."],
    ) as server:
        machines.use_provider(server.url)
        settings = machines.build_settings(files="git")
        async with open_cluster_session(project, machines, cluster_database, settings=settings) as session:
            ref = f"refs/shoal/cluster/{session.id}/ann"
            starts = StartTimes(session, machines, "ann")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_turns(session))
                await wait_for_file(reached)
                async with asyncio.timeout(PATIENCE):
                    while "half" not in run_git(project, "show", f"{ref}:notes.txt", check=False):
                        await asyncio.sleep(0.05)
                before = machines.find_machine(find_member(session, "ann").pid)
                before.kill()
                await starts.wait_for_start(2)
            assert machines.find_machine(find_member(session, "ann").pid) is not before
        assert has_line(server, "lead", "I moved.")
    assert run_git(project, "show", f"{ref}:notes.txt").split("\n") == ["by the lead", "half", "done"]
    assert (project / "notes.txt").read_text() == "by the lead\n"
    restore_machine(before)


def run_git(directory: Path, *arguments: str, check: bool = True) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=directory, check=check, capture_output=True, text=True
    )
    return done.stdout.strip()


async def test_a_member_runs_where_its_resources_are_and_is_refused_where_there_are_none(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    definitions = tmp_path / ".claude" / "agents"
    definitions.mkdir(parents=True)
    (definitions / "second.md").write_text(
        "---\nname: second\ndescription: d\nresources: {labels: {n: '1'}}\n---\nYou work.\n"
    )
    async with run_provider(
        monkeypatch,
        lead=[
            CREATE,
            spawn_member("ann", resources={"cpus": 0.5, "labels": {"n": "0"}}),
            spawn_member("ben", subagent_type="second"),
            spawn_member("cat", subagent_type="second", resources={"labels": {"n": "0"}}),
            spawn_member("dan", resources={"gpus": 8}),
            "They work.",
            "Over.",
            "Over.",
        ],
        ann=[report_done("ann"), "Done."],
        ben=[report_done("ben"), "Done."],
    ) as server:
        machines.use_provider(server.url)
        async with open_cluster_session(tmp_path, machines, cluster_database) as session:
            await run_turns(session)
            places = [machines.find_machine(find_member(session, name).pid) for name in ("ann", "ben")]
            assert places == machines.nodes
            assert {each.name for each in session.teams.list_members()} == {"ann", "ben"}
        assert has_line(server, "lead", "needs a machine with the label n=1, but the call asks for n=0")
        assert has_line(
            server, "lead", "no machine in the cluster has the requested resources (0.1 cpus, 8 gpus)"
        )


async def test_a_member_that_waits_for_a_machine_says_so(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_machine = {"cpus": 2, "labels": {"n": "0"}}
    async with run_provider(
        monkeypatch,
        lead=[
            CREATE,
            spawn_member("ann", resources=whole_machine),
            spawn_member("ben", resources=whole_machine),
            "They work.",
            "Over.",
            "Over.",
        ],
        ann=[wait_for_name("never", "reached"), "Done."],
        ben=[report_done("ben"), "Done."],
    ) as server:
        machines.use_provider(server.url)
        async with open_cluster_session(tmp_path, machines, cluster_database) as session:
            starts = StartTimes(session, machines, "ben")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_turns(session))
                await starts.wait_for_note(
                    "ben is not running yet: it waits until a machine has 2 cpus, n=0 free"
                )
                assert not starts.starts
                await session.stop_task("ann")
                await starts.wait_for_start(1)
        assert has_line(server, "lead", "ben is done.")
