"""Guarded processes: start, stop and guardian failures."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from process_helpers import is_running

from elapsed_times import MeasuredWork, is_done_within
from shoal.backends.guarded_processes import GuardedProcess, GuardedProcessLauncher
from shoal.core.clock import Deadline, SystemClock
from shoal.core.errors import ProcessError
from shoal.core.ports import ProcessLaunchSpec

# The guardian itself is tested here, as it starts for users.
pytestmark = pytest.mark.fresh_interpreter

ENV = {"PATH": os.environ["PATH"]}


class Piped:
    """A process and everything it writes."""

    def __init__(self, process: GuardedProcess, reader: asyncio.StreamReader) -> None:
        self.process = process
        self.reader = reader

    async def line(self) -> str:
        async with asyncio.timeout(30):
            return (await self.reader.readline()).decode().strip()

    async def rest(self) -> str:
        async with asyncio.timeout(30):
            return (await self.reader.read()).decode()


async def start_piped(
    processes: GuardedProcessLauncher, *argv: str, env: dict[str, str] = ENV, cwd: Path = Path("/")
) -> Piped:
    read, write = os.pipe()
    try:
        process = await processes.start_process(
            ProcessLaunchSpec(argv=argv, cwd=cwd, env=env, stdout=write, stderr=write)
        )
    except BaseException:
        os.close(read)
        raise
    finally:
        os.close(write)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb")
    )
    return Piped(process, reader)


async def test_a_process_returns_its_output_and_exit_status(processes: GuardedProcessLauncher) -> None:
    piped = await start_piped(processes, "sh", "-c", "echo out; echo err >&2; exit 7")
    assert await piped.process.wait() == 7
    assert await piped.rest() == "out\nerr\n"


async def test_death_by_a_signal_is_a_negative_status(processes: GuardedProcessLauncher) -> None:
    piped = await start_piped(processes, "sh", "-c", "kill -SEGV $$")
    assert await piped.process.wait() == -signal.SIGSEGV


async def test_a_process_has_its_own_session_no_terminal_and_no_input(
    processes: GuardedProcessLauncher,
) -> None:
    piped = await start_piped(processes, "sh", "-c", "cat; cat /proc/$$/stat")
    fields = (await piped.rest()).rpartition(")")[2].split()
    pid, (group, session, terminal) = piped.process.pid, map(int, fields[2:5])
    assert (group, session, terminal) == (pid, pid, 0)


async def test_a_process_inherits_only_its_three_descriptors(processes: GuardedProcessLauncher) -> None:
    piped = await start_piped(
        processes, "sh", "-c", "for n in 0 1 2 3 4 5 6 7 8 9; do [ -e /proc/$$/fd/$n ] && echo $n; done"
    )
    assert (await piped.rest()).split() == ["0", "1", "2"]


async def test_signals_have_their_default_meaning_in_a_process(processes: GuardedProcessLauncher) -> None:
    piped = await start_piped(processes, "grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status")
    masks = [int(line.split()[1], 16) for line in (await piped.rest()).splitlines()]
    # 32 and 33 belong to the C library and cannot be set.
    assert [mask & 0x7FFF_FFFF for mask in masks] == [0, 0]


async def test_a_process_gets_exactly_the_given_environment(processes: GuardedProcessLauncher) -> None:
    piped = await start_piped(processes, "env", env={**ENV, "A": "1"})
    assert sorted((await piped.rest()).splitlines()) == ["A=1", f"PATH={ENV['PATH']}"]


async def test_an_environment_of_200_kb_arrives_whole(processes: GuardedProcessLauncher) -> None:
    big = {f"V{n}": f"{n}" * 1000 for n in range(100)} | {"LAST": "x" * 100_000}
    piped = await start_piped(processes, "sh", "-c", "env | wc -c; echo ${#LAST}", env={**ENV, **big})
    size, last = (await piped.rest()).split()
    assert int(size) > 200_000
    assert last == "100000"


async def test_names_that_are_not_utf8_arrive_unchanged(
    processes: GuardedProcessLauncher, tmp_path: Path
) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe dir"))
    odd.mkdir()
    piped = await start_piped(
        processes, "sh", "-c", 'test "$PWD" = "$1" && echo same', "sh", str(odd), cwd=odd
    )
    assert await piped.rest() == "same\n"


@pytest.mark.parametrize(
    ("launch", "says"),
    [
        ({"argv": ["no-such-program"]}, "Cannot run no-such-program: No such file"),
        ({"argv": ["/etc/passwd"]}, "Cannot run /etc/passwd: Permission denied"),
        ({"argv": ["true"], "cwd": Path("/no/such/place")}, "Cannot start in /no/such/place: No such file"),
        ({"argv": ["true"], "env": {**ENV, "BIG": "x" * 200_000}}, "Cannot run true: Argument list too long"),
        ({"argv": ["a\0b"]}, "null"),
        ({"argv": ["echo", "\ud800"]}, "can't encode character"),
    ],
)
async def test_a_failed_start_of_a_process_says_why(
    processes: GuardedProcessLauncher, launch: dict[str, object], says: str
) -> None:
    with pytest.raises(ProcessError, match=says):
        await processes.start_process(
            ProcessLaunchSpec(**{"cwd": Path("/"), "env": ENV, "stdout": 1, "stderr": 2, **launch})  # type: ignore[arg-type]
        )
    assert await (await start_piped(processes, "true")).process.wait() == 0


async def test_a_hundred_concurrent_processes_return_their_own_statuses(
    processes: GuardedProcessLauncher,
) -> None:
    piped = await asyncio.gather(
        *(start_piped(processes, "sh", "-c", f"echo {n}; exit {n}") for n in range(100))
    )
    assert [await p.process.wait() for p in piped] == list(range(100))
    assert [await p.rest() for p in piped] == [f"{n}\n" for n in range(100)]


# A shell's trap runs late if the signal arrives just before the shell starts to wait.
TIDY_END = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("ready", flush=True)
signal.sigwait({signal.SIGTERM})
print("tidied", flush=True)
sys.exit(3)
"""


