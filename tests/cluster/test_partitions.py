"""Machines in network namespaces that are cut off, hang, have other clocks or a slow link."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cluster_helpers import note_figure
from far_team import FarServices, choose_victim, restart_machine, run_far_team, wait_until_no_members

from network_namespaces import NamespaceNetwork, explain_no_namespaces
from postgres_server import get_shared_server
from ray_machines import RayMachine, RayMachines

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
            assert moved <= CUT_OFF_SECONDS
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
            assert moved <= CUT_OFF_SECONDS
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
            assert moved <= KILLED_SECONDS
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
            assert moved <= KILLED_SECONDS
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
