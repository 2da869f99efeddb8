"""Run each command of the standard input in turn, with a mark in the trace before it.

The file runs under `strace` without any import of Shoal. A mark is a failed attempt to open `/mark/NUMBER`.
"""

import os
import signal
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

LONGEST = 3.0
_PAUSE = 0.2
_ENVIRONMENT = {**os.environ, "LC_ALL": "C"}
"""Another locale would add ten files to the trace of each command."""


def run_commands(commands: list[str]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    null = os.open("/dev/null", os.O_RDWR)
    streams = [(os.POSIX_SPAWN_DUP2, null, number) for number in range(3)]
    for number, command in enumerate(commands):
        with suppress(FileNotFoundError):
            os.open(f"/mark/{number}", os.O_RDONLY)
        words = command.split()
        process = os.posix_spawn(
            find_program(words[0]), words, _ENVIRONMENT, file_actions=streams, setpgroup=0, setsigmask=()
        )
        wait_for_process(process)


@cache
def find_program(name: str) -> str:
    places = [f"{place}/{name}" for place in os.environ["PATH"].split(":")]
    return next(place for place in places if os.access(place, os.X_OK))


def wait_for_process(process: int) -> None:
    """Wait until a process ends; one that sleeps, such as `tail -f`, has done what it does and is killed."""
    sleeping = 0
    for _ in range(int(LONGEST / _PAUSE)):
        if signal.sigtimedwait({signal.SIGCHLD}, _PAUSE) is not None:
            break
        sleeping = sleeping + 1 if _is_sleeping(process) else 0
        if sleeping == 2:
            break
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    while signal.sigtimedwait({signal.SIGCHLD}, 0) is not None:
        pass


def _is_sleeping(process: int) -> bool:
    try:
        tasks = [task.read_text() for task in Path(f"/proc/{process}").glob("task/*/stat")]
    except OSError:  # a thread or the process ended meanwhile
        return False
    return bool(tasks) and all(task.rpartition(")")[2].split()[0] == "S" for task in tasks)


if __name__ == "__main__":
    run_commands(sys.stdin.read().splitlines())