async def test_stop_lets_a_process_end_itself(processes: GuardedProcessLauncher) -> None:
    piped = await start_piped(processes, sys.executable, "-I", "-S", "-c", TIDY_END)
    assert await piped.line() == "ready"
    assert await piped.process.stop(grace=60) == 3
    assert await piped.rest() == "tidied\n"


@pytest.mark.spec("USR-07")
@pytest.mark.parametrize(
    "script",
    [
        pytest.param("trap '' TERM; echo ready; sleep 1000; sleep 1000", id="ignores TERM"),
        pytest.param("trap '' TERM; echo ready; while :; do kill -STOP $$; done", id="ignores it, stopped"),
        pytest.param("echo ready; kill -STOP $$", id="is stopped"),
        pytest.param("(trap '' TERM; echo ready; sleep 1000)", id="a child ignores TERM"),
        pytest.param("trap '' TERM; setsid sh -c 'echo ready; sleep 99'; true", id="a child left the group"),
    ],
)
async def test_stop_returns_within_a_second_of_its_grace(
    processes: GuardedProcessLauncher, script: str
) -> None:
    async def start_process() -> MeasuredWork:
        piped = await start_piped(processes, "bash", "-c", script)
        assert await piped.line() == "ready"

        async def stop_process() -> None:
            assert await piped.process.stop(grace=0.3) in (-signal.SIGKILL, -signal.SIGTERM)
            # The pipe is at its end: no process that had it is left.
            await piped.rest()

        return stop_process

    assert await is_done_within(1.3, start_process)


async def test_the_members_of_a_group_have_the_whole_grace_to_end(processes: GuardedProcessLauncher) -> None:
    worker = "trap 'sleep 0.2; echo finished; exit' TERM; echo ready; while :; do sleep 0.05; done"
    piped = await start_piped(processes, "bash", "-c", f'bash -c "{worker}" & wait')
    assert await piped.line() == "ready"
    await piped.process.stop(grace=5)
    assert "finished" in await piped.rest()


async def test_a_cancelled_start_leaves_no_process(processes: GuardedProcessLauncher, tmp_path: Path) -> None:
    read, write = os.pipe()
    starting = asyncio.ensure_future(
        processes.start_process(
            ProcessLaunchSpec(argv=["sleep", "1000"], cwd=tmp_path, env=ENV, stdout=write, stderr=write)
        )
    )
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    os.close(write)
    ended = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_reader(read, ended.set_result, None)
    async with asyncio.timeout(30):
        await ended
    asyncio.get_running_loop().remove_reader(read)
    os.close(read)


