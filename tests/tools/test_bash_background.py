"""Commands that go on in the background."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sites import Workbench, text, workbench

from shoal.testing import FakeClock
from shoal.tools.output import LIMIT
from shoal.tools.shells import Shell


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Workbench]:
    async with workbench(tmp_path) as made:
        yield made


async def start(bench: Workbench, command: str) -> Shell:
    outcome = await bench.bash(command, run_in_background=True)
    assert outcome.data is not None
    shell = bench.shells.find(outcome.data["shell_id"])
    assert shell is not None
    return shell


async def ended(shell: Shell) -> None:
    async with asyncio.timeout(30):
        await shell.ended.wait()


async def written(shell: Shell, what: str) -> None:
    async with asyncio.timeout(30):
        while what not in shell.output.text:
            shell.output.grown.clear()
            await shell.output.grown.wait()


async def test_a_background_command_returns_at_once_with_its_id_and_file(bench: Workbench) -> None:
    outcome = await bench.bash("echo started; sleep 60", run_in_background=True)
    assert text(outcome).startswith("Runs in the background as bash_1.")
    shell = bench.shells.find("bash_1")
    assert shell is not None
    await written(shell, "started")
    assert outcome.data is not None
    assert Path(outcome.data["output_file"]).read_text() == "started\n"
    assert shell.status == "running"


async def test_each_look_shows_only_what_is_new(bench: Workbench, tmp_path: Path) -> None:
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    shell = await start(bench, f"echo first; read line < {fifo}; echo $line; exit 4")
    await written(shell, "first")
    assert (await bench.call("BashOutput", bash_id="bash_1")).content == "first\n[bash_1 still runs.]"
    assert (await bench.call("BashOutput", bash_id="bash_1")).content == "(nothing new)\n[bash_1 still runs.]"
    await asyncio.to_thread(fifo.write_text, "second\n")
    await ended(shell)
    look = await bench.call("BashOutput", bash_id="bash_1")
    assert look.content == "second\n[bash_1 has ended. Exit code 4.]"
    assert look.data == {"status": "exited", "exit_code": 4}


async def test_a_filter_that_cannot_be_used_costs_no_output(bench: Workbench) -> None:
    shell = await start(bench, "echo kept")
    await ended(shell)
    assert (await bench.call("BashOutput", bash_id="bash_1", filter="(")).is_error
    assert "kept" in text(await bench.call("BashOutput", bash_id="bash_1"))
    assert "(nothing new)" in text(await bench.call("BashOutput", bash_id="bash_1", filter="kept"))


async def test_a_filter_finds_lines_that_an_unfiltered_look_would_cut_out(bench: Workbench) -> None:
    shell = await start(bench, "seq 20000; echo needle; seq 20000")
    await ended(shell)
    look = text(await bench.call("BashOutput", bash_id="bash_1", filter="needle"))
    assert look.startswith("needle\n[bash_1 has ended.")


async def test_what_a_filter_leaves_is_bounded_too(bench: Workbench) -> None:
    shell = await start(bench, "seq 20000")
    await ended(shell)
    look = text(await bench.call("BashOutput", bash_id="bash_1", filter="."))
    assert "characters are cut out here; the whole output is in" in look
    assert LIMIT < len(look) < LIMIT + 1000


async def test_a_look_can_be_filtered(bench: Workbench) -> None:
    await ended(await start(bench, "printf 'one error\\ntwo fine\\nthree Error\\n'"))
    look = await bench.call("BashOutput", bash_id="bash_1", filter="(?i)error$")
    assert look.content == "one error\nthree Error\n[bash_1 has ended. Exit code 0.]"


async def test_a_pattern_that_never_ends_is_given_up(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.tools.matching._LIMIT", 0.3)
    await ended(await start(bench, "printf '%040d!\\n' 0"))
    look = await bench.call("BashOutput", bash_id="bash_1", filter="(0+)+$")
    assert look.is_error
    assert "simpler pattern" in text(look)


async def test_a_broken_pattern_is_named(bench: Workbench) -> None:
    await start(bench, "true")
    look = await bench.call("BashOutput", bash_id="bash_1", filter="(")
    assert look.is_error
    assert "`filter` is not a regular expression: missing )" in text(look)


async def test_a_long_look_is_cut_in_the_middle(bench: Workbench) -> None:
    await ended(await start(bench, "seq 1 100000"))
    look = text(await bench.call("BashOutput", bash_id="bash_1"))
    assert look.startswith("1\n2\n")
    assert "99999\n100000\n" in look
    assert "bytes are cut out here; the whole output is in" in look
    assert len(look) < LIMIT + 300


async def test_a_background_command_can_be_ended_with_all_it_started(
    bench: Workbench, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    shell = await start(bench, f"sleep 60 & echo $! $$ > {pids}; echo up; wait")
    await written(shell, "up")
    assert (await bench.call("KillShell", shell_id="bash_1")).content == "bash_1 was ended on request."
    assert not [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}").exists()]
    again = await bench.call("KillShell", shell_id="bash_1")
    assert again.is_error
    assert "nothing to end" in text(again)


async def test_the_end_of_a_background_command_is_reported(bench: Workbench) -> None:
    shell = await start(bench, "exit 2")
    await ended(shell)
    assert (shell.status, shell.exit_code) == ("exited", 2)
    (end,) = bench.heard.ends
    assert (end.facts.shell, end.status, end.exit_code, end.quiet) == ("bash_1", "failed", 2, False)


async def test_a_look_that_shows_the_end_is_told_and_one_before_it_is_not(
    bench: Workbench, tmp_path: Path
) -> None:
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    shell = await start(bench, f"read line < {fifo}")
    await bench.call("BashOutput", bash_id="bash_1")
    assert not bench.heard.looks
    await asyncio.to_thread(fifo.write_text, "\n")
    await ended(shell)
    await bench.call("BashOutput", bash_id="bash_1")
    assert bench.heard.looks == ["bash_1"]


async def test_the_news_of_an_end_carries_a_bounded_tail(bench: Workbench) -> None:
    await ended(await start(bench, "seq 1 500; head -c 5000 /dev/zero | tr '\\0' x"))
    (end,) = bench.heard.ends
    assert len(end.tail) <= 2_000
    await ended(await start(bench, "seq 1 500"))
    assert bench.heard.ends[1].tail.split() == [str(n) for n in range(481, 501)]


async def test_an_agent_that_ends_its_own_command_need_not_hear_of_that(bench: Workbench) -> None:
    await start(bench, "sleep 60")
    await bench.call("KillShell", shell_id="bash_1")
    await start(bench, "sleep 60")
    await bench.shells.stop_all("a person stopped it")
    assert [(end.status, end.quiet) for end in bench.heard.ends] == [("killed", True), ("killed", False)]
    assert bench.heard.ends[1].detail == "a person stopped it"


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
    async with workbench(tmp_path, clock) as bench:
        shell = await start(bench, f"{writes}; sleep 60")
        await written(shell, writes.split("'")[1])
        if told:
            await clock.asleep()
        await clock.advance(59)
        assert not bench.heard.stalls
        await clock.advance(120)
        assert [identity for identity, _ in bench.heard.stalls] == ["bash_1"] * told


async def test_many_started_together_have_their_own_ids(bench: Workbench) -> None:
    shells = await asyncio.gather(*(start(bench, f"echo number {n}") for n in range(10)))
    for n, shell in enumerate(shells):
        await ended(shell)
        assert shell.output.text == f"number {n}\n"
    assert len({shell.id for shell in shells}) == 10


async def test_background_commands_end_with_the_session(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with workbench(tmp_path) as bench:
        for _ in range(3):
            shell = await start(bench, f"trap '' TERM; echo $$ >> {pids}; echo up; sleep 60; sleep 60")
            await written(shell, "up")
    assert [shell.status for shell in bench.shells.list()] == ["stopped"] * 3
    assert sorted(end.facts.shell for end in bench.heard.ends) == ["bash_1", "bash_2", "bash_3"]
    assert not [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}").exists()]


async def test_a_wrong_id_names_the_ones_there_are(bench: Workbench) -> None:
    assert "There are none" in text(await bench.call("BashOutput", bash_id="x"))
    await start(bench, "sleep 60")
    outcome = await bench.call("KillShell", shell_id="bash_7")
    assert outcome.is_error
    assert "There are: bash_1 (running)." in text(outcome)


async def test_a_background_command_that_cannot_start_leaves_nothing_behind(bench: Workbench) -> None:
    await bench.bash("true")
    before = len(list(Path("/proc/self/fd").iterdir()))
    outcome = await bench.bash("x" * 200_000, run_in_background=True)
    assert outcome.is_error
    assert bench.shells.list() == ()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
