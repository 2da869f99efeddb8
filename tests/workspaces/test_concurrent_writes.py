"""Two processes that change one file: the second one is refused, and no write is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.workspaces.local_workspace import LocalWorkspace

EACH, PROCESSES = 60, 3
ADD_LINES_SCRIPT = """
import sys
from pathlib import Path
from shoal.core.errors import WorkspaceError
from shoal.workspaces.local_workspace import LocalWorkspace

root, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
workspace, file = LocalWorkspace(root), root / "shared.txt"
sys.stdin.readline()
for number in range(count):
    while True:
        content = workspace.read_file(file)
        try:
            workspace.write_file(file, content + f"{name}-{number}\\n".encode())
        except WorkspaceError as refusal:
            assert "Nothing was written" in str(refusal), refusal
            continue
        break
"""
PAUSE_BEFORE_WRITE_SCRIPT = """
import sys
from pathlib import Path
from shoal.core.errors import WorkspaceError
from shoal.workspaces.checkpoints import CheckpointStore
from shoal.workspaces.local_workspace import LocalWorkspace

class PausingCheckpoints(CheckpointStore):
    def record_change(self, *given, **more):
        super().record_change(*given, **more)
        print("between", flush=True)
        sys.stdin.readline()

root = Path(sys.argv[1])
workspace = LocalWorkspace(root, checkpoints=PausingCheckpoints(root.parent / "kept"))
file = root / "shared.txt"
workspace.read_file(file)
try:
    workspace.write_file(file, b"of the first\\n")
except WorkspaceError as refusal:
    print(refusal, flush=True)
else:
    print("written", flush=True)
"""
DIE_DURING_WRITE_SCRIPT = """
import os, signal, sys
from pathlib import Path
from shoal.workspaces.local_workspace import LocalWorkspace

def die(event, _):
    if event == "os.link":
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(die)
LocalWorkspace(Path(sys.argv[1])).write_file(Path(sys.argv[1]) / "never.txt", b"half")
"""


def start_script(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.spec("USR-28")
def test_edits_of_several_processes_all_reach_the_file(tmp_path: Path) -> None:
    file = tmp_path / "shared.txt"
    file.write_text("")
    writers = [start_script(ADD_LINES_SCRIPT, tmp_path, name, EACH) for name in range(PROCESSES)]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    wanted = {f"{name}-{number}" for name in range(PROCESSES) for number in range(EACH)}
    assert set(file.read_text().split()) == wanted
    assert not list(tmp_path.glob(".shoal-*"))


@pytest.mark.spec("USR-28")
@pytest.mark.parametrize("change", ["replaced", "rewritten", "removed"])
def test_a_change_between_check_and_write_is_not_overwritten(tmp_path: Path, change: str) -> None:
    root = tmp_path / "project"
    root.mkdir()
    file = root / "shared.txt"
    file.write_text("before\n")
    first = start_script(PAUSE_BEFORE_WRITE_SCRIPT, root)
    assert first.stdout is not None
    assert first.stdout.readline() == "between\n"
    match change:
        case "replaced":
            (root / "new").write_text("of another program\n")
            (root / "new").rename(file)
        case "rewritten":
            file.write_text("of another program\n")
        case "removed":
            file.unlink()
    output, _ = first.communicate("go on\n", timeout=30)
    assert "Cannot write" in output
    assert "somebody else has just changed it" in output
    assert not file.exists() if change == "removed" else file.read_text() == "of another program\n"


@pytest.mark.spec("USR-28")
def test_a_writer_passes_a_stalled_writer_and_the_stalled_one_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    file = root / "shared.txt"
    file.write_text("before\n")
    second = LocalWorkspace(root)
    second.read_file(file)
    first = start_script(PAUSE_BEFORE_WRITE_SCRIPT, root)
    assert first.stdout is not None
    assert first.stdout.readline() == "between\n"
    second.write_file(file, b"of the second\n")
    output, _ = first.communicate("go on\n", timeout=30)
    assert "Nothing was written" in output
    assert file.read_text() == "of the second\n"


def test_a_temporary_file_of_a_killed_process_is_removed_by_the_next_write(tmp_path: Path) -> None:
    dead = start_script(DIE_DURING_WRITE_SCRIPT, tmp_path)
    dead.communicate(timeout=30)
    (left,) = tmp_path.iterdir()
    LocalWorkspace(tmp_path).write_file(tmp_path / "a.txt", b"a")
    assert left.exists(), "another process may be writing it"
    mine = tmp_path / f".shoal-{os.getpid()}-0.tmp"
    link = tmp_path / f".shoal-{dead.pid}-77.tmp"
    mine.touch()
    link.symlink_to("a.txt")
    for path in (left, mine, link):
        os.utime(path, (1, 1), follow_symlinks=False)
    LocalWorkspace(tmp_path).write_file(tmp_path / "b.txt", b"b")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [mine.name, link.name, "a.txt", "b.txt"]
    )
