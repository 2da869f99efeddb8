"""Two processes that change one file: whoever comes second is told, and nothing written is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.workspaces.local import LocalWorkspace

EACH, PROCESSES = 60, 3
ADDS_LINES = """
import sys
from pathlib import Path
from shoal.core.errors import WorkspaceError
from shoal.workspaces.local import LocalWorkspace

root, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
workspace, file = LocalWorkspace(root), root / "shared.txt"
sys.stdin.readline()
for number in range(count):
    while True:
        content = workspace.read(file)
        try:
            workspace.write(file, content + f"{name}-{number}\\n".encode())
        except WorkspaceError as refusal:
            assert "Nothing was written" in str(refusal), refusal
            continue
        break
"""
STOPS_BEFORE_IT_WRITES = """
import sys
from pathlib import Path
from shoal.core.errors import WorkspaceError
from shoal.workspaces.checkpoints import Checkpoints
from shoal.workspaces.local import LocalWorkspace

class Meeting(Checkpoints):
    def keep(self, *given, **more):
        super().keep(*given, **more)
        print("between", flush=True)
        sys.stdin.readline()

root = Path(sys.argv[1])
workspace, file = LocalWorkspace(root, checkpoints=Meeting(root.parent / "kept")), root / "shared.txt"
workspace.read(file)
try:
    workspace.write(file, b"of the first\\n")
except WorkspaceError as refusal:
    print(refusal, flush=True)
else:
    print("written", flush=True)
"""
DIES_IN_THE_MIDDLE = """
import os, signal, sys
from pathlib import Path
from shoal.workspaces.local import LocalWorkspace

def die(event, _):
    if event == "os.link":
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(die)
LocalWorkspace(Path(sys.argv[1])).write(Path(sys.argv[1]) / "never.txt", b"half")
"""


def started(script: str, *words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.spec("USR-28")
def test_edits_of_several_processes_are_all_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "shared.txt"
    file.write_text("")
    writers = [started(ADDS_LINES, tmp_path, name, EACH) for name in range(PROCESSES)]
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
@pytest.mark.parametrize("how", ["in place of it", "in it", "away"])
def test_a_change_between_the_last_look_and_the_write_is_not_written_over(tmp_path: Path, how: str) -> None:
    root = tmp_path / "project"
    root.mkdir()
    file = root / "shared.txt"
    file.write_text("before\n")
    first = started(STOPS_BEFORE_IT_WRITES, root)
    assert first.stdout is not None
    assert first.stdout.readline() == "between\n"
    match how:
        case "in place of it":
            (root / "new").write_text("of another program\n")
            (root / "new").rename(file)
        case "in it":
            file.write_text("of another program\n")
        case "away":
            file.unlink()
    told, _ = first.communicate("go on\n", timeout=30)
    assert "Cannot write" in told
    assert "somebody else changed it just now" in told
    assert not file.exists() if how == "away" else file.read_text() == "of another program\n"


@pytest.mark.spec("USR-28")
def test_who_waits_for_a_write_that_stands_still_goes_on_and_the_other_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    file = root / "shared.txt"
    file.write_text("before\n")
    second = LocalWorkspace(root)
    second.read(file)
    first = started(STOPS_BEFORE_IT_WRITES, root)
    assert first.stdout is not None
    assert first.stdout.readline() == "between\n"
    second.write(file, b"of the second\n")
    told, _ = first.communicate("go on\n", timeout=30)
    assert "Nothing was written" in told
    assert file.read_text() == "of the second\n"


def test_what_a_killed_process_was_writing_is_cleared_away_by_the_next_write(tmp_path: Path) -> None:
    dead = started(DIES_IN_THE_MIDDLE, tmp_path)
    dead.communicate(timeout=30)
    (left,) = tmp_path.iterdir()
    LocalWorkspace(tmp_path).write(tmp_path / "a.txt", b"a")
    assert left.exists(), "it may be somebody's who is just writing"
    mine = tmp_path / f".shoal-{os.getpid()}-0.tmp"
    link = tmp_path / f".shoal-{dead.pid}-77.tmp"
    mine.touch()
    link.symlink_to("a.txt")
    for path in (left, mine, link):
        os.utime(path, (1, 1), follow_symlinks=False)
    LocalWorkspace(tmp_path).write(tmp_path / "b.txt", b"b")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [mine.name, link.name, "a.txt", "b.txt"]
    )
