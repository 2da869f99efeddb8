"""Ray clusters for tests: each machine is a set of processes with a home of its own.

The machines are on loopback, or in network namespaces.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from network_namespaces import LEAD_ADDRESS, NamespaceNetwork
from shoal.backends.guardian import collect_descendant_pids, read_process_tree

START_SECONDS = 120
LEAD_KEY = "key-of-the-lead"
_MACHINE_VARIABLE = "TEST_MACHINE"
_PROGRAMS_OF_RAY = re.compile(
    rb"shoal\0cluster\0|/program_fork_server\.py\0|ray\.scripts|/ray/(core|_private|autoscaler|dashboard)/"
    rb"|^ray::(IDLE|DashboardAgent|RuntimeEnvAgent)"
)
"""Command lines of a machine without members."""
_GUARDIAN = re.compile(rb"/guardian\.py\0")


class RayMachine:
    """A machine of the cluster: `shoal cluster head` or `shoal cluster join`, and what they started."""

    def __init__(
        self, directory: Path, arguments: Sequence[str], *, started: str, prefix: Sequence[str] = ()
    ) -> None:
        """`started` is what it prints once it runs; `prefix` is a command that runs the others."""
        self.home = directory / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._prefix = list(prefix)
        self._command = [sys.executable, "-m", "shoal", "cluster", *arguments]
        self._name = f"machine-{uuid4().hex}"
        self.variables = {
            "SHOAL_HOME": str(self.home),
            "HOME": str(self.home),
            "IS_SANDBOX": "1",
            _MACHINE_VARIABLE: self._name,
        }
        """Environment of its programs, in addition to that of the tests."""
        self.namespace: Path | None = None
        """File of the network namespace in which the machine is alone."""
        self.clock_offset = 0
        """Seconds by which the clock of the machine is wrong from its next start on.

        The program that does it fakes the monotonic clock in part, so some waits of threads last longer by
        this, and end at once if it is negative.
        """
        self._started = started
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pids(self) -> set[int]:
        if self._process is None:
            return set()
        return {self._process.pid, *collect_descendant_pids(self._process.pid, read_process_tree())}

    def find_all_pids(self) -> set[int]:
        """Return its processes, also those whose parents have ended.

        They are known by a variable or by the network namespace. Programs can overwrite their variables, so
        all descendants of such a process count too.
        """
        tree = read_process_tree()
        found = self.pids
        namespace = None if self.namespace is None else self.namespace.stat().st_ino
        for pid in (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()):
            if _has_text_in_environment(pid, self._name.encode()) or (
                namespace is not None and _read_network_namespace(pid) == namespace
            ):
                found |= {pid, *collect_descendant_pids(pid, tree)}
        return found

    def list_programs_of_agents(self) -> dict[int, str]:
        """Return the command lines of members, leads and all that they started, by process id.

        These are all programs other than those that run on a machine without members.
        """
        commands = {pid: _read_command(pid) for pid in self.find_all_pids()}
        parents = {pid: _read_parent(pid) for pid in commands}
        return {
            pid: command.replace(b"\0", b" ").decode(errors="replace")
            for pid, command in commands.items()
            if command
            and not _PROGRAMS_OF_RAY.search(command)
            and not (
                _GUARDIAN.search(command)
                and _PROGRAMS_OF_RAY.search(commands.get(parents[pid], b""))
                and b"ray::" not in commands[parents[pid]]
            )
        }

    @property
    def has_members(self) -> bool:
        """True if a process of a teammate runs on it."""
        return any(_is_member_process(pid) for pid in self.pids)

    @property
    def member_pids(self) -> set[int]:
        return set(filter(_is_member_process, self.pids))

    @property
    def raylet_pid(self) -> int:
        """Process of Ray that starts all others on the machine."""
        return next(pid for pid in self.pids if Path(f"/proc/{pid}/comm").read_text().strip() == "raylet")

    def start(self) -> None:
        env = {
            name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "SHOAL"))
        }
        (self._directory / "output").unlink(missing_ok=True)
        with (self._directory / "output").open("wb") as output:
            self._process = subprocess.Popen(
                self.build_command(self._command),
                env=env | self.variables,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def build_command(self, command: Sequence[str]) -> list[str]:
        """Return a command that runs another one on the machine."""
        return [*self._prefix, *self._build_clock_prefix(), *command]

    def _build_clock_prefix(self) -> list[str]:
        return ["faketime", "-f", f"{self.clock_offset:+d}s"] if self.clock_offset else []

    def wait_until_started(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while self._started not in (text := self.read_output()):
            assert self._process.poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.1)

    def read_output(self) -> str:
        return (self._directory / "output").read_text()

    def kill(self) -> None:
        """Kill every process of the machine at once, as if it lost power."""
        pids = self.find_all_pids()
        for pid in pids:
            _send_signal(pid, signal.SIGSTOP)
        for pid in pids | self.find_all_pids():
            _send_signal(pid, signal.SIGKILL)
        self._reap()

    def stop(self) -> None:
        if self._process is None:
            return
        # To all of them: faketime stays between this process and the machine's, and would end alone.
        pids = self.pids
        for pid in pids & _list_group(self._process.pid):
            _send_signal(pid, signal.SIGTERM)
        self._reap()
        deadline = time.monotonic() + 30
        while any(map(_is_running, pids)):
            assert time.monotonic() < deadline, "processes of the machine are left"
            time.sleep(0.05)

    def write_settings(self, settings: dict[str, Any]) -> None:
        (self.home / "settings.json").write_text(json.dumps(settings))

    def _reap(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.wait(timeout=30)


class RayMachines:
    """A head and other machines, on one real machine."""

    def __init__(
        self, directory: Path, count: int, network: NamespaceNetwork | None = None, *, head_cpus: int = 0
    ) -> None:
        self.port = find_free_port()
        self.host = find_host() if network is None else LEAD_ADDRESS
        self.address = f"{self.host}:{self.port}"
        self.head = RayMachine(
            directory / "head",
            ("head", "--port", str(self.port), "--host", self.host, "--cpus", str(head_cpus)),
            started="The head is running",
        )
        self._directory = directory
        self._network = network
        self.nodes = [self._create_node(number, "--cpus", "2") for number in range(count)]

    def _create_node(self, number: int, *offered: str) -> RayMachine:
        host = f"127.0.0.{number + 2}" if self._network is None else self._network.get_address(number)
        node = RayMachine(
            self._directory / f"node-{number}",
            ("join", self.address, "--host", host, "--label", f"n={number}", *offered),
            started="part of the cluster",
            prefix=() if self._network is None else self._network.get_prefix(number),
        )
        if self._network is not None:
            node.namespace = self._network.get_namespace(number)
        return node

    @contextmanager
    def add_node(self, *offered: str, variables: Mapping[str, str] | None = None) -> Iterator[RayMachine]:
        """Let one more machine be part of the cluster, with the given options of `shoal cluster join`."""
        node = self._create_node(len(self.nodes), *offered)
        node.variables |= variables or {}
        self.nodes.append(node)
        try:
            node.start()
            node.wait_until_started()
            yield node
        finally:
            node.stop()
            self.nodes.remove(node)

    @property
    def machines(self) -> list[RayMachine]:
        return [self.head, *self.nodes]

    def start(self) -> None:
        for machine in self.machines:
            machine.start()
        for machine in self.machines:
            machine.wait_until_started()

    def stop(self) -> None:
        for machine in reversed(self.machines):
            machine.stop()

    def use_provider(self, url: str) -> None:
        """Give each machine a key of its own."""
        for number, machine in enumerate(self.machines):
            key = f"key-{number}"
            machine.write_settings({"env": {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": key}})

    def find_machine(self, pid: int) -> RayMachine:
        """Return the machine on which a process runs."""
        return next(machine for machine in self.machines if pid in machine.pids)

    def build_settings(self, files: str = "shared", **cluster: Any) -> str:
        cluster |= {"address": self.address, "files": files}
        own = {"teammate_mode": "ray", "cluster": cluster}
        return json.dumps({"shoal": own, "env": {"ANTHROPIC_API_KEY": LEAD_KEY}})


def _is_member_process(pid: int) -> bool:
    return b"MemberHostActor" in _read_command(pid)


def _has_text_in_environment(pid: int, text: bytes) -> bool:
    try:
        return text in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def _read_network_namespace(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return 0


def _read_command(pid: int) -> bytes:
    """Return the words of a command, each with a zero byte; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _read_parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def find_host() -> str:
    """Return an address of this machine that is not loopback, which Ray would replace; else loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _list_group(group: int) -> set[int]:
    """Return the processes of a process group, without the guardians' groups of other processes."""
    found = set()
    for pid in (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()):
        try:
            if os.getpgid(pid) == group:
                found.add(pid)
        except ProcessLookupError:
            continue
    return found


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _send_signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
