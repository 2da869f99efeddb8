"""Machines in network namespaces that are cut off, hang, have other clocks or a slow link."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from cluster_helpers import (
    CREATE,
    PATIENCE,
    assert_no_member_process_is_left,
    has_line,
    note_figure,
    run_git,
    start_lead,
)
from far_team import (
    TASKS,
    FarServices,
    choose_victim,
    create_project,
    restart_machine,
    run_far_team,
    wait_until_no_members,
)

from agent_scripts import call_tool
from elapsed_times import scale_to_load
from network_namespaces import SERVICE_ADDRESS, NamespaceNetwork, explain_no_namespaces, relay_to_port
from postgres_server import get_shared_server
from ray_machines import RayMachine, RayMachines
from server_scripts import find_speaker, join_conversation, list_requests_of, run_provider
from team_scripts import send_message, spawn_member

pytestmark = [pytest.mark.exhaustive, pytest.mark.needs("ray", "postgres", "asyncpg", "ip")]
KILLED_SECONDS = 15
CUT_OFF_SECONDS = 30
CLOCK_OFFSETS = (600, -600)


@pytest.fixture(scope="module")
def network() -> Iterator[NamespaceNetwork]:
    if reason := explain_no_namespaces():
        pytest.skip(reason)
    network = NamespaceNetwork(2)
    try:
        network.open()
        yield network
    finally:
        network.close()


@pytest.fixture(scope="module")
def far_machines(network: NamespaceNetwork) -> Iterator[RayMachines]:
    """A head on the lead's machine, and two other machines."""
    with network.enter_lead(), TemporaryDirectory(prefix="r-", dir="/tmp") as directory:
        machines = RayMachines(Path(directory), 2, network)
        try:
            machines.start()
            yield machines
        finally:
            machines.stop()


@pytest.fixture
def services(far_machines: RayMachines, cluster_database: str) -> Iterator[FarServices]:
    services = FarServices(get_shared_server(), cluster_database)
    yield services
    services.stop()


