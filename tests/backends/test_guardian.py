"""The guardian leaves no process when the lead is killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from process_helpers import wait_for_exit

from elapsed_times import scale_to_load

# The guardian itself is tested here, as it starts for users.
pytestmark = pytest.mark.fresh_interpreter

LEAD = """
import asyncio, os, sys
from pathlib import Path
from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.core.clock import SystemClock
from shoal.core.ports import ProcessLaunchSpec

FAMILY = sys.argv[1]

async def main():
    processes = GuardedProcessLauncher(SystemClock())
    held = os.open(sys.argv[2], os.O_WRONLY)
    for _ in range(3):
        await processes.start_process(ProcessLaunchSpec(
            argv=["bash", "-c", FAMILY], cwd=Path("/"), env=dict(os.environ), stdout=held, stderr=held
        ))
    os.close(held)
    print(processes.guardian_pid, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""

DAEMON = (
    "import os, time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); "
    "print('up', flush=True); time.sleep(999)"
)
STOPPED = "trap '' TERM; echo up; while :; do kill -STOP \\$\\$; done"
FAMILIES = {
    "a child": ("echo up; sleep 999", 1),
    "grandchildren": ("(echo up; sleep 999) & (echo up; sleep 999) & wait", 2),
    "a child in its own session": ("setsid sh -c 'echo up; sleep 999' & sleep 999", 1),
    "a daemon that forked twice": (f'{sys.executable} -c "{DAEMON}"; sleep 999', 1),
    "a daemon whose parents are gone": (f'{sys.executable} -c "{DAEMON}"', 1),
    "a stopped child": ("(echo up; kill -STOP $BASHPID) & wait", 1),
    "a child that ignores TERM": ("trap '' TERM HUP INT; echo up; while :; do sleep 999; done", 1),
    "a stopped daemon that ignores TERM": (f'setsid bash -c "{STOPPED}" & wait', 1),
}


@pytest.mark.slow
@pytest.mark.spec("USR-23")
@pytest.mark.parametrize("family", FAMILIES)
def test_five_seconds_after_kill_9_of_the_lead_nothing_is_left(family: str, tmp_path: Path) -> None:
    script, members = FAMILIES[family]
    # Every process of the family holds the pipe open: its end means that none is left.
    pipe = tmp_path / "held"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    lead = subprocess.Popen([sys.executable, "-c", LEAD, script, str(pipe)], stdout=subprocess.PIPE)
    assert lead.stdout is not None
    with lead.stdout:
        guardian = int(lead.stdout.readline())
        _read_until_up(held, 3 * members)
        lead.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        lead.wait()
    try:
        end = killed + scale_to_load(5)
        assert _wait_until_closed(held, within=end - time.monotonic()), "a process is left"
        assert wait_for_exit(guardian, within=end - time.monotonic()), "the guardian is left"
    finally:
        os.close(held)


def _read_until_up(held: int, times: int) -> None:
    said = b""
    while said.count(b"up") < times:
        assert select.select([held], [], [], 10)[0], f"only {said!r} came"
        said += os.read(held, 4096)


def _wait_until_closed(held: int, *, within: float) -> bool:
    until = time.monotonic() + within
    while select.select([held], [], [], max(0, until - time.monotonic()))[0]:
        if not os.read(held, 4096):
            return True
    return False
