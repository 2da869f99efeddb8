"""A process that is killed while it kills others: none of those stays stopped or alive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from process_helpers import wait_for_exit

from shoal.backends import guardian

# The guardian itself is tested here, as it starts for users.
pytestmark = pytest.mark.fresh_interpreter

# It starts a child in a session of its own and a child in its group, and prints all pids.
_TREE = (
    "sleep 600 & echo $!; setsid sh -c 'sleep 600 & echo $!; echo $$; wait' & echo $!; echo $$; echo ok; wait"
)
_KILLER = "import sys, guardian; guardian.kill_process_trees([int(sys.argv[1])])"


def start_tree() -> tuple[subprocess.Popen[str], set[int]]:
    """Start a tree of processes that outlives its parent's group; return its leader and all pids."""
    leader = subprocess.Popen(["sh", "-c", _TREE], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert leader.stdout is not None
    lines = [leader.stdout.readline().strip() for _ in range(6)]
    return leader, {int(line) for line in lines if line != "ok"}


@pytest.mark.needs("strace")
@pytest.mark.spec("LIF-04")
@pytest.mark.parametrize("call", range(1, 9))
def test_a_killer_that_is_killed_leaves_no_stopped_process(call, tmp_path):
    leader, pids = start_tree()
    inject = ["strace", "-o", str(tmp_path / "calls"), "-e", "trace=kill", "-e"]
    killer = subprocess.run(
        [*inject, f"inject=kill:signal=KILL:when={call}", sys.executable, "-c", _KILLER, str(leader.pid)],
        cwd=Path(guardian.__file__).parent,
        check=False,
        timeout=60,
    )
    try:
        assert killer.returncode == -9
        assert all(wait_for_exit(pid, within=20) for pid in pids)
    finally:
        guardian.kill_process_trees([leader.pid])
        leader.wait()
        if leader.stdout is not None:
            leader.stdout.close()
