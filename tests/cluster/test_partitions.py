"""Machines in network namespaces that are cut off, hang, have other clocks or a slow link."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
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
from far_team import FarServices, choose_victim, restart_machine, run_far_team, wait_until_no_members

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


@pytest.mark.parametrize("how", ["from everything", "from the lead only"])
async def test_a_machine_that_is_cut_off_is_replaced_and_writes_nothing_more(
    how: str,
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
        async with run_far_team(tmp_path, far_machines, services, monkeypatch) as team:
            number, names = choose_victim(team)
            cut_at = time.monotonic()
            cut(number)
            moved = await team.wait_for_starts(names, 2) - cut_at
            note_figure(f"cut off {how}, seconds until the members work elsewhere", moved)
            assert moved <= scale_to_load(CUT_OFF_SECONDS)
            ended = await wait_until_no_members(far_machines.nodes[number]) - cut_at
            note_figure(f"cut off {how}, seconds until the old processes have ended", ended)
            assert not far_machines.nodes[number].has_members
            reconnect(number)
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
            killed_at = time.monotonic()
            far_machines.nodes[number].kill()
            moved = await team.wait_for_starts(names, 2) - killed_at
            note_figure("killed machine in a namespace, seconds until the members work elsewhere", moved)
            assert moved <= scale_to_load(KILLED_SECONDS)
    finally:
        far_machines.nodes[number].start()
        far_machines.nodes[number].wait_until_started()


@pytest.mark.needs("faketime")
async def test_clocks_that_are_ten_minutes_wrong_change_nothing(
    tmp_path: Path, far_machines: RayMachines, services: FarServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases are measured by the clock of the database alone."""
    for machine, offset in zip(far_machines.nodes, (600, -600), strict=True):
        machine.clock_offset = offset
        restart_machine(machine)
    number = 0
    try:
        async with run_far_team(tmp_path, far_machines, services, monkeypatch) as team:
            number, names = choose_victim(team)
            killed_at = time.monotonic()
            far_machines.nodes[number].kill()
            moved = await team.wait_for_starts(names, 2) - killed_at
            note_figure("killed machine with wrong clocks, seconds until the members work elsewhere", moved)
            assert moved <= scale_to_load(KILLED_SECONDS)
        days = services.read_rows("SELECT max(at) - min(at) FROM shoal.transcript_lines")
        assert days[0][0] < timedelta(minutes=9)  # type: ignore[operator]
    finally:
        for machine in far_machines.nodes:
            machine.clock_offset = 0
            restart_machine(machine)


@pytest.mark.needs("tc")
async def test_a_slow_link_makes_a_team_slow_and_loses_nothing(
    tmp_path: Path,
    network: NamespaceNetwork,
    far_machines: RayMachines,
    services: FarServices,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine has 1 Mbit/s, and every answer of the database takes 60 ms longer."""
    network.limit_rate(0, "1mbit")
    services.relays[0].delay = 0.03
    try:
        async with run_far_team(tmp_path, far_machines, services, monkeypatch) as team:
            assert team.find_members_on(far_machines.nodes[0]), team.describe()
        assert all(len(starts) == 1 for starts in team.starts.values())
    finally:
        services.relays[0].delay = 0.0
        network.lift_rate_limit(0)


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
    project = directory / "project"
    if not project.exists():
        project.mkdir()
        (project / "notes.txt").write_text("by the lead\n")
        for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
            run_git(project, *arguments)
    run_git(directory, "clone", "-q", str(project), name)
    return directory / name