@pytest.mark.parametrize(
    ("how", "files"),
    [("from everything", "shared"), ("from the lead only", "shared"), ("from everything", "git")],
)
async def test_a_machine_that_is_cut_off_is_replaced_and_writes_nothing_more(
    how: str,
    files: str,
    tmp_path: Path,
    network: NamespaceNetwork,
    far_machines: RayMachines,
    services: FarServices,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the lead only: the database and the model still answer the members on the other side."""
    cut, reconnect = (
        (network.cut_off, network.reconnect)
        if how == "from everything"
        else (network.cut_off_from_lead, network.reconnect_to_lead)
    )
    number = 0
    try:
        gate = tmp_path / "gate"
        async with run_far_team(
            tmp_path, far_machines, services, monkeypatch, files=files, gate=gate
        ) as team:
            await team.wait_until_all_wait()
            number, names = choose_victim(team)
            team.note_processes(number)
            assert services.count_completed() < TASKS
            cut_at = time.monotonic()
            cut(number)
            since = services.read_clock()
            gate.touch()
            moved = await team.wait_for_starts(names, 2) - cut_at
            note_figure(f"cut off {how}, seconds until the members work elsewhere", moved)
            assert moved <= scale_to_load(CUT_OFF_SECONDS)
            ended = await wait_until_no_members(far_machines.nodes[number]) - cut_at
            note_figure(f"cut off {how}, seconds until the old processes have ended", ended)
            assert not far_machines.nodes[number].has_members
            reconnect(number)
        assert team.count_lines_of_others(since)
        written = team.count_lines_of_replaced(since)
        assert all(written[name] for name in names) == (how == "from the lead only"), written
    finally:
        network.reconnect(number)
        restart_machine(far_machines.nodes[number])


async def test_a_machine_that_hangs_is_replaced_and_writes_nothing_when_it_continues(
    tmp_path: Path, far_machines: RayMachines, services: FarServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, stopped = 0, set[int]()
    try:
        async with run_far_team(tmp_path, far_machines, services, monkeypatch) as team:
            number, names = choose_victim(team)
            team.note_processes(number, writing_on=names)
            hung_at = time.monotonic()
            stopped = send_signal_to_all(far_machines.nodes[number], signal.SIGSTOP)
            moved = await team.wait_for_starts(names, 2) - hung_at
            note_figure("hanging machine, seconds until the members work elsewhere", moved)
            assert moved <= scale_to_load(CUT_OFF_SECONDS)
            continued_at = time.monotonic()
            send_signal_to_all(far_machines.nodes[number], signal.SIGCONT)
            ended = await wait_until_no_members(far_machines.nodes[number]) - continued_at
            note_figure("hanging machine, seconds from its return until the old processes have ended", ended)
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        restart_machine(far_machines.nodes[number])


def send_signal_to_all(machine: RayMachine, number: signal.Signals) -> set[int]:
    pids = machine.pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return pids


async def test_a_machine_that_is_killed_is_replaced(
    tmp_path: Path, far_machines: RayMachines, services: FarServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = 0
    try:
        async with run_far_team(tmp_path, far_machines, services, monkeypatch) as team:
            number, names = choose_victim(team)
            team.note_processes(number)
            killed_at = time.monotonic()
            far_machines.nodes[number].kill()
            moved = await team.wait_for_starts(names, 2) - killed_at
            note_figure("killed machine in a namespace, seconds until the members work elsewhere", moved)
            assert moved <= scale_to_load(KILLED_SECONDS)
    finally:
        far_machines.nodes[number].start()
        far_machines.nodes[number].wait_until_started()


@contextlib.contextmanager
def set_clocks_wrong(machines: RayMachines) -> Iterator[None]:
    """Let the clock of one machine be ten minutes fast, and that of the other ten minutes slow."""
    try:
        for machine, offset in zip(machines.nodes, CLOCK_OFFSETS, strict=True):
            machine.clock_offset = offset
            restart_machine(machine)
        yield
    finally:
        for machine in machines.nodes:
            machine.clock_offset = 0
            restart_machine(machine)


@contextlib.contextmanager
def slow_down_link(network: NamespaceNetwork, services: FarServices) -> Iterator[None]:
    """Give a machine 1 Mbit/s, and let every answer of the database take 60 ms longer."""
    network.limit_rate(0, "1mbit")
    services.relays[0].delay = 0.03
    try:
        yield
    finally:
        services.relays[0].delay = 0.0
        network.lift_rate_limit(0)


def check_clocks_of_members(services: FarServices) -> None:
    """The processes of the members and their commands had the wrong time; the database had the right one."""
    rows = services.read_rows(
        "SELECT extract(epoch FROM at)::bigint, convert_from(line, 'UTF8') FROM shoal.transcript_lines "
        "WHERE agent <> 'lead'"
    )
    by_commands, by_members = set(), set()
    for at, text in rows:
        if found := re.search(r"time=(\d{9,})", str(text)):
            by_commands.add(int(found[1]) - int(str(at)))
        if written := json.loads(str(text)).get("timestamp"):
            by_members.add(int(datetime.fromisoformat(written).timestamp()) - int(str(at)))
    for differences in (by_commands, by_members):
        # A line is stored at most a minute after the moment that it names.
        late = {
            offset: [each for each in differences if -60 <= each - offset <= 5] for offset in CLOCK_OFFSETS
        }
        assert all(late.values()), differences
        assert sum(map(len, late.values())) == len(differences), differences
    (spread,) = services.read_rows("SELECT max(at) - min(at) FROM shoal.transcript_lines")[0]
    assert isinstance(spread, timedelta)
    assert spread < timedelta(minutes=9)


@pytest.mark.needs("faketime")
@pytest.mark.parametrize("files", ["shared", "git"])
async def test_clocks_that_are_ten_minutes_wrong_change_nothing(
    files: str,
    tmp_path: Path,
    far_machines: RayMachines,
    services: FarServices,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Leases are measured by the clock of the database alone."""
    with set_clocks_wrong(far_machines):
        async with run_far_team(tmp_path, far_machines, services, monkeypatch, files=files) as team:
            number, names = choose_victim(team)
            team.note_processes(number)
            killed_at = time.monotonic()
            far_machines.nodes[number].kill()
            moved = await team.wait_for_starts(names, 2) - killed_at
            note_figure("killed machine with wrong clocks, seconds until the members work elsewhere", moved)
            assert moved <= scale_to_load(KILLED_SECONDS)
        check_clocks_of_members(services)


@pytest.mark.needs("tc")
@pytest.mark.parametrize("files", ["shared", "git"])
async def test_a_slow_link_makes_a_team_slow_and_loses_nothing(
    files: str,
    tmp_path: Path,
    network: NamespaceNetwork,
    far_machines: RayMachines,
    services: FarServices,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with slow_down_link(network, services):
        async with run_far_team(tmp_path, far_machines, services, monkeypatch, files=files) as team:
            assert team.find_members_on(far_machines.nodes[0]), team.describe()
        assert all(len(starts) == 1 for starts in team.starts.values())


@pytest.mark.needs("faketime", "tc")
async def test_wrong_clocks_a_slow_link_and_a_partition_together_lose_nothing_of_git(
    tmp_path: Path,
    network: NamespaceNetwork,
    far_machines: RayMachines,
    services: FarServices,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The machine with the slow clock is cut off: a fast clock would delay the end of its processes."""
    number = 1
    with set_clocks_wrong(far_machines), slow_down_link(network, services):
        try:
            gate = tmp_path / "gate"
            async with run_far_team(
                tmp_path, far_machines, services, monkeypatch, files="git", gate=gate
            ) as team:
                await team.wait_until_all_wait()
                names = team.find_members_on(far_machines.nodes[number])
                assert names
                team.note_processes(number)
                assert services.count_completed() < TASKS
                network.cut_off_from_lead(number)
                since = services.read_clock()
                gate.touch()
                await team.wait_for_starts(names, 2)
                await wait_until_no_members(far_machines.nodes[number])
                network.reconnect_to_lead(number)
            assert team.count_lines_of_others(since)
            written = team.count_lines_of_replaced(since)
            assert all(written[name] for name in names), written
        finally:
            with contextlib.suppress(subprocess.CalledProcessError):
                network.reconnect_to_lead(number)
        check_clocks_of_members(services)


SESSION = "b0000000-0000-4000-8000-000000000051"


@pytest.mark.needs("unshare")
async def test_the_lead_of_a_lost_machine_is_resumed_on_another_with_its_team(
    tmp_path: Path, far_machines: RayMachines, services: FarServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each machine has its own home, its own clone of the project, and its own model key."""
    lost, other = far_machines.nodes
    reached = tmp_path / "reached"
    lead_script: list[Any] = [
        CREATE,
        [call_tool("TaskCreate", f"t{n}", subject=f"task {n}", description="d") for n in (1, 2)],
        spawn_member("ann"),
        call_tool("Bash", "b", command=f"while [ ! -e {reached} ]; do sleep 0.1; done"),
        send_message("ann", "Use slates."),
        "Ann works.",
        "Over.",
    ]
    ann: list[Any] = [
        [
            call_tool("Bash", "b1", command="echo the first command | tee slates.txt"),
            call_tool("TaskUpdate", "u1", taskId="1", status="in_progress", owner="ann"),
        ],
        call_tool("Bash", "b2", command=f"touch {reached}; sleep 600"),
        [
            call_tool("Bash", "b3", command="cat slates.txt; echo the roof > roof.txt"),
            send_message("team-lead", "I moved.", "report"),
            call_tool("TaskUpdate", "u2", taskId="1", status="completed"),
        ],
        "Ready.",
        call_tool("TaskUpdate", "u3", taskId="2", status="completed"),
        "Done.",
    ]
    async with run_provider(monkeypatch, lead=lead_script, ann=ann) as server:
        relay = relay_to_port(int(server.url.rpartition(":")[2]))
        relay.start()
        services.relays.append(relay)
        far_machines.use_provider(f"http://{SERVICE_ADDRESS}:{relay.port}")
        monkeypatch.setenv("SHOAL_STORE", services.store)
        monkeypatch.delenv("ANTHROPIC_BASE_URL")
        monkeypatch.delenv("ANTHROPIC_API_KEY")
        settings = json.dumps({"shoal": json.loads(far_machines.build_settings("git"))["shoal"]})
        arguments = ("--settings", settings, "--model", "anthropic:claude-sonnet-4-5")
        arguments += ("--permission-mode", "bypassPermissions")
        try:
            lead = await start_lead(
                create_clone(tmp_path, "here"),
                "Build the roof.",
                *("--session-id", SESSION, *arguments),
                machine=lost,
            )
            async with asyncio.timeout(PATIENCE):
                while "Ann works." not in join_conversation_of_lead(services):
                    await asyncio.sleep(0.1)
            assert not has_line(server, "ann", "Use slates.")
            lead.kill()
            lost.kill()
            await lead.wait()
            shutil.rmtree(tmp_path / "here")
            await wait_until_no_members(other)
            again = await start_lead(
                create_clone(tmp_path, "there"), "Continue.", "--resume", SESSION, *arguments, machine=other
            )
            async with asyncio.timeout(PATIENCE):
                assert await again.wait() == 0
        finally:
            restart_machine(lost)
        first, *_, last = [each for each in server.requests if find_speaker(each.body) == "lead"]
        assert (first.headers["x-api-key"], last.headers["x-api-key"]) == ("key-1", "key-2")
        told = join_conversation(last.body)
        for text in ("Build the roof.", "Ann works.", "Continue.", "I moved."):
            assert text in told
        last_of_ann = join_conversation(list_requests_of(server, "ann")[-1])
        assert "the first command" in last_of_ann
        assert last_of_ann.count("Use slates.") == 1
    ref = f"refs/shoal/cluster/{SESSION}/ann"
    found = [run_git(tmp_path / "there", "show", f"{ref}:{name}") for name in ("slates.txt", "roof.txt")]
    assert found == ["the first command", "the roof"]
    assert services.count_completed() == 2
    await assert_no_member_process_is_left(far_machines)


def join_conversation_of_lead(services: FarServices) -> str:
    if services.read_rows("SELECT to_regclass('shoal.transcript_lines')")[0][0] is None:
        return ""
    rows = services.read_rows(
        "SELECT convert_from(line, 'UTF8') FROM shoal.transcript_lines WHERE agent = 'lead'"
    )
    return "\n".join(str(row[0]) for row in rows)


def create_clone(directory: Path, name: str) -> Path:
    """Clone the project of the test; create it first."""
    if not (project := directory / "project").exists():
        create_project(directory)
    run_git(directory, "clone", "-q", str(project), name)
    return directory / name
