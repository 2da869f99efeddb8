"""Twelve members on three machines do a board, while one part after another is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cluster_helpers import (
    assert_no_member_process_is_left,
    note_figure,
    restore_machine,
    start_lead,
    wait_until_all_joined,
)
from far_team import (
    FarServices,
    check_board,
    check_reports,
    choose_victim,
    restart_machine,
    run_far_team,
    run_minds,
    wait_until_no_members,
)

from elapsed_times import scale_to_load
from network_namespaces import NamespaceNetwork, explain_no_namespaces
from postgres_server import PostgresServer
from ray_machines import RayMachines

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.needs("ray", "postgres", "asyncpg", "ip"),
    pytest.mark.timeout(600),
]
MEMBERS = tuple(f"m{number:02}" for number in range(1, 13))
TASKS = 96
PARTITION_SECONDS = 60
KILLED_SECONDS = 15
SESSION = "b0000000-0000-4000-8000-000000000012"


@pytest.fixture(scope="module")
def network() -> Iterator[NamespaceNetwork]:
    if reason := explain_no_namespaces():
        pytest.skip(reason)
    network = NamespaceNetwork(3)
    try:
        network.open()
        yield network
    finally:
        network.close()


@pytest.fixture(scope="module")
def three_machines(network: NamespaceNetwork) -> Iterator[RayMachines]:
    with network.enter_lead(), TemporaryDirectory(prefix="r-", dir="/tmp") as directory:
        machines = RayMachines(Path(directory), 3, network)
        try:
            machines.start()
            yield machines
        finally:
            machines.stop()


@pytest.fixture
def services(three_machines: RayMachines, own_server: PostgresServer) -> Iterator[FarServices]:
    services = FarServices(own_server, own_server.create_empty_database("twelve"))
    yield services
    services.stop()


async def test_the_members_of_killed_processes_and_of_a_killed_raylet_are_started_again(
    tmp_path: Path, three_machines: RayMachines, services: FarServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = 0
    try:
        async with run_far_team(
            tmp_path, three_machines, services, monkeypatch, members=MEMBERS, task_count=TASKS
        ) as team:
            assert all(team.find_members_on(machine) for machine in three_machines.nodes)
            number, names = choose_victim(team)
            killed_at = time.monotonic()
            for pid in three_machines.nodes[number].member_pids:
                os.kill(pid, signal.SIGKILL)
            moved = await team.wait_for_starts(names, 2) - killed_at
            note_figure("12 members: killed processes, seconds until they are started again", moved)
            starts = {name: len(times) for name, times in team.starts.items()}
            number, names = choose_victim(team)
            killed_at = time.monotonic()
            os.kill(three_machines.nodes[number].raylet_pid, signal.SIGKILL)
            for name in names:
                await team.wait_for_starts({name}, starts[name] + 1)
            note_figure(
                "12 members: killed raylet, seconds until they are started again",
                time.monotonic() - killed_at,
            )
    finally:
        restart_machine(three_machines.nodes[number])


async def test_the_members_of_a_killed_machine_work_on_the_others(
    tmp_path: Path, three_machines: RayMachines, services: FarServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = 0
    try:
        async with run_far_team(
            tmp_path, three_machines, services, monkeypatch, members=MEMBERS, task_count=TASKS
        ) as team:
            number, names = choose_victim(team)
            assert services.count_completed() < TASKS
            killed_at = time.monotonic()
            three_machines.nodes[number].kill()
            moved = await team.wait_for_starts(names, 2) - killed_at
            note_figure("12 members: killed machine, seconds until all work elsewhere", moved)
            assert moved <= scale_to_load(KILLED_SECONDS)
    finally:
        restore_machine(three_machines.nodes[number])


@pytest.mark.parametrize("seconds", [20, 60])
async def test_a_killed_database_delays_the_team_and_loses_nothing(
    tmp_path: Path,
    three_machines: RayMachines,
    services: FarServices,
    monkeypatch: pytest.MonkeyPatch,
    seconds: int,
) -> None:
    """Longer than a lease, and longer than the lead waits for an answer of a silent member."""
    async with run_far_team(
        tmp_path, three_machines, services, monkeypatch, members=MEMBERS, task_count=TASKS
    ) as team:
        # In a thread, because the lead runs in this one and waits for the database.
        await asyncio.to_thread(interrupt_database, services.server, seconds)
        before = services.count_completed()
        assert before < TASKS
        await team.wait_for_completed(before + 1)
    assert {name: len(times) for name, times in team.starts.items()} == dict.fromkeys(MEMBERS, 1)


def interrupt_database(server: PostgresServer, seconds: float) -> None:
    server.kill()
    try:
        time.sleep(seconds)
    finally:
        server.start()


async def test_a_killed_head_does_not_stop_the_work(
    tmp_path: Path, three_machines: RayMachines, services: FarServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_far_team(
        tmp_path, three_machines, services, monkeypatch, members=MEMBERS, task_count=TASKS
    ) as team:
        three_machines.head.kill()
        try:
            await team.wait_for_completed(services.count_completed() + len(MEMBERS))
        finally:
            three_machines.head.start()
    three_machines.head.wait_until_started()
    await wait_until_all_joined(three_machines, tmp_path)


async def test_writes_on_both_sides_of_a_partition_of_a_minute_are_neither_lost_nor_doubled(
    tmp_path: Path,
    network: NamespaceNetwork,
    three_machines: RayMachines,
    services: FarServices,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Members that lost their lead still reach the database and the model.

    Half of the members on the cut side write at once. The processes of the others are stopped, and try to
    write when their successors have started.
    """
    number, gate = 0, tmp_path / "gate"
    try:
        async with run_far_team(
            tmp_path, three_machines, services, monkeypatch, members=MEMBERS, task_count=TASKS, gate=gate
        ) as team:
            await team.wait_until_all_wait()
            number, names = choose_victim(team)
            late = set(sorted(names)[::2])
            team.note_processes(number, writing_on=late)
            assert services.count_completed() < TASKS
            cut_at = time.monotonic()
            network.cut_off_from_lead(number)
            since = services.read_clock()
            pids = {each.pid for each in team.session.teams.list_members() if each.name in late}
            send_signal(pids, signal.SIGSTOP)
            try:
                gate.touch()
                await team.wait_for_starts(names, 2)
            finally:
                send_signal(pids, signal.SIGCONT)
            await wait_until_no_members(three_machines.nodes[number])
            await asyncio.sleep(max(0.0, cut_at + PARTITION_SECONDS - time.monotonic()))
            assert team.count_lines_of_others(since)
            written = team.count_lines_of_replaced(since)
            assert {name for name in names if written[name]} == names - late, written
            network.reconnect_to_lead(number)
    finally:
        restart_machine(three_machines.nodes[number])


