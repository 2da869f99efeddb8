"""Parts of the Ray backend that need no cluster."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from shoal.backends import ray_settings
from shoal.backends.ray_backend import RayBackend, RayBackendSettings, RayEntryPoints
from shoal.backends.ray_driver import (
    build_actor_options,
    describe_node,
    explain_impossible_placement,
    explain_wait,
)
from shoal.backends.ray_hosts import RayHost
from shoal.backends.ray_node import RayNodeSpec, build_ray_start_command
from shoal.backends.ray_placements import RayDriverClient, RayPlacement
from shoal.backends.ray_settings import RAY_ENVIRONMENT
from shoal.backends.socket_channel import SocketChannel
from shoal.core.clock import SystemClock

ASKED = {"cpus": 1.0, "memory": 0, "gpus": 0.0, "labels": {}}


def make_node(*, alive: bool = True, cpus: float = 2.0, gpus: float = 0.0, **labels: str) -> dict[str, Any]:
    return {
        "NodeID": "n",
        "NodeManagerAddress": "192.0.2.5",
        "Alive": alive,
        "Resources": {"CPU": cpus, "GPU": gpus, "memory": 1 << 30},
        "Labels": {"ray.io/node-id": "n", **labels},
    }


def test_a_request_that_no_machine_can_meet_is_refused_with_what_was_asked() -> None:
    nodes = [make_node(), make_node(gpus=1.0, alive=False), make_node(disk="fast")]
    assert explain_impossible_placement(nodes, ASKED) == ""
    assert explain_impossible_placement(nodes, {**ASKED, "labels": {"disk": "fast"}}) == ""
    for more, told in (
        ({"gpus": 1.0}, "1 gpus"),
        ({"cpus": 3.0}, "3 cpus"),
        ({"memory": 1 << 40}, "memory"),
        ({"labels": {"disk": "slow"}}, "disk=slow"),
    ):
        reason = explain_impossible_placement(nodes, {**ASKED, **more})
        assert told in reason
        assert "shoal cluster status" in reason
    assert explain_impossible_placement([], ASKED)


def test_a_dead_machine_is_described_without_resources() -> None:
    """Ray lists machines that have died, without what they offered."""
    alive = describe_node(make_node(disk="fast"))
    assert (alive["is_alive"], alive["cpus"], alive["memory"]) == (True, 2.0, 1 << 30)
    dead = describe_node({**make_node(alive=False, disk="fast"), "Resources": {}})
    assert dead == {**alive, "is_alive": False, "cpus": 0.0, "gpus": 0.0, "memory": 0}


def test_an_actor_outlives_the_process_that_started_it_and_is_not_restarted_by_ray() -> None:
    options = build_actor_options("k1", {**ASKED, "gpus": 0.5, "labels": {"disk": "fast"}}, None)
    assert options["lifetime"] == "detached"
    assert options["max_restarts"] == 0
    assert (options["num_cpus"], options["num_gpus"], options["label_selector"]) == (
        1.0,
        0.5,
        {"disk": "fast"},
    )
    assert "memory" not in options


def test_the_command_of_a_machine_is_rays_own(tmp_path: Path) -> None:
    head = build_ray_start_command(RayNodeSpec(port=7000, host="192.0.2.5", cpus=0), tmp_path)
    assert head[1:4] == ["-m", "ray.scripts.scripts", "start"]
    assert {"--head", "--port=7000", "--node-ip-address=192.0.2.5", "--num-cpus=0", "--block"} <= set(head)
    joined = build_ray_start_command(
        RayNodeSpec(address="192.0.2.5:7000", labels={"disk": "fast", "zone": "b"}), tmp_path
    )
    assert {"--address=192.0.2.5:7000", "--labels=disk=fast,zone=b"} <= set(joined)
    assert "--head" not in joined


def test_ray_sends_no_statistics_and_notices_lost_machines_soon() -> None:
    assert RAY_ENVIRONMENT["RAY_USAGE_STATS_ENABLED"] == "0"
    assert int(RAY_ENVIRONMENT["RAY_health_check_period_ms"]) <= 1000


@pytest.mark.parametrize("call", ["", "actor.run('time:sleep', 0.3)"])
def test_the_process_of_an_actor_that_nobody_calls_ends(call: str) -> None:
    program = (
        "import sys, time, types\n"
        "from shoal.backends.ray_actor import MemberHostActor\n"
        "sys.modules['ray'] = types.SimpleNamespace("
        "actor=types.SimpleNamespace(exit_actor=lambda: sys.exit(7)))\n"
        f"actor = MemberHostActor(order_timeout=0.1)\n{call}\ntime.sleep(60)"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=30, check=False)
    assert done.returncode == (7 if call else 1)


class ProcessOfDriver:
    """Handle of a driver that is this test."""

    pid = 0

    async def stop(self, *, grace: float) -> None:
        return


async def test_a_process_whose_connection_is_lost_is_killed_because_it_may_only_be_cut_off() -> None:
    async def end_lease(epoch: int) -> None:
        raise AssertionError(epoch)

    clock = SystemClock()
    lead_end, driver_end = socket.socketpair()
    driver = RayDriverClient(ProcessOfDriver(), lead_end, clock)  # type: ignore[arg-type]
    placement = RayPlacement("key", driver, clock, end_lease=end_lease, report_wait=lambda _: None)
    here, there = socket.socketpair()
    host = RayHost(placement, SocketChannel(here))
    slot = host.open_slot()
    there.close()
    async with asyncio.timeout(30):
        await host.serve()
    assert slot.ended.is_set()
    driver_end.settimeout(30)
    assert driver_end.recv(100) == b'{"kill": "key"}\n'
    await driver.aclose()
    driver_end.close()


async def test_a_missing_extra_is_explained_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_settings, "find_spec", lambda _: None)

    async def end_lease(epoch: int) -> None:
        raise AssertionError(epoch)

    backend = RayBackend(
        RayBackendSettings(address="127.0.0.1:1", lead_host=None, cpus=0.1),
        None,  # type: ignore[arg-type]
        SystemClock(),
        entry_points=RayEntryPoints(member="unused:unused", host="unused:unused"),
        end_lease=end_lease,
        log_directory=tmp_path,
    )
    assert (await backend.explain_unavailable()).endswith("pip install 'shoal[ray,postgres]'")


def test_a_teammate_that_waits_is_explained_with_the_machines_that_could_run_it() -> None:
    nodes = [make_node(disk="fast"), make_node(alive=False, disk="fast")]
    reason = explain_wait(nodes, {**ASKED, "labels": {"disk": "fast"}})
    assert "1 cpus, disk=fast" in reason
    assert reason.endswith(": 192.0.2.5")


def test_the_manifest_for_kubernetes_sets_the_same_variables() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "run-on-several-machines.md").read_text()
    block = next(
        block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "RayCluster" in block
    )
    spec = yaml.safe_load(textwrap.dedent(block))["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        assert {each["name"]: each["value"] for each in container["env"]} == RAY_ENVIRONMENT