async def test_closing_ends_all_processes_and_refuses_new_ones() -> None:
    processes = GuardedProcessLauncher(SystemClock())
    piped = await start_piped(processes, "bash", "-c", "echo $$; setsid sleep 1000 & sleep 1000")
    pid = int(await piped.line())
    await processes.aclose()
    await processes.aclose()
    assert not is_running(pid)
    assert await piped.process.wait() == -signal.SIGTERM
    assert await piped.rest() == ""
    with pytest.raises(ProcessError, match="session is closed"):
        await start_piped(processes, "true")


async def test_the_guardian_starts_with_the_first_process_and_not_before(
    processes: GuardedProcessLauncher,
) -> None:
    assert processes.guardian_pid is None
    await start_piped(processes, "true")
    assert processes.guardian_pid is not None


async def test_a_killed_guardian_is_noticed_at_once_and_replaced(processes: GuardedProcessLauncher) -> None:
    piped = await start_piped(processes, "bash", "-c", "echo $$; sleep 1000")
    await piped.line()
    first = processes.guardian_pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    with pytest.raises(ProcessError, match="guardian process was killed"):
        async with asyncio.timeout(30):
            await piped.process.wait()
    # Both shell and sleep held the pipe.
    assert await piped.rest() == ""
    with pytest.raises(ProcessError, match="guardian process was killed"):
        await piped.process.stop()
    again = await start_piped(processes, "sh", "-c", "exit 5")
    assert await again.process.wait() == 5
    assert processes.guardian_pid != first


@pytest.mark.parametrize("at_the_end", [False, True])
async def test_a_killed_guardian_leaves_no_record(tmp_path: Path, *, at_the_end: bool) -> None:
    records = tmp_path / "guardians"
    launcher = GuardedProcessLauncher(SystemClock(), records)
    piped = await start_piped(launcher, "sleep", "1000")
    assert launcher.guardian_pid is not None
    assert len(list(records.iterdir())) == 1
    os.kill(launcher.guardian_pid, signal.SIGKILL)
    if not at_the_end:
        with pytest.raises(ProcessError, match="guardian process was killed"):
            async with asyncio.timeout(30):
                await piped.process.wait()
        assert list(records.iterdir()) == []
    await launcher.aclose()
    assert list(records.iterdir()) == []
    assert await piped.rest() == ""


async def test_the_guardian_survives_terminal_signals(processes: GuardedProcessLauncher) -> None:
    await start_piped(processes, "true")
    assert processes.guardian_pid is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        os.kill(processes.guardian_pid, number)
    assert await (await start_piped(processes, "sh", "-c", "exit 4")).process.wait() == 4


class ShortDeadlineClock(SystemClock):
    """Clock whose deadlines are twenty times shorter while they are meant to pass."""

    is_short = False

    def deadline(self, seconds: float) -> Deadline:
        return super().deadline(seconds / 20 if self.is_short else seconds)


@pytest.mark.spec("USR-07")
async def test_a_guardian_that_hangs_is_replaced() -> None:
    clock = ShortDeadlineClock()
    processes = GuardedProcessLauncher(clock)
    piped = await start_piped(processes, "sh", "-c", "echo ready; sleep 1000")
    await piped.line()
    assert processes.guardian_pid is not None
    os.kill(processes.guardian_pid, signal.SIGSTOP)
    clock.is_short = True
    with pytest.raises(ProcessError, match="has not ended yet"):
        await piped.process.stop()
    with pytest.raises(ProcessError, match="the guardian does not respond"):
        await start_piped(processes, "true")
    clock.is_short = False
    assert await piped.rest() == ""
    assert await (await start_piped(processes, "true")).process.wait() == 0
    await processes.aclose()


async def test_stop_waits_for_members_that_left_the_group(processes: GuardedProcessLauncher) -> None:
    stubborn = "trap '' TERM; echo \\$\\$; sleep 99; sleep 99"
    piped = await start_piped(processes, "bash", "-c", f'setsid bash -c "{stubborn}" & wait')
    stray = int(await piped.line())
    await piped.process.stop(grace=0.3)
    assert not is_running(stray)
