"""The local workspace: where paths lead, what counts as fresh, and writes that are whole."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.core.errors import WorkspaceError
from shoal.workspaces.local import LocalWorkspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def workspace(root: Path) -> LocalWorkspace:
    return LocalWorkspace(root)


def test_paths_are_relative_to_where_the_agent_stands(workspace: LocalWorkspace, root: Path):
    (root / "a").mkdir()
    assert workspace.locate("x.py") == root / "x.py"
    assert workspace.move(root / "a")
    assert workspace.locate("x.py") == root / "a/x.py"
    assert workspace.locate("../x.py") == root / "x.py"
    assert workspace.locate("/etc/passwd") == Path("/etc/passwd")
    assert workspace.locate("~/x") == Path("~/x").expanduser()
    assert workspace.locate("~root/x") == root / "a/~root/x"


def test_it_does_not_move_outside_or_to_what_is_no_directory(workspace: LocalWorkspace, root: Path):
    (root / "file").touch()
    (root / "out").symlink_to("/")
    for elsewhere in ("/", root / "file", root / "missing", root / "out", root / ".."):
        assert not workspace.move(Path(elsewhere))
    assert workspace.cwd == root


@pytest.mark.parametrize("path", ["", "  ", "a\0b", "x" * 256, "d/" * 3000, "\ud800"])
def test_a_path_no_file_can_have_is_refused(workspace: LocalWorkspace, path: str):
    with pytest.raises(WorkspaceError):
        workspace.locate(path)


def test_links_are_followed_also_for_files_that_do_not_exist_yet(workspace: LocalWorkspace, root: Path):
    outside = root.parent / "outside"
    outside.mkdir()
    (root / "dir").symlink_to(outside)
    (root / "dangling").symlink_to(outside / "new")
    (root / "inside").symlink_to(root / "real")
    (root / "circle").symlink_to(root / "circle")
    assert not workspace.contains(root / "dir/new/deeper.txt")
    assert not workspace.contains(root / "dangling")
    assert workspace.contains(root / "inside")
    assert workspace.contains(root / "new/deeper.txt")
    assert not workspace.contains(Path("a\0b"))
    workspace.grant(outside)
    assert workspace.contains(root / "dir/new/deeper.txt")


def test_a_sibling_whose_name_starts_alike_is_outside(workspace: LocalWorkspace, root: Path):
    assert not workspace.contains(Path(f"{root}-other/x"))


@pytest.mark.spec("USR-29")
@pytest.mark.spec("HOM-04")
def test_of_a_thousand_hostile_names_none_leads_to_a_file_outside(root: Path):
    workspace = LocalWorkspace(root)
    (root / "link").symlink_to(root.parent)
    before = _everything(root.parent)
    for name in _hostile_names(1000):
        try:
            path = workspace.locate(name)
            if workspace.contains(path):
                workspace.write(path, b"x")
        except WorkspaceError:
            continue
    outside = {p for p in _everything(root.parent) - before if not p.startswith(os.fsencode(root) + b"/")}
    assert outside == set()
    assert len(_everything(root)) > 100


def _hostile_names(count: int) -> list[str]:
    chosen = random.Random(5)
    parts = [
        *(
            "..",
            ".",
            "",
            "~",
            "link",
            "link/..",
            "-rf",
            "$(touch x)",
            "`id`",
            "; rm -rf .",
            "a\nb",
            "a\0b",
            "\x1b[2J",
        ),
        *(
            "%2e%2e",
            "..\\..",
            "\udcff",
            "日本",
            "con",
            "x" * 255,
            "x" * 300,
            "*",
            "{a,b}",
            "'\"",
            "&& id",
            "|",
            "\u202e",
        ),
    ]
    return [
        ("/" * chosen.randint(0, 2)) * chosen.randint(0, 1)
        + "/".join(chosen.choices(parts, k=chosen.randint(1, 6)))
        for _ in range(count)
    ]


def _everything(top: Path) -> set[bytes]:
    return {os.fsencode(path) for path in top.rglob("*")}


def test_a_name_that_is_not_utf_8_is_found_by_its_shown_form(workspace: LocalWorkspace, root: Path):
    raw = os.fsencode(root) + b"/caf\xe9\n.txt"
    Path(os.fsdecode(raw)).write_text("x")
    assert os.fsencode(workspace.locate("caf\\xe9\\x0a.txt")) == raw
    assert workspace.read(workspace.locate("caf\udce9\n.txt")) == b"x"
    (root / "dir").mkdir()
    assert workspace.locate("dir\\x2f\\x2e\\x2e") == root / "dir\\x2f\\x2e\\x2e"


@pytest.mark.spec("USR-28")
def test_a_file_that_was_not_read_is_not_overwritten(workspace: LocalWorkspace, root: Path):
    (root / "f").write_text("theirs\n")
    with pytest.raises(WorkspaceError, match=r"has not been read(.|\n)*-theirs\n\+mine"):
        workspace.write(root / "f", b"mine\n")
    assert (root / "f").read_text() == "theirs\n"
    with pytest.raises(WorkspaceError, match="has not been read"):
        workspace.current(root / "f")


@pytest.mark.spec("USR-28")
def test_a_file_changed_since_it_was_read_is_not_overwritten(workspace: LocalWorkspace, root: Path):
    file = root / "f"
    file.write_text("one\ntwo\n")
    workspace.read(file)
    times = file.stat().st_mtime_ns
    file.write_text("one\nTWO\n")
    # Same size, same time: only the content tells.
    os.utime(file, ns=(times, times))
    with pytest.raises(WorkspaceError, match=r"changed since it was read(.|\n)*-two\n\+TWO"):
        workspace.write(file, b"mine\n")
    with pytest.raises(WorkspaceError, match="changed since it was read"):
        workspace.current(file)
    assert file.read_text() == "one\nTWO\n"
    workspace.read(file)
    workspace.write(file, b"mine\n")
    workspace.write(file, b"mine again\n")
    assert file.read_text() == "mine again\n"


@pytest.mark.spec("USR-28")
def test_of_two_agents_that_read_a_file_the_second_to_write_is_refused(root: Path):
    (root / "f").write_text("a\n")
    one, two = LocalWorkspace(root), LocalWorkspace(root)
    one.read(root / "f")
    two.read(root / "f")
    one.write(root / "f", b"one\n")
    with pytest.raises(WorkspaceError, match=r"-a\n\+one"):
        two.write(root / "f", b"two\n")


def test_a_file_touched_but_not_changed_is_still_fresh(workspace: LocalWorkspace, root: Path):
    (root / "f").write_text("a\n")
    workspace.read(root / "f")
    os.utime(root / "f", (1, 1))
    workspace.write(root / "f", b"b\n")


def test_a_file_opened_in_parts_is_fresh_until_size_or_time_change(workspace: LocalWorkspace, root: Path):
    (root / "f").write_text("a\n" * 100)
    with workspace.open(root / "f") as file:
        assert file.read(2) == b"a\n"
    workspace.write(root / "f", b"b\n")
    with workspace.open(root / "f"):
        pass
    (root / "f").write_text("longer than before\n")
    with pytest.raises(WorkspaceError, match="changed since"):
        workspace.write(root / "f", b"c\n")


@pytest.mark.spec("USR-28")
def test_a_link_and_its_target_are_one_file(workspace: LocalWorkspace, root: Path):
    (root / "target").write_text("a\n")
    (root / "link").symlink_to("target")
    with pytest.raises(WorkspaceError):
        workspace.write(root / "link", b"b\n")
    workspace.read(root / "link")
    workspace.write(root / "target", b"b\n")
    workspace.write(root / "link", b"c\n")
    assert (root / "link").is_symlink()
    assert (root / "target").read_text() == "c\n"


def test_a_write_keeps_the_mode_and_makes_parent_directories(workspace: LocalWorkspace, root: Path):
    script = root / "run.sh"
    script.write_text("a")
    script.chmod(0o750)
    workspace.read(script)
    workspace.write(script, b"b")
    workspace.write(root / "new/deep/file", b"x")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    assert (root / "new/deep/file").read_bytes() == b"x"
    assert not list(root.rglob("*.tmp"))


def test_what_is_in_the_way_is_said(workspace: LocalWorkspace, root: Path):
    (root / "file").write_text("x")
    (root / "dir").mkdir()
    os.mkfifo(root / "pipe")
    (root / "circle").symlink_to("circle")
    for path, said in (
        ("file/below", "is a file, not a directory|a file is in the way"),
        ("dir", "is a directory"),
        ("pipe", "not a file"),
        ("circle", "circle"),
        ("/proc/nowhere/x", "Cannot write"),
    ):
        with pytest.raises(WorkspaceError, match=said):
            workspace.write(root / path, b"x")
    with pytest.raises(WorkspaceError, match="not a file"):
        workspace.read(root / "pipe")
    with pytest.raises(WorkspaceError, match="does not exist"):
        workspace.read(root / "missing")


def test_a_disk_that_takes_no_more_leaves_the_old_file_and_says_so(root: Path):
    (root / "f").write_text("old")
    script = """
import resource, sys
from pathlib import Path
from shoal.core.errors import WorkspaceError
from shoal.workspaces.local import LocalWorkspace
root = Path(sys.argv[1])
workspace = LocalWorkspace(root)
workspace.read(root / "f")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    workspace.write(root / "f", b"x" * 5000)
except WorkspaceError as refusal:
    print(refusal)
"""
    done = subprocess.run([sys.executable, "-c", script, root], capture_output=True, text=True, check=True)
    assert "larger than the system allows" in done.stdout
    assert (root / "f").read_text() == "old"
    assert list(root.iterdir()) == [root / "f"]


def test_a_binary_difference_is_told_by_size(workspace: LocalWorkspace, root: Path):
    (root / "b").write_bytes(b"\0\1\2")
    with pytest.raises(WorkspaceError, match="binary: 3 bytes became 2"):
        workspace.write(root / "b", b"\0\1")
