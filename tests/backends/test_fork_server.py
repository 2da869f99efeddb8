"""The fork server, and cleanup after kills of its processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from process_helpers import wait_for_exit, wait_for_exits_in

from elapsed_times import scale_to_load
from process_search import find_processes_in, wait_for_processes_in

# The fork server itself is tested here, as it starts for users.
pytestmark = pytest.mark.fresh_interpreter

HERE = Path(__file__).parent
OWN_SESSION = "setsid sh -c 'echo up; sleep 999' & sleep 999"
DAEMON = "(setsid sh -c 'echo up; exec >/dev/null; sleep 999' &) ; exec sleep 999"
FAMILIES = {
    "a grandchild": "echo up; exec sleep 999",
    "a grandchild in its own session": OWN_SESSION,
    "a daemon": DAEMON,
    "one that ignores TERM": "trap '' TERM HUP INT; echo up; while :; do sleep 999; done",
    "a stopped one that ignores TERM": "trap '' TERM; echo up; while :; do kill -STOP $$; done",
}


class ForkServerProcess:
    """A fork server and its control socket."""

    def __init__(self, log: Path, *words: str) -> None:
        self.control, theirs = socket.socketpair()
        self.control.settimeout(20)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
        with theirs, log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "shoal.backends.fork_server", *words],
                stdin=theirs,
                stdout=output,
                stderr=output,
                env=env,
                cwd="/",
            )
        self._log = log
        self._lines = self.control.makefile("rb")

    def fork(self, identity: int, cwd: Path, **brief: Any) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(20)
        order = {"spawn": identity, "title": "t", "cwd": str(cwd), "env": {"PATH": os.environ["PATH"]}}
        with theirs, self._log.open("ab") as output:
            socket.send_fds(
                self.control, [json.dumps(order).encode() + b"\n"], [theirs.fileno(), output.fileno()]
            )
        words = json.dumps(brief).encode()
        ours.sendall(len(words).to_bytes(4, "big") + words)
        return ours

    def signal(self, identity: int, number: int) -> None:
        self.control.sendall(json.dumps({"signal": identity, "number": number}).encode() + b"\n")

    def read_message(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._lines.readline())
        return message

    def close(self) -> None:
        self._lines.close()
        self.control.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServerProcess]:
    created = ForkServerProcess(tmp_path / "log", "forked_entry:main")
    yield created
    created.close()
    assert created.process.wait(timeout=60) == 0


@pytest.fixture
def work_directory(tmp_path: Path) -> Path:
    created = tmp_path / "work"
    created.mkdir()
    return created


def test_each_request_is_answered_with_its_id(server: ForkServerProcess, work_directory: Path) -> None:
    lines = [server.fork(n, work_directory, do="exit", status=n) for n in range(1, 21)]
    news = [server.read_message() for _ in range(60)]
    assert sorted(item["started"] for item in news if "started" in item) == list(range(1, 21))
    assert {item["exited"]: item["status"] for item in news if "exited" in item} == {
        n: n for n in range(1, 21)
    }
    assert sorted(item["gone"] for item in news if "gone" in item) == list(range(1, 21))
    for line in lines:
        line.close()


@pytest.mark.parametrize("is_closed_before", [False, True])
def test_a_server_that_still_imports_ends_at_once_with_its_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_closed_before: bool
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setenv("ENDLESS_IMPORT_PIPE", str(pipe))
    words = ("forked_entry:main", "endless_import")
    created = ForkServerProcess(tmp_path / "log", *words)
    if is_closed_before:
        created.close()
    else:
        assert pipe.read_text() == "importing"
        # An order that arrives meanwhile waits and ends nothing.
        with created.fork(1, tmp_path, do="exit", status=0), pytest.raises(subprocess.TimeoutExpired):
            created.process.wait(timeout=0.3)
        created.close()
    try:
        assert created.process.wait(timeout=60) == 1
    finally:
        created.process.kill()
        created.process.wait()


def test_a_failed_start_is_reported_and_the_next_child_starts(
    server: ForkServerProcess, work_directory: Path
) -> None:
    with (
        server.fork(1, work_directory / "missing", do="echo"),
        server.fork(2, work_directory, do="exit", status=0),
    ):
        failed = server.read_message()
        assert failed["failed"] == 1
        assert failed["error"] == f"cannot start in {work_directory}/missing: No such file or directory"
        assert server.read_message()["started"] == 2


def test_a_signal_reaches_the_group_and_processes_that_left_it(
    server: ForkServerProcess, work_directory: Path
) -> None:
    with server.fork(7, work_directory, do="wait", families=[OWN_SESSION, DAEMON]) as line:
        assert line.recv(6) == b"\x00\x00\x00\x02up"
        pid = server.read_message()["pid"]
        os.kill(pid, signal.SIGSTOP)
        server.signal(7, signal.SIGTERM)
        assert server.read_message() == {"exited": 7, "status": -signal.SIGTERM}
        assert server.read_message() == {"gone": 7}
        assert find_processes_in(work_directory) == []


@pytest.mark.slow
@pytest.mark.spec("USR-23")
@pytest.mark.parametrize("family", FAMILIES)
def test_five_seconds_after_kill_9_of_a_child_its_family_is_gone(
    server: ForkServerProcess, work_directory: Path, family: str
) -> None:
    order = {"do": "wait", "families": [FAMILIES[family]]}
    with server.fork(1, work_directory, **order) as line, server.fork(2, work_directory.parent, do="echo"):
        assert line.recv(6) == b"\x00\x00\x00\x02up"
        pid = server.read_message()["pid"]
        assert server.read_message()["started"] == 2
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        assert wait_for_exits_in(work_directory, within=killed + scale_to_load(5) - time.monotonic())
        assert server.read_message() == {"exited": 1, "status": -signal.SIGKILL}
        assert server.read_message() == {"gone": 1}


@pytest.mark.slow
@pytest.mark.parametrize("stubborn", [False, True])
def test_a_server_stops_its_children_and_itself_when_its_socket_closes(
    tmp_path: Path, work_directory: Path, stubborn: bool
) -> None:
    server = ForkServerProcess(tmp_path / "log", "forked_entry:main")
    lines = [
        server.fork(n, work_directory, do="wait", stubborn=stubborn, families=[OWN_SESSION, DAEMON])
        for n in range(3)
    ]
    assert [line.recv(6) for line in lines] == [b"\x00\x00\x00\x02up"] * 3
    server.close()
    assert server.process.wait(timeout=60) == 0
    assert find_processes_in(work_directory) == []
    for line in lines:
        line.close()


def test_a_module_that_starts_a_thread_is_refused(tmp_path: Path) -> None:
    (tmp_path / "threading_module.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    sys.path.append(str(tmp_path))
    try:
        server = ForkServerProcess(tmp_path / "log", "forked_entry:main", "threading_module")
    finally:
        sys.path.remove(str(tmp_path))
    assert server.process.wait(timeout=20) == 1
    assert "starts a thread when imported" in (tmp_path / "log").read_text()
    server.close()


LEAD = """
import asyncio, json, os, sys
from pathlib import Path
from shoal.backends.process_backend import ProcessBackend
from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.core.teams.member_backends import MemberLaunchArgs, MemberProcessLaunchSpec
from shoal.core.clock import SystemClock

