"""Background commands whose lead and guardian were killed together."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
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

COMMAND = "sh -c 'echo > pipe; exec sleep 301' & echo > pipe; exec sleep 300"


async def leave_background_command(shoal: ShoalProgram, home: Path) -> None:
    """Kill a run and its guardian at once while a command runs."""
    start = make_tool_call("Bash", command=COMMAND, run_in_background=True)
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
            (record,) = (home / "shoal" / "guardians").iterdir()
            guardian = int(record.name.partition("-")[0])
            os.kill(guardian, signal.SIGSTOP)  # it cannot end anything between the two kills
            run.kill()
            os.kill(guardian, signal.SIGKILL)
            await run.wait()
    assert len(find_processes_in(shoal.project)) >= 2


@pytest.mark.spec("LIM-06")
@pytest.mark.parametrize("next_command", ["resume", "doctor", "other run"])
async def test_programs_of_a_killed_run_are_found_and_ended(
    shoal: ShoalProgram, home: Path, next_command: str
) -> None:
    await leave_background_command(shoal, home)
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
def test_programs_of_a_live_guardian_are_left_alone(tmp_path: Path) -> None:
    record = open_process_record(str(tmp_path))
    assert record is not None
    record.add_process(os.getpid())
    ended = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import sys; from shoal.backends.guardian import end_leftover_processes as end;"
            "print(end(sys.argv[1]))",
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "[]\n"
    assert json.dumps([path.name for path in tmp_path.iterdir()]) == json.dumps([record.name])