def send_signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


async def test_a_killed_lead_is_resumed_and_its_team_completes_the_board(
    tmp_path: Path, three_machines: RayMachines, services: FarServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--settings", three_machines.build_settings(), "--model", "anthropic:claude-sonnet-4-5")
    arguments += ("--permission-mode", "bypassPermissions")
    monkeypatch.setenv("SHOAL_STORE", services.store)
    async with run_minds(three_machines, services, monkeypatch, MEMBERS, TASKS) as (workers, _):
        lead = await start_lead(tmp_path, "Go.", "--session-id", SESSION, *arguments)
        await wait_for_tables(services)
        services.watch_tasks()
        await services.wait_for_completed(len(MEMBERS))
        lead.kill()
        await lead.wait()
        await assert_no_member_process_is_left(three_machines)
        again = await start_lead(tmp_path, "Continue.", "--resume", SESSION, *arguments)
        async with asyncio.timeout(300):
            assert await again.wait() == 0
        check_board(services, TASKS)
        check_reports(services, workers, TASKS)
    await assert_no_member_process_is_left(three_machines)


async def wait_for_tables(services: FarServices) -> None:
    async with asyncio.timeout(60):
        while services.read_rows("SELECT to_regclass('shoal.tasks')")[0][0] is None:
            await asyncio.sleep(0.05)