place, order = Path(sys.argv[1]), sys.argv[2]

async def main():
    processes = GuardedProcessLauncher(SystemClock())
    backend = ProcessBackend(
        processes, SystemClock(), entry="forked_entry:main", log_directory=place.parent / "logs"
    )
    members = []
    for name in ("one", "two", "three"):
        launch_args = MemberLaunchArgs(
            agent=name + "@crew", name=name, team="crew", color=None, session="s", kind="k", model="m"
        )
        launch = MemberProcessLaunchSpec(
            launch_args=launch_args, cwd=place, env=dict(os.environ), bootstrap=order.encode()
        )
        members.append(await backend.spawn_member(launch))
    for member in members:
        assert await member.channel.receive() == b"up"
    print(processes.guardian_pid, backend.fork_server_pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.spec("USR-23")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("server_is_stopped", [False, True])
@pytest.mark.sampled(4)
def test_five_seconds_after_kill_9_of_the_lead_no_child_of_a_fork_server_is_left(
    tmp_path: Path, work_directory: Path, family: str, server_is_stopped: bool
) -> None:
    order = json.dumps({"do": "wait", "stubborn": True, "families": [FAMILIES[family]]})
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    lead = subprocess.Popen(
        [sys.executable, "-c", LEAD, str(work_directory), order],
        stdout=subprocess.PIPE,
        env=env,
        cwd=tmp_path,
    )
    assert lead.stdout is not None
    with lead.stdout:
        guardian, server = map(int, lead.stdout.readline().split())
        wait_for_processes_in(work_directory, 6)
        if server_is_stopped:
            os.kill(server, signal.SIGSTOP)
        lead.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        lead.wait()
    end = killed + scale_to_load(5)
    assert wait_for_exits_in(work_directory, within=end - time.monotonic()), "a process is left"
    assert wait_for_exit(server, within=end - time.monotonic()), "the fork server is left"
    assert wait_for_exit(guardian, within=end - time.monotonic()), "the guardian is left"
