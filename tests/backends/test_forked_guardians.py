"""Guardians and fork servers that tests fork behave like those that a session starts."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

import program_forks
from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.backends.process_backend import ChildProcessLog, ForkedChildSpec, start_fork_server
from shoal.backends.socket_channel import SocketChannel
from shoal.core.clock import SystemClock
from shoal.core.ports import ProcessLaunchSpec

pytestmark = pytest.mark.skipif(not program_forks.can_fork(), reason="guardians are forked on Linux only")

DESCRIBE = """
import json, os, signal
masks = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(json.dumps({
    "cwd": os.getcwd(), "env": dict(os.environ), "fds": sorted(os.listdir("/proc/self/fd")),
    "own": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "signals": [masks[name] for name in ("SigIgn", "SigBlk", "SigCgt")],
    "umask": masks["Umask"], "command": open(f"/proc/{os.getppid()}/cmdline").read().split("\\0")[1:4],
}))
"""
OWN = ("pid", "parent", "session", "group", "line", "chance", "frozen", "full_collections", "imported")
"""What differs between processes, and what a fork leaves."""


@pytest.fixture(autouse=True)
def _fork_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_forks, "FIRST_FORKED", 1)
    program_forks.wait_for_fork_server(os.environ)


async def describe_program(tmp_path: Path) -> dict[str, Any]:
    """Return what a program of a guardian sees of itself."""
    output = tmp_path / "described"
    launcher = GuardedProcessLauncher(SystemClock())
    try:
        with output.open("wb") as file:
            process = await launcher.start_process(
                ProcessLaunchSpec(
                    argv=[sys.executable, "-c", DESCRIBE],
                    cwd=tmp_path,
                    env={"PATH": os.environ["PATH"], "ODD": "\udcff"},
                    stdin=None,
                    stdout=file.fileno(),
                    stderr=file.fileno(),
                )
            )
        assert await process.wait() == 0, output.read_text()
    finally:
        await launcher.aclose()
    described: dict[str, Any] = json.loads(output.read_text())
    return described


async def test_a_program_of_a_forked_guardian_sees_what_one_of_a_started_guardian_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = await describe_program(tmp_path)
    monkeypatch.setattr(program_forks, "_is_paused", True)
    started = await describe_program(tmp_path)
    assert forked.pop("command")[0] == str(program_forks.SERVER_PROGRAM)
    assert started.pop("command")[0] == "-I"
    assert forked == started


async def describe_child(tmp_path: Path) -> dict[str, Any]:
    """Return what a child of a fork server sees of itself, and whether they are related as they should be."""
    launcher = GuardedProcessLauncher(SystemClock())
    log = ChildProcessLog(tmp_path / "server.log")
    server = await start_fork_server(
        launcher,
        SystemClock(),
        entry="forked_entry:main",
        preload=(),
        log=log,
        temporary_files=tmp_path / "files",
    )
    try:
        own_end, child_end = socket.socketpair()
        line = SocketChannel(own_end)
        line.send(json.dumps({"do": "describe"}).encode())
        with child_end:
            spec = ForkedChildSpec(
                name="ann",
                cwd=tmp_path,
                env={"PATH": "/bin", "TZ": "Asia/Tokyo"},
                channel=child_end.fileno(),
                log=ChildProcessLog(tmp_path / "child.log"),
            )
            child = await server.fork_child(spec)
        async with asyncio.timeout(60):
            described: dict[str, Any] = json.loads(await line.receive() or b"")
            assert await child.wait() == 0
        line.close()
        command = Path(f"/proc/{server.pid}/cmdline").read_text()
        described["is forked"] = str(program_forks.SERVER_PROGRAM) in command
        described["title"] = Path(f"/proc/{server.pid}/comm").read_text()
        described["server"] = [
            os.getsid(server.pid) == server.pid,
            described["parent"] == server.pid,
            described["session"] == described["group"] == described["pid"],
        ]
        status = Path(f"/proc/{server.pid}/status").read_text().splitlines()
        # Without the two that the C library ignores in a process that it spawns.
        described["signals"] = [
            int(line.split()[1], 16) & 0x7FFF_FFFF
            for line in status
            if line.startswith(("SigIgn", "SigBlk", "SigCgt"))
        ]
    finally:
        await server.close()
        await launcher.aclose()
    return described


async def test_a_child_of_a_forked_fork_server_sees_what_one_of_a_started_server_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = await describe_child(tmp_path)
    monkeypatch.setattr(program_forks, "_is_paused", True)
    started = await describe_child(tmp_path)
    assert [forked.pop("is forked"), started.pop("is forked")] == [True, False]
    assert set(started["imported"]) <= set(forked["imported"])
    for name in OWN:
        del forked[name], started[name]
    assert forked == started


async def test_a_test_that_sets_variables_of_the_interpreter_has_a_started_guardian(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "en_US.ISO-8859-1")
    assert (await describe_program(tmp_path))["command"][0] == "-I"
