"""Undo restores files turn by turn, survives a crash at any step, and keeps changes of others."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.core.errors import WorkspaceError
from shoal.workspaces.checkpoints import ChangedFile, CheckpointStore, UnrestoredFile
from shoal.workspaces.local_workspace import LocalWorkspace


def test_an_unreadable_checkpoint_index_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "kept" / "index.jsonl").mkdir(parents=True)
    checkpoints = CheckpointStore(tmp_path / "kept")
    for call in (checkpoints.list_undoable_turns, lambda: checkpoints.undo_from_turn(1)):
        with pytest.raises(WorkspaceError, match=r"index\.jsonl"):
            call()


class Project:
    """A project with an agent that writes to it, turn by turn."""

    def __init__(self, top: Path) -> None:
        self.root = top / "project"
        self.root.mkdir()
        self.checkpoints = CheckpointStore(top / "kept")
        self.workspace = LocalWorkspace(self.root, checkpoints=self.checkpoints)

    def write_as_agent(self, turn: int, name: str, content: str) -> None:
        self.workspace.set_checkpoint_turn(turn)
        path = self.root / name
        if path.exists():
            self.workspace.read_file(path)
        self.workspace.write_file(path, content.encode())

    def read_files(self) -> dict[str, str]:
        return {str(p.relative_to(self.root)): p.read_text() for p in self.root.rglob("*") if p.is_file()}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_undo_reverts_all_turns_from_the_given_one(project: Project):
    (project.root / "a").write_text("a0")
    (project.root / "a").chmod(0o640)
    project.write_as_agent(1, "a", "a1")
    project.write_as_agent(2, "a", "a2")
    project.write_as_agent(2, "new/b", "b2")
    project.write_as_agent(3, "a", "a3")

    report = project.checkpoints.undo_from_turn(2)
    assert project.read_files() == {"a": "a1"}
    assert report.restored == (project.root / "a",)
    assert report.removed == (project.root / "new/b",)
    assert report.left_alone == ()

    project.checkpoints.undo_from_turn(1)
    assert project.read_files() == {"a": "a0"}
    assert stat.S_IMODE((project.root / "a").stat().st_mode) == 0o640


def test_a_second_undo_does_nothing(project: Project):
    (project.root / "a").write_text("a0")
    for turn in (1, 2, 3):
        project.write_as_agent(turn, "a", f"a{turn}")
    project.checkpoints.undo_from_turn(1)
    again = project.checkpoints.undo_from_turn(1)
    assert (again.restored, again.removed, again.left_alone) == ((), (), ())
    assert project.checkpoints.list_undoable_turns() == ()


def test_files_changed_by_the_user_since_are_skipped_and_listed(project: Project):
    (project.root / "a").write_text("a0")
    project.write_as_agent(1, "a", "a1")
    project.write_as_agent(1, "made", "agent")
    project.write_as_agent(1, "b", "b1")
    (project.root / "a").write_text("a person")
    (project.root / "made").write_text("a person too")
    report = project.checkpoints.undo_from_turn(1)
    assert project.read_files() == {"a": "a person", "made": "a person too"}
    assert report.removed == (project.root / "b",)
    why = "somebody else changed it after the agent did"
    assert set(report.left_alone) == {
        UnrestoredFile(path=project.root / "a", why=why),
        UnrestoredFile(path=project.root / "made", why=why),
    }


def test_undo_restores_the_version_the_user_wrote_between_two_turns(project: Project):
    (project.root / "a").write_text("a0")
    project.write_as_agent(1, "a", "a1")
    (project.root / "a").write_text("a person")
    project.write_as_agent(2, "a", "a2")
    report = project.checkpoints.undo_from_turn(1)
    assert project.read_files() == {"a": "a person"}
    assert [left.why for left in report.left_alone] == [
        "it was restored to somebody else's version, not to the original"
    ]
    assert project.checkpoints.undo_from_turn(1).restored == ()
    assert project.read_files() == {"a": "a person"}


def test_a_file_the_user_deleted_stays_deleted(project: Project):
    (project.root / "a").write_text("a0")
    project.write_as_agent(1, "a", "a1")
    (project.root / "a").unlink()
    report = project.checkpoints.undo_from_turn(1)
    assert project.read_files() == {}
    assert len(report.left_alone) == 1


def test_a_file_the_agent_deleted_is_restored(project: Project):
    path = project.root / "dir/a"
    path.parent.mkdir()
    path.write_text("a0")
    path.chmod(0o700)
    project.checkpoints.record_change(1, path, before=b"a0", after=None, mode=0o700)
    path.unlink()
    path.parent.rmdir()
    assert project.checkpoints.list_undoable_turns()[0].files == (ChangedFile(path=path, how="deleted"),)
    assert project.checkpoints.undo_from_turn(1).restored == (path,)
    assert path.read_text() == "a0"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_turn_numbers_continue_after_an_undo(project: Project):
    (project.root / "a").write_text("a0")
    project.write_as_agent(1, "a", "a1")
    project.write_as_agent(2, "a", "a2")
    project.checkpoints.undo_from_turn(1)
    project.write_as_agent(1, "a", "other 1")
    project.write_as_agent(2, "a", "other 2")
    report = project.checkpoints.undo_from_turn(2)
    assert report.left_alone == ()
    assert project.read_files() == {"a": "other 1"}


def test_the_list_of_turns_names_each_file_once(project: Project):
    (project.root / "a").write_text("a0")
    project.write_as_agent(1, "a", "a1")
    project.write_as_agent(1, "a", "a1 again")
    project.write_as_agent(4, "b", "b")
    listed = [
        (t.turn, [(f.path.name, f.how) for f in t.files]) for t in project.checkpoints.list_undoable_turns()
    ]
    assert listed == [(1, [("a", "changed")]), (4, [("b", "created")])]


def test_content_removed_by_an_undo_is_still_stored(project: Project, tmp_path: Path):
    project.write_as_agent(1, "a", "precious")
    project.checkpoints.undo_from_turn(1)
    kept = [p.read_text() for p in (tmp_path / "kept/blobs").rglob("*") if p.is_file()]
    assert "precious" in kept


def test_a_file_replaced_by_a_link_is_skipped(project: Project, tmp_path: Path):
    (project.root / "a").write_text("a0")
    project.write_as_agent(1, "a", "a1")
    (tmp_path / "elsewhere").write_text("a1")
    (project.root / "a").unlink()
    (project.root / "a").symlink_to(tmp_path / "elsewhere")
    report = project.checkpoints.undo_from_turn(1)
    assert "symbolic link" in report.left_alone[0].why
    assert (tmp_path / "elsewhere").read_text() == "a1"


def test_names_that_are_not_utf_8_and_a_torn_last_line_are_read(project: Project, tmp_path: Path):
    name = os.fsdecode(b"caf\xe9\n")
    (project.root / name).write_text("a0")
    project.write_as_agent(1, name, "a1")
    with (tmp_path / "kept/index.jsonl").open("ab") as index:
        index.write(b'{"turn": 1, "pa')
    again = CheckpointStore(tmp_path / "kept")
    again.record_change(2, project.root / "b", before=None, after=b"b", mode=None)
    (project.root / "b").write_bytes(b"b")
    assert [t.turn for t in again.list_undoable_turns()] == [1, 2]
    again.undo_from_turn(1)
    assert project.read_files() == {name: "a0"}


@pytest.mark.parametrize(
    ("damage", "damaged_lines"),
    [
        (lambda first, second: first + second + b"\n", 0),
        (lambda first, second: first[:-9] + second + b"\n", 1),
        (lambda first, second: first[:-9] + b"\n" + second + b"\n", 1),
        (lambda first, second: b"\0" * 40 + b"\n" + second + b"\n", 1),
        (lambda first, second: first + b"\n" + second[:30], 1),
        (lambda first, second: first + b'\n{"turn": "two"}\n' + second + b"\n", 1),
    ],
    ids=["joined", "torn and joined", "torn", "zeros", "torn end", "other values"],
)
def test_damaged_lines_of_the_index_are_read_as_far_as_possible_and_reported(
    project: Project, tmp_path: Path, damage: Callable[[bytes, bytes], bytes], damaged_lines: int
):
    project.write_as_agent(1, "a", "a1")
    project.write_as_agent(2, "b", "b2")
    index = tmp_path / "kept/index.jsonl"
    first, second = index.read_bytes().splitlines()
    index.write_bytes(damage(first, second))
    readable = {name for name, line in (("a", first), ("b", second)) if line in index.read_bytes()}
    assert bool(project.checkpoints.find_damage()) == bool(damaged_lines)
    report = project.checkpoints.undo_from_turn(1)
    assert {path.name for path in report.removed} == readable
    assert [(each.path, each.why) for each in report.left_alone] == [
        (index, "1 line of this list of changes cannot be read, so it may be impossible to undo all changes")
    ] * damaged_lines


def test_lost_or_damaged_content_is_reported_and_no_file_is_overwritten(project: Project, tmp_path: Path):
    for name in "ab":
        (project.root / name).write_text(f"{name}0")
        project.write_as_agent(1, name, f"{name}1")
    for blob in (tmp_path / "kept/blobs").rglob("*"):
        if blob.is_file() and blob.read_text() == "a0":
            blob.unlink()
        elif blob.is_file():
            blob.write_text("other")
    report = project.checkpoints.undo_from_turn(1)
    assert project.read_files() == {"a": "a1", "b": "b1"}
    assert {left.why for left in report.left_alone} == {
        "its old content is no longer stored",
        "its stored old content is damaged",
    }


def test_old_contents_are_private(project: Project, tmp_path: Path):
    (project.root / "a").write_text("secret")
    project.write_as_agent(1, "a", "a1")
    kept = [tmp_path / "kept", *(tmp_path / "kept").rglob("*")]
    assert all(stat.S_IMODE(p.stat().st_mode) & 0o077 == 0 for p in kept)


# Each child is killed just before its n-th disk operation, for every n.
CRASH_SCRIPT = """
import os, signal, sys
from pathlib import Path
from shoal.workspaces.checkpoints import CheckpointStore
from shoal.workspaces.local_workspace import LocalWorkspace

