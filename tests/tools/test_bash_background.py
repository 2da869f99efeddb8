"""Commands that go on in the background."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from shell_workbench import ShellWorkbench, get_text, open_workbench

from shoal.testing import FakeClock
from shoal.tools.command_output import OUTPUT_LIMIT
from shoal.tools.shell_supervisor import BackgroundShellProcess


async def start_command(workbench: ShellWorkbench, command: str) -> BackgroundShellProcess:
    outcome = await workbench.run_bash(command, run_in_background=True)
    assert outcome.data is not None
    shell = workbench.shells.find_shell(outcome.data["shell_id"])
    assert shell is not None
    return shell


async def wait_for_end(shell: BackgroundShellProcess) -> None:
    async with asyncio.timeout(30):
        await shell.ended.wait()


async def wait_for_output(shell: BackgroundShellProcess, text: str) -> None:
    async with asyncio.timeout(30):
        while text not in shell.output.text:
            shell.output.has_new_data.clear()
            await shell.output.has_new_data.wait()


async def test_a_background_command_returns_at_once_with_its_id_and_file(workbench: ShellWorkbench) -> None:
    outcome = await workbench.run_bash("echo started; sleep 60", run_in_background=True)
    assert get_text(outcome).startswith("Running in the background as bash_1.")
    shell = workbench.shells.find_shell("bash_1")
    assert shell is not None
    await wait_for_output(shell, "started")
    assert outcome.data is not None
    assert Path(outcome.data["output_file"]).read_text() == "started\n"
    assert shell.status == "running"


async def test_bash_output_returns_only_new_output(workbench: ShellWorkbench, tmp_path: Path) -> None:
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    shell = await start_command(workbench, f"echo first; read line < {fifo}; echo $line; exit 4")
    await wait_for_output(shell, "first")
    assert (
        await workbench.call_tool("BashOutput", bash_id="bash_1")
    ).content == "first\n[bash_1 is still running.]"
    assert (
        await workbench.call_tool("BashOutput", bash_id="bash_1")
    ).content == "(nothing new)\n[bash_1 is still running.]"
    await asyncio.to_thread(fifo.write_text, "second\n")
    await wait_for_end(shell)
    output = await workbench.call_tool("BashOutput", bash_id="bash_1")
    assert output.content == "second\n[bash_1 has ended. Exit code 4.]"
    assert output.data == {"status": "exited", "exit_code": 4}


async def test_an_invalid_filter_consumes_no_output(workbench: ShellWorkbench) -> None:
    shell = await start_command(workbench, "echo kept")
    await wait_for_end(shell)
    assert (await workbench.call_tool("BashOutput", bash_id="bash_1", filter="(")).is_error
    assert "kept" in get_text(await workbench.call_tool("BashOutput", bash_id="bash_1"))
    assert "(nothing new)" in get_text(
        await workbench.call_tool("BashOutput", bash_id="bash_1", filter="kept")
    )


async def test_a_filter_finds_lines_that_unfiltered_output_would_truncate(workbench: ShellWorkbench) -> None:
    shell = await start_command(workbench, "seq 20000; echo needle; seq 20000")
    await wait_for_end(shell)
    output = get_text(await workbench.call_tool("BashOutput", bash_id="bash_1", filter="needle"))
    assert output.startswith("needle\n[bash_1 has ended.")


async def test_filtered_output_is_bounded(workbench: ShellWorkbench) -> None:
    shell = await start_command(workbench, "seq 20000")
    await wait_for_end(shell)
    output = get_text(await workbench.call_tool("BashOutput", bash_id="bash_1", filter="."))
    assert "characters are omitted here; the full output is in" in output
    assert OUTPUT_LIMIT < len(output) < OUTPUT_LIMIT + 1000


async def test_bash_output_can_be_filtered(workbench: ShellWorkbench) -> None:
    await wait_for_end(await start_command(workbench, "printf 'one error\\ntwo fine\\nthree Error\\n'"))
    output = await workbench.call_tool("BashOutput", bash_id="bash_1", filter="(?i)error$")
    assert output.content == "one error\nthree Error\n[bash_1 has ended. Exit code 0.]"


async def test_a_filter_that_takes_too_long_is_stopped(
    workbench: ShellWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.tools.bash_tools._TIMEOUT", 0.3)
    await wait_for_end(await start_command(workbench, "printf '%040d!\\n' 0"))
    output = await workbench.call_tool("BashOutput", bash_id="bash_1", filter="(0+)+$")
    assert output.is_error
    assert "simpler pattern" in get_text(output)


async def test_an_invalid_filter_is_reported(workbench: ShellWorkbench) -> None:
    await start_command(workbench, "true")
    output = await workbench.call_tool("BashOutput", bash_id="bash_1", filter="(")
    assert output.is_error
    assert "`filter` is not a regular expression: missing )" in get_text(output)


async def test_long_background_output_is_truncated_in_the_middle(workbench: ShellWorkbench) -> None:
    await wait_for_end(await start_command(workbench, "seq 1 100000"))
    output = get_text(await workbench.call_tool("BashOutput", bash_id="bash_1"))
    assert output.startswith("1\n2\n")
    assert "99999\n100000\n" in output
    assert "bytes are omitted here; the full output is in" in output
    assert len(output) < OUTPUT_LIMIT + 300 + len(str(workbench.results.directory))


async def test_kill_shell_ends_a_background_command_with_its_children(
    workbench: ShellWorkbench, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    shell = await start_command(workbench, f"sleep 60 & echo $! $$ > {pids}; echo up; wait")
    await wait_for_output(shell, "up")
    assert (
        await workbench.call_tool("KillShell", shell_id="bash_1")
    ).content == "bash_1 was stopped on request."
    assert not [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}").exists()]
    second_kill = await workbench.call_tool("KillShell", shell_id="bash_1")
    assert second_kill.is_error
    assert "Nothing to stop" in get_text(second_kill)


async def test_the_end_of_a_background_command_is_reported(workbench: ShellWorkbench) -> None:
    shell = await start_command(workbench, "exit 2")
    await wait_for_end(shell)
    assert (shell.status, shell.exit_code) == ("exited", 2)
    (end,) = workbench.shell_observer.results
    assert (end.facts.shell, end.status, end.exit_code, end.quiet) == ("bash_1", "failed", 2, False)


async def test_the_observer_is_notified_only_when_bash_output_shows_the_end(
    workbench: ShellWorkbench, tmp_path: Path
) -> None:
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    shell = await start_command(workbench, f"read line < {fifo}")
    await workbench.call_tool("BashOutput", bash_id="bash_1")
    assert not workbench.shell_observer.looks
    await asyncio.to_thread(fifo.write_text, "\n")
    await wait_for_end(shell)
    await workbench.call_tool("BashOutput", bash_id="bash_1")
    assert workbench.shell_observer.looks == ["bash_1"]


async def test_the_notification_of_an_ended_command_has_a_bounded_tail(workbench: ShellWorkbench) -> None:
    await wait_for_end(await start_command(workbench, "seq 1 500; head -c 5000 /dev/zero | tr '\\0' x"))
    (end,) = workbench.shell_observer.results
    assert len(end.tail) <= 2_000
    await wait_for_end(await start_command(workbench, "seq 1 500"))
    assert workbench.shell_observer.results[1].tail.split() == [str(n) for n in range(481, 501)]


async def test_a_command_ended_by_its_agent_gives_a_quiet_notification(workbench: ShellWorkbench) -> None:
    await start_command(workbench, "sleep 60")
    await workbench.call_tool("KillShell", shell_id="bash_1")
    await start_command(workbench, "sleep 60")
    await workbench.shells.stop_all("a person stopped it")
    assert [(end.status, end.quiet) for end in workbench.shell_observer.results] == [
        ("killed", True),
        ("killed", False),
    ]
    assert workbench.shell_observer.results[1].detail == "a person stopped it"


@pytest.mark.parametrize(
    ("command", "is_reported"),
    [
        ("printf 'Overwrite the file? (y/n) '", True),
        ("printf 'Password: '", True),
        ("printf 'name> '", True),
        ("echo 'Do you want to go on?'", True),
        ("echo 'Serving on port 8000:'", False),
        ("echo 'all is well'", False),
    ],
)
async def test_a_silent_command_whose_last_line_asks_for_input_is_reported_once(
    tmp_path: Path, command: str, *, is_reported: bool
) -> None:
    clock = FakeClock()
    async with open_workbench(tmp_path, clock) as workbench:
        shell = await start_command(workbench, f"{command}; sleep 60")
        await wait_for_output(shell, command.split("'")[1])
        if is_reported:
            await clock.wait_for_sleepers()
        await clock.advance(59)
        assert not workbench.shell_observer.stalls
        await clock.advance(120)
        assert [identity for identity, _ in workbench.shell_observer.stalls] == ["bash_1"] * is_reported


async def test_background_commands_started_together_have_unique_ids(workbench: ShellWorkbench) -> None:
    shells = await asyncio.gather(*(start_command(workbench, f"echo number {n}") for n in range(10)))
    for n, shell in enumerate(shells):
        await wait_for_end(shell)
        assert shell.output.text == f"number {n}\n"
    assert len({shell.id for shell in shells}) == 10


async def test_background_commands_end_with_the_session(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with open_workbench(tmp_path) as workbench:
        for _ in range(3):
            shell = await start_command(
                workbench, f"trap '' TERM; echo $$ >> {pids}; echo up; sleep 60; sleep 60"
            )
            await wait_for_output(shell, "up")
    assert [shell.status for shell in workbench.shells.list_shells()] == ["stopped"] * 3
    assert sorted(end.facts.shell for end in workbench.shell_observer.results) == [
        "bash_1",
        "bash_2",
        "bash_3",
    ]
    assert not [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}").exists()]


async def test_an_unknown_shell_id_is_refused_with_the_known_ids(workbench: ShellWorkbench) -> None:
    assert "There are none" in get_text(await workbench.call_tool("BashOutput", bash_id="x"))
    await start_command(workbench, "sleep 60")
    outcome = await workbench.call_tool("KillShell", shell_id="bash_7")
    assert outcome.is_error
    assert "Known: bash_1 (running)." in get_text(outcome)


async def test_a_background_command_that_cannot_start_leaves_no_shell_or_descriptor(
    workbench: ShellWorkbench,
) -> None:
    await workbench.run_bash("true")
    before = len(list(Path("/proc/self/fd").iterdir()))
    outcome = await workbench.run_bash("x" * 200_000, run_in_background=True)
    assert outcome.is_error
    assert workbench.shells.list_shells() == ()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
