"""The loss of a head whose machine runs members too."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cluster_helpers import note_figure
from far_team import EARLY_TASKS, FarServices, run_far_team

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
TASKS = 36
NEW_HEAD_SECONDS = 90


@pytest.fixture
def network() -> Iterator[NamespaceNetwork]:
    if reason := explain_no_namespaces():
        pytest.skip(reason)
    network = NamespaceNetwork(3)
    try:
        network.open()
        yield network
    finally:
        network.close()


async def test_a_killed_head_with_members_is_replaced_and_all_members_are_placed_again(
    tmp_path: Path,
    network: NamespaceNetwork,
    own_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The members of the head's machine end with it, and the new head is another cluster for the others."""
    gate = tmp_path / "gate"
    with network.enter_lead(), TemporaryDirectory(prefix="r-", dir="/tmp") as directory:
        machines = RayMachines(Path(directory), 3, network, head_cpus=2)
        services = FarServices(own_server, own_server.create_empty_database("head"))
        try:
            machines.start()
            async with run_far_team(
                tmp_path, machines, services, monkeypatch, members=MEMBERS, task_count=TASKS, gate=gate
            ) as team:
                assert team.find_members_on(machines.head), team.describe()
                starts = {name: len(times) for name, times in team.starts.items()}
                machines.head.kill()
                replaced_at = time.monotonic()
                machines.head.start()
                placed = max(
                    [await team.wait_for_starts({name}, count + 1) for name, count in starts.items()]
                )
                note_figure(
                    "12 members: lost head, seconds from the command until all are placed again",
                    placed - replaced_at,
                )
                assert placed - replaced_at <= scale_to_load(NEW_HEAD_SECONDS)
                assert services.count_completed() == EARLY_TASKS
                gate.touch()
        finally:
            machines.stop()
            services.stop()