what, top = sys.argv[1], Path(sys.argv[2])
STEPS = {"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.chmod", "os.chown"}

def set_up(n):
    root = top / str(n) / "project"
    root.mkdir(parents=True)
    (root / "a").write_text("a0")
    workspace = LocalWorkspace(root, checkpoints=CheckpointStore(root.parent / "kept"))
    if what == "undo":
        change(workspace, root)
    return workspace, root

def change(workspace, root):
    workspace.set_checkpoint_turn(1)
    workspace.read_file(root / "a")
    workspace.write_file(root / "a", b"a1")
    workspace.write_file(root / "new", b"n1")
    workspace.set_checkpoint_turn(2)
    workspace.write_file(root / "a", b"a2")

def die_at(n):
    left = n
    def step(event, args):
        nonlocal left
        if event in STEPS:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(step)

n = 0
while True:
    n += 1
    workspace, root = set_up(n)
    child = os.fork()
    if child == 0:
        die_at(n)
        if what == "undo":
            CheckpointStore(root.parent / "kept").undo_from_turn(1)
        else:
            change(workspace, root)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        sys.exit(os.WEXITSTATUS(status))
"""


@pytest.mark.parametrize("what", ["change", "undo"])
def test_undo_works_after_a_crash_at_any_step(tmp_path: Path, what: str):
    subprocess.run([sys.executable, "-c", CRASH_SCRIPT, what, tmp_path], check=True, timeout=60)
    deaths = sorted(tmp_path.iterdir())
    assert len(deaths) > 10
    for death in deaths:
        root = death / "project"
        assert (root / "a").read_text() in ("a0", "a1", "a2"), "no reader ever sees half a file"
        report = CheckpointStore(death / "kept").undo_from_turn(1)
        assert report.left_alone == ()
        whole = {p.name: p.read_text() for p in root.iterdir() if not p.name.endswith(".tmp")}
        assert whole == {"a": "a0"}
        assert CheckpointStore(death / "kept").undo_from_turn(1).restored == ()
