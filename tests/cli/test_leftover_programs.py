"""Background commands whose lead and guardian were killed together."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from shoal_process import MODEL, ShoalProgram

from process_search import find_processes_in
from shoal.backends.guardian import (
    RECORD_VARIABLE,
    START_FIELD,
    end_leftover_processes,
    open_process_record,
    read_boot_id,
    read_process_stat,
)
from shoal.testing import make_tool_call, messages_server
from shoal.testing.mock_replies import StalledStreamFault

COMMANDS = {
    "children": "sh -c 'echo > pipe; exec sleep 301' & echo > pipe; exec sleep 300",
    # A daemon: its session is another one, and its parent has ended.
    "daemon": "(setsid sh -c 'echo > pipe; exec sleep 301' &) ; echo > pipe; exec sleep 300",
    "daemon of an ended command": "(setsid sh -c 'sleep 300 & echo > pipe; exec sleep 301' &)",
    "daemon without environment": "(env -i setsid sh -c 'sleep 300 & echo > pipe; exec sleep 301' &)",
}


async def leave_background_command(shoal: ShoalProgram, home: Path, command: str) -> None:
    """Kill a run and its guardian at once while a command runs, or what the command has started."""
    start = make_tool_call("Bash", command=COMMANDS[command], run_in_background=True)
    script = [start, ["hello", StalledStreamFault(after=2)], "again"]
    os.mkfifo(shoal.project / "pipe")
    # Some sandboxes end their commands with the guardian.
    (home / "settings.json").write_text(json.dumps({"shoal": {"sandbox": {"enabled": False}}}))
    async with messages_server(script) as server:
        shoal.use_server(server)
        async with shoal.start_process("-p", "go", "--model", MODEL, "--dangerously-skip-permissions") as run:
            assert run.stdin is not None
            run.stdin.close()
            await server.wait_for_requests(2, within=30)
            await asyncio.to_thread((shoal.project / "pipe").read_bytes)
            if command == "daemon without environment":
                await asyncio.to_thread(wait_for_recorded_process, home, shoal.project)
            (record,) = (home / "shoal" / "guardians").iterdir()
            guardian = int(record.name.partition("-")[0])
            os.kill(guardian, signal.SIGSTOP)  # it cannot end anything between the two kills
            run.kill()
            os.kill(guardian, signal.SIGKILL)
            await run.wait()
    assert len(find_processes_in(shoal.project)) >= 2


def wait_for_recorded_process(home: Path, project: Path) -> None:
    """Wait until the guardian has recorded a process that outlives its command."""
    (record,) = (home / "shoal" / "guardians").iterdir()
    deadline = time.monotonic() + 30
    while not {int(line.split()[0]) for line in record.read_text().splitlines()[1:]} & find_sleeping(project):
        assert time.monotonic() < deadline, record.read_text()
        time.sleep(0.01)


def find_sleeping(project: Path) -> set[int]:
    """Return the `sleep` processes of the project. The shell of the command may still be ending."""
    sleeping = set()
    for pid in find_processes_in(project):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "sleep":
                sleeping.add(pid)
    return sleeping


@pytest.mark.spec("LIM-06")
@pytest.mark.parametrize(
    ("next_command", "command"),
    [
        ("resume", "children"),
        ("doctor", "children"),
        ("other run", "children"),
        *(("doctor", name) for name in COMMANDS if name != "children"),
    ],
)
async def test_programs_of_a_killed_run_are_found_and_ended(
    shoal: ShoalProgram, home: Path, next_command: str, command: str
) -> None:
    await leave_background_command(shoal, home, command)
    async with messages_server([make_tool_call("Bash", command="true"), "done"]) as server:
        shoal.use_server(server)
        if next_command == "resume":
            found = await shoal("-p", "on", "--model", MODEL, "--continue")
        elif next_command == "other run":
            found = await shoal("-p", "other", "--model", MODEL)
        else:
            found = await shoal("doctor")
    assert not find_processes_in(shoal.project)
    assert not list((home / "shoal" / "guardians").iterdir())
    assert "that a killed run had left running" in found.err + found.text


@pytest.mark.spec("LIM-06")
def test_a_reused_pid_is_never_killed(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        try:
            stat = read_process_stat(stranger.pid)
            assert stat is not None
            other_start = int(stat[START_FIELD]) - 1
            (tmp_path / "1-aa").write_text(f"boot {read_boot_id()}\n{stranger.pid} {other_start}\n")
            (tmp_path / "2-bb").write_text(f"boot another\n{stranger.pid} {stat[START_FIELD].decode()}\n")
            (tmp_path / "3-cc").write_text("\0\0\0")
            assert end_leftover_processes(str(tmp_path)) == []
            assert stranger.poll() is None
            assert not list(tmp_path.iterdir())
            (tmp_path / "4-dd").write_text(
                f"boot {read_boot_id()}\n{stranger.pid} {stat[START_FIELD].decode()}\n"
            )
            assert end_leftover_processes(str(tmp_path)) == [stranger.pid]
            assert stranger.wait(10) == -signal.SIGKILL
        finally:
            stranger.kill()


@pytest.mark.spec("LIM-06")
def test_what_an_ended_command_left_behind_is_ended_if_its_environment_names_the_record(
    tmp_path: Path,
) -> None:
    """The recorded process is gone; two members of its session are left, one without the variable."""
    shell = "env -u SHOAL_GUARDIAN sh -c 'echo 1 $$; exec sleep 61' & sh -c 'echo 2 $$; exec sleep 60' &"
    leader = subprocess.Popen(
        ["sh", "-c", shell],
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, RECORD_VARIABLE: "1-aa"},
    )
    assert leader.stdout is not None
    started = sorted(leader.stdout.readline().split() for _ in range(2))
    unmarked, marked = (int(pid) for _, pid in started)
    leader.wait()
    try:
        (tmp_path / "1-aa").write_text(f"boot {read_boot_id()}\n{leader.pid} 5\n")
        assert end_leftover_processes(str(tmp_path)) == [marked]
        assert read_process_stat(unmarked) is not None
    finally:
        for pid in (unmarked, marked):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        leader.stdout.close()


@pytest.mark.spec("LIM-06")
@pytest.mark.parametrize("next_program", ["other program", "guardian"])
def test_a_recorded_program_of_a_killed_lead_is_ended(tmp_path: Path, next_program: str) -> None:
    """The program in a pane is not a child of the guardian: here it is one of this test."""
    lead_code = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from shoal.backends.guarded_processes import GuardedProcessLauncher\n"
        "from shoal.core.clock import SystemClock\n"
        "async def main():\n"
        "    launcher = GuardedProcessLauncher(SystemClock(), Path(sys.argv[1]))\n"
        "    launcher.record_process(int(sys.argv[2]))\n"
        "    if sys.argv[3] == 'guardian': launcher.start_guardian_early()\n"
        "    print(launcher.guardian_pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())"
    )
    with (
        subprocess.Popen(["sleep", "60"], start_new_session=True) as pane,
        subprocess.Popen(
            [sys.executable, "-c", lead_code, str(tmp_path), str(pane.pid), next_program],
            stdout=subprocess.PIPE,
        ) as lead,
    ):
        try:
            assert lead.stdout is not None
            lead.stdout.readline()
            assert end_in_other_process(tmp_path) == "[]\n"
            assert pane.poll() is None
            lead.kill()
            lead.wait()
            if next_program == "other program":
                assert end_in_other_process(tmp_path) == f"[{pane.pid}]\n"
            assert pane.wait(30) == -signal.SIGKILL
        finally:
            lead.kill()
            pane.kill()


@pytest.mark.spec("LIM-06")
def test_the_guardian_of_a_killed_lead_waits_until_the_record_of_the_lead_is_unlocked(tmp_path: Path) -> None:
    """The system may close the socket of a killed process before it releases its locks: here much earlier."""
    lead_code = (
        "import os, socket, subprocess, sys, time\nfrom shoal.backends import guardian\n"
        "records, pane = sys.argv[1:]\n"
        "guardian.open_process_record(records).add_process(int(pane))\n"
        "own_end, guardian_end = socket.socketpair()\n"
        "fd = guardian_end.fileno()\n"
        "program = [sys.executable, '-I', '-S', '-E', guardian.__file__, str(fd), records]\n"
        "child = subprocess.Popen(program, pass_fds=[fd])\n"
        "guardian_end.close()\n"
        "while len(os.listdir(records)) < 2: time.sleep(0.005)\n"
        "own_end.close()\n"
        "while len(os.listdir(records)) > 1: time.sleep(0.005)\n"
        "print('The guardian has removed its record.', flush=True)\n"
        "sys.stdin.read()"
    )
    with (
        subprocess.Popen(["sleep", "60"], start_new_session=True) as pane,
        subprocess.Popen(
            [sys.executable, "-c", lead_code, str(tmp_path), str(pane.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as lead,
    ):
        try:
            assert lead.stdout is not None
            assert lead.stdout.readline()
            assert pane.poll() is None
            lead.kill()
            assert pane.wait(30) == -signal.SIGKILL
        finally:
            lead.kill()
            pane.kill()


@pytest.mark.spec("LIM-06")
def test_programs_of_a_live_guardian_are_left_alone(tmp_path: Path) -> None:
    record = open_process_record(str(tmp_path))
    assert record is not None
    record.add_process(os.getpid())
    assert end_in_other_process(tmp_path) == "[]\n"
    assert [path.name for path in tmp_path.iterdir()] == [record.name]


@pytest.mark.spec("LIM-06")
@pytest.mark.fresh_interpreter
def test_a_program_of_a_killed_run_does_not_end_itself_and_its_siblings(tmp_path: Path) -> None:
    """A person may use a shell that a killed run started, such as one in a terminal multiplexer."""
    with subprocess.Popen(["sleep", "60"], env={**os.environ, RECORD_VARIABLE: "1-aa"}) as sibling:
        try:
            (tmp_path / "1-aa").write_text(f"boot {read_boot_id()}\n")
            assert end_in_other_process(tmp_path, {RECORD_VARIABLE: "1-aa"}) == "[]\n"
            assert sibling.poll() is None
            assert end_in_other_process(tmp_path) == f"[{sibling.pid}]\n"
            assert sibling.wait(10) == -signal.SIGKILL
        finally:
            sibling.kill()


def end_in_other_process(records: Path, variables: dict[str, str] | None = None) -> str:
    code = (
        "import sys\nfrom shoal.backends import guardian\nprint(guardian.end_leftover_processes(sys.argv[1]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(records)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **(variables or {})},
    )
    return ended.stdout
