"""Processes of a machine of the tests that are left after a run, although their parents have ended."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from network_namespaces import NamespaceNetwork, explain_no_namespaces
from ray_machines import RayMachine

DAEMON = ("sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & ")
"""The shell ends at once, so the daemon has no parent on the machine."""


def assert_finds_daemon(machine: RayMachine) -> None:
    deadline = time.monotonic() + 30
    while (found := [*machine.list_programs_of_agents().values()]) != ["sleep 1000 "]:
        assert time.monotonic() < deadline, found  # it may not run its program yet
        time.sleep(0.01)


def test_a_daemon_is_found_by_a_variable_of_its_machine(tmp_path: Path) -> None:
    machine, other = (RayMachine(tmp_path / name, (), started="") for name in ("a", "b"))
    subprocess.run(DAEMON, env=os.environ | machine.variables, check=True)
    try:
        assert_finds_daemon(machine)
        assert other.list_programs_of_agents() == {}
    finally:
        machine.kill()
    assert machine.list_programs_of_agents() == {}


@pytest.mark.needs("ip")
def test_a_daemon_without_variables_is_found_by_the_network_of_its_machine(tmp_path: Path) -> None:
    if reason := explain_no_namespaces():
        pytest.skip(reason)
    network = NamespaceNetwork(1)
    machine = RayMachine(tmp_path, (), started="")
    try:
        network.open()
        machine.namespace = network.get_namespace(0)
        subprocess.run([*network.get_prefix(0), "env", "-i", *DAEMON], check=True)
        assert_finds_daemon(machine)
        machine.kill()
        assert machine.list_programs_of_agents() == {}
    finally:
        network.close()
