"""Commands that go on in the background."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from shell_workbench import ShellWorkbench, get_text, open_workbench

from shoal.testing import FakeClock
from shoal.tools.command_output import OUTPUT_LIMIT
from shoal.tools.shell_supervisor import BackgroundShellProcess


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[ShellWorkbench]:
    async with open_workbench(tmp_path) as made:
        yield made


async def start(bench: ShellWorkbench, command: str) -> BackgroundShellProcess:
    outcome = await bench.run_bash(command, run_in_background=True)
    assert outcome.data is not None
    shell = bench.shells.find_shell(outcome.data["shell_id"])
    assert shell is not None
    return shell


async def wait_for_end(shell: BackgroundShellProcess) -> None:
    async with asyncio.timeout(30):
        await shell.ended.wait()


async def wait_for_output(shell: BackgroundShellProcess, what: str) -> None:
    async with asyncio.timeout(30):
        while what not in shell.output.text:
            shell.output.has_new_data.clear()
            await shell.output.has_new_data.wait()


async def test_a_background_command_returns_at_once_with_its_id_and_file(bench: ShellWorkbench) -> None:
    outcome = await bench.run_bash("echo started; sleep 60", run_in_background=True)
    assert get_text(outcome).startswith("Runs in the background as bash_1.")
    shell = bench.shells.find_shell("bash_1")
    assert shell is not None
    await wait_for_output(shell, "started")
    assert outcome.data is not None
    assert Path(outcome.data["output_file"]).read_text() == "started\n"
    assert shell.status == "running"


async def test_each_look_shows_only_what_is_new(bench: ShellWorkbench, tmp_path: Path) -> None:
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    shell = await start(bench, f"echo first; read line < {fifo}; echo $line; exit 4")
    await wait_for_output(shell, "first")
    assert (await bench.call_tool("BashOutput", bash_id="bash_1")).content == "first\n[bash_1 still runs.]"
    assert (
        await bench.call_tool("BashOutput", bash_id="bash_1")
    ).content == "(nothing new)\n[bash_1 still runs.]"
    await asyncio.to_thread(fifo.write_text, "second\n")
    await wait_for_end(shell)
    look = await bench.call_tool("BashOutput", bash_id="bash_1")
    assert look.content == "second\n[bash_1 has ended. Exit code 4.]"
    assert look.data == {"status": "exited", "exit_code": 4}


async def test_a_filter_that_cannot_be_used_costs_no_output(bench: ShellWorkbench) -> None:
    shell = await start(bench, "echo kept")
    await wait_for_end(shell)
    assert (await bench.call_tool("BashOutput", bash_id="bash_1", filter="(")).is_error
    assert "kept" in get_text(await bench.call_tool("BashOutput", bash_id="bash_1"))
    assert "(nothing new)" in get_text(await bench.call_tool("BashOutput", bash_id="bash_1", filter="kept"))


async def test_a_filter_finds_lines_that_an_unfiltered_look_would_cut_out(bench: ShellWorkbench) -> None:
    shell = await start(bench, "seq 20000; echo needle; seq 20000")
    await wait_for_end(shell)
    look = get_text(await bench.call_tool("BashOutput", bash_id="bash_1", filter="needle"))
    assert look.startswith("needle\n[bash_1 has ended.")


async def test_what_a_filter_leaves_is_bounded_too(bench: ShellWorkbench) -> None:
    shell = await start(bench, "seq 20000")
    await wait_for_end(shell)
    look = get_text(await bench.call_tool("BashOutput", bash_id="bash_1", filter="."))
    assert "characters are cut out here; the whole output is in" in look
    assert OUTPUT_LIMIT < len(look) < OUTPUT_LIMIT + 1000


async def test_a_look_can_be_filtered(bench: ShellWorkbench) -> None:
    await wait_for_end(await start(bench, "printf 'one error\\ntwo fine\\nthree Error\\n'"))
    look = await bench.call_tool("BashOutput", bash_id="bash_1", filter="(?i)error$")
    assert look.content == "one error\nthree Error\n[bash_1 has ended. Exit code 0.]"


async def test_a_pattern_that_never_ends_is_given_up(
    bench: ShellWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.tools.regex_filter._TIMEOUT", 0.3)
    await wait_for_end(await start(bench, "printf '%040d!\\n' 0"))
    look = await bench.call_tool("BashOutput", bash_id="bash_1", filter="(0+)+$")
    assert look.is_error
    assert "simpler pattern" in get_text(look)


async def test_a_broken_pattern_is_named(bench: ShellWorkbench) -> None:
    await start(bench, "true")
    look = await bench.call_tool("BashOutput", bash_id="bash_1", filter="(")
    assert look.is_error
    assert "`filter` is not a regular expression: missing )" in get_text(look)


async def test_a_long_look_is_cut_in_the_middle(bench: ShellWorkbench) -> None:
    await wait_for_end(await start(bench, "seq 1 100000"))
    look = get_text(await bench.call_tool("BashOutput", bash_id="bash_1"))
    assert look.startswith("1\n2\n")
    assert "99999\n100000\n" in look
    assert "bytes are cut out here; the whole output is in" in look
    assert len(look) < OUTPUT_LIMIT + 300


async def test_a_background_command_can_be_ended_with_all_it_started(
    bench: ShellWorkbench, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    shell = await start(bench, f"sleep 60 & echo $! $$ > {pids}; echo up; wait")
    await wait_for_output(shell, "up")
    assert (await bench.call_tool("KillShell", shell_id="bash_1")).content == "bash_1 was ended on request."
    assert not [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}").exists()]
    again = await bench.call_tool("KillShell", shell_id="bash_1")
    assert again.is_error
    assert "nothing to end" in get_text(again)


async def test_the_end_of_a_background_command_is_reported(bench: ShellWorkbench) -> None:
    shell = await start(bench, "exit 2")
    await wait_for_end(shell)
    assert (shell.status, shell.exit_code) == ("exited", 2)
    (end,) = bench.shell_observer.results
    assert (end.facts.shell, end.status, end.exit_code, end.quiet) == ("bash_1", "failed", 2, False)


async def test_a_look_that_shows_the_end_is_told_and_one_before_it_is_not(
    bench: ShellWorkbench, tmp_path: Path
) -> None:
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    shell = await start(bench, f"read line < {fifo}")
    await bench.call_tool("BashOutput", bash_id="bash_1")
    assert not bench.shell_observer.looks
    await asyncio.to_thread(fifo.write_text, "\n")
    await wait_for_end(shell)
    await bench.call_tool("BashOutput", bash_id="bash_1")
    assert bench.shell_observer.looks == ["bash_1"]


async def test_the_news_of_an_end_carries_a_bounded_tail(bench: ShellWorkbench) -> None:
    await wait_for_end(await start(bench, "seq 1 500; head -c 5000 /dev/zero | tr '\\0' x"))
    (end,) = bench.shell_observer.results
    assert len(end.tail) <= 2_000
    await wait_for_end(await start(bench, "seq 1 500"))
    assert bench.shell_observer.results[1].tail.split() == [str(n) for n in range(481, 501)]


async def test_an_agent_that_ends_its_own_command_need_not_hear_of_that(bench: ShellWorkbench) -> None:
    await start(bench, "sleep 60")
    await bench.call_tool("KillShell", shell_id="bash_1")
    await start(bench, "sleep 60")
    await bench.shells.stop_all("a person stopped it")
    assert [(end.status, end.quiet) for end in bench.shell_observer.results] == [
        ("killed", True),
        ("killed", False),
    ]
    assert bench.shell_observer.results[1].detail == "a person stopped it"


@pytest.mark.parametrize(
    ("writes", "told"),
    [
        ("printf 'Overwrite the file? (y/n) '", True),
        ("printf 'Password: '", True),
        ("printf 'name> '", True),
        ("echo 'Do you want to go on?'", True),
        ("echo 'Serving on port 8000:'", False),
        ("echo 'all is well'", False),
    ],
)
async def test_a_silent_command_is_told_of_once_where_its_last_line_asks(
    tmp_path: Path, writes: str, *, told: bool
) -> None:
    clock = FakeClock()
    async with open_workbench(tmp_path, clock) as bench:
        shell = await start(bench, f"{writes}; sleep 60")
        await wait_for_output(shell, writes.split("'")[1])
        if told:
            await clock.wait_for_sleepers()
        await clock.advance(59)
        assert not bench.shell_observer.stalls
        await clock.advance(120)
        assert [identity for identity, _ in bench.shell_observer.stalls] == ["bash_1"] * told


async def test_many_started_together_have_their_own_ids(bench: ShellWorkbench) -> None:
    shells = await asyncio.gather(*(start(bench, f"echo number {n}") for n in range(10)))
    for n, shell in enumerate(shells):
        await wait_for_end(shell)
        assert shell.output.text == f"number {n}\n"
    assert len({shell.id for shell in shells}) == 10


async def test_background_commands_end_with_the_session(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with open_workbench(tmp_path) as bench:
        for _ in range(3):
            shell = await start(bench, f"trap '' TERM; echo $$ >> {pids}; echo up; sleep 60; sleep 60")
            await wait_for_output(shell, "up")
    assert [shell.status for shell in bench.shells.list_shells()] == ["stopped"] * 3
    assert sorted(end.facts.shell for end in bench.shell_observer.results) == ["bash_1", "bash_2", "bash_3"]
    assert not [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}").exists()]


async def test_a_wrong_id_names_the_ones_there_are(bench: ShellWorkbench) -> None:
    assert "There are none" in get_text(await bench.call_tool("BashOutput", bash_id="x"))
    await start(bench, "sleep 60")
    outcome = await bench.call_tool("KillShell", shell_id="bash_7")
    assert outcome.is_error
    assert "There are: bash_1 (running)." in get_text(outcome)


async def test_a_background_command_that_cannot_start_leaves_nothing_behind(bench: ShellWorkbench) -> None:
    await bench.run_bash("true")
    before = len(list(Path("/proc/self/fd").iterdir()))
    outcome = await bench.run_bash("x" * 200_000, run_in_background=True)
    assert outcome.is_error
    assert bench.shells.list_shells() == ()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
