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
from shoal.workspaces.local_workspace import LocalWorkspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def workspace(root: Path) -> LocalWorkspace:
    return LocalWorkspace(root)


def test_paths_are_relative_to_the_working_directory(workspace: LocalWorkspace, root: Path):
    (root / "a").mkdir()
    assert workspace.resolve_path("x.py") == root / "x.py"
    assert workspace.change_directory(root / "a")
    assert workspace.resolve_path("x.py") == root / "a/x.py"
    assert workspace.resolve_path("../x.py") == root / "x.py"
    assert workspace.resolve_path("/etc/passwd") == Path("/etc/passwd")
    assert workspace.resolve_path("~/x") == Path("~/x").expanduser()
    assert workspace.resolve_path("~root/x") == root / "a/~root/x"


def test_the_working_directory_must_be_a_directory_inside_the_root(workspace: LocalWorkspace, root: Path):
    (root / "file").touch()
    (root / "out").symlink_to("/")
    for elsewhere in ("/", root / "file", root / "missing", root / "out", root / ".."):
        assert not workspace.change_directory(Path(elsewhere))
    assert workspace.cwd == root


@pytest.mark.parametrize("path", ["", "  ", "a\0b", "x" * 256, "d/" * 3000, "\ud800"])
def test_an_impossible_path_is_refused(workspace: LocalWorkspace, path: str):
    with pytest.raises(WorkspaceError):
        workspace.resolve_path(path)


def test_links_are_followed_even_for_files_that_do_not_exist_yet(workspace: LocalWorkspace, root: Path):
    outside = root.parent / "outside"
    outside.mkdir()
    (root / "dir").symlink_to(outside)
    (root / "dangling").symlink_to(outside / "new")
    (root / "inside").symlink_to(root / "real")
    (root / "circle").symlink_to(root / "circle")
    assert not workspace.contains_path(root / "dir/new/deeper.txt")
    assert not workspace.contains_path(root / "dangling")
    assert workspace.contains_path(root / "inside")
    assert workspace.contains_path(root / "new/deeper.txt")
    assert not workspace.contains_path(Path("a\0b"))
    workspace.grant_directory(outside)
    assert workspace.contains_path(root / "dir/new/deeper.txt")


def test_a_sibling_directory_with_the_same_prefix_is_outside(workspace: LocalWorkspace, root: Path):
    assert not workspace.contains_path(Path(f"{root}-other/x"))


@pytest.mark.spec("USR-29")
@pytest.mark.spec("HOM-04")
def test_a_thousand_hostile_names_touch_no_file_outside_the_workspace(root: Path):
    workspace = LocalWorkspace(root)
    (root / "link").symlink_to(root.parent)
    before = _list_tree(root.parent)
    for name in _make_hostile_names(1000):
        try:
            path = workspace.resolve_path(name)
            if workspace.contains_path(path):
                workspace.write_file(path, b"x")
        except WorkspaceError:
            continue
    outside = {p for p in _list_tree(root.parent) - before if not p.startswith(os.fsencode(root) + b"/")}
    assert outside == set()
    assert len(_list_tree(root)) > 100


def _make_hostile_names(count: int) -> list[str]:
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


def _list_tree(top: Path) -> set[bytes]:
    return {os.fsencode(path) for path in top.rglob("*")}


def test_a_name_that_is_not_utf_8_is_found_by_its_displayed_form(workspace: LocalWorkspace, root: Path):
    raw = os.fsencode(root) + b"/caf\xe9\n.txt"
    Path(os.fsdecode(raw)).write_text("x")
    assert os.fsencode(workspace.resolve_path("caf\\xe9\\x0a.txt")) == raw
    assert workspace.read_file(workspace.resolve_path("caf\udce9\n.txt")) == b"x"
    (root / "dir").mkdir()
    assert workspace.resolve_path("dir\\x2f\\x2e\\x2e") == root / "dir\\x2f\\x2e\\x2e"


@pytest.mark.spec("USR-28")
def test_a_file_that_was_not_read_is_not_overwritten(workspace: LocalWorkspace, root: Path):
    (root / "f").write_text("theirs\n")
    with pytest.raises(WorkspaceError, match=r"has not been read(.|\n)*-theirs\n\+mine"):
        workspace.write_file(root / "f", b"mine\n")
    assert (root / "f").read_text() == "theirs\n"
    with pytest.raises(WorkspaceError, match="has not been read"):
        workspace.read_file_for_change(root / "f")


@pytest.mark.spec("USR-28")
def test_a_file_changed_since_it_was_read_is_not_overwritten(workspace: LocalWorkspace, root: Path):
    file = root / "f"
    file.write_text("one\ntwo\n")
    workspace.read_file(file)
    times = file.stat().st_mtime_ns
    file.write_text("one\nTWO\n")
    # Same size, same time: only the content tells.
    os.utime(file, ns=(times, times))
    with pytest.raises(WorkspaceError, match=r"changed since you read it(.|\n)*-two\n\+TWO"):
        workspace.write_file(file, b"mine\n")
    with pytest.raises(WorkspaceError, match="changed since you read it"):
        workspace.read_file_for_change(file)
    assert file.read_text() == "one\nTWO\n"
    workspace.read_file(file)
    workspace.write_file(file, b"mine\n")
    workspace.write_file(file, b"mine again\n")
    assert file.read_text() == "mine again\n"


@pytest.mark.spec("USR-28")
def test_the_second_of_two_agents_that_read_a_file_may_not_overwrite_it(root: Path):
    (root / "f").write_text("a\n")
    one, two = LocalWorkspace(root), LocalWorkspace(root)
    one.read_file(root / "f")
    two.read_file(root / "f")
    one.write_file(root / "f", b"one\n")
    with pytest.raises(WorkspaceError, match=r"-a\n\+one"):
        two.write_file(root / "f", b"two\n")


def test_a_touched_but_unchanged_file_is_still_fresh(workspace: LocalWorkspace, root: Path):
    (root / "f").write_text("a\n")
    workspace.read_file(root / "f")
    os.utime(root / "f", (1, 1))
    workspace.write_file(root / "f", b"b\n")


def test_a_file_opened_in_parts_is_fresh_until_size_or_time_change(workspace: LocalWorkspace, root: Path):
    (root / "f").write_text("a\n" * 100)
    with workspace.open_file(root / "f") as file:
        assert file.read(2) == b"a\n"
    workspace.write_file(root / "f", b"b\n")
    with workspace.open_file(root / "f"):
        pass
    (root / "f").write_text("longer than before\n")
    with pytest.raises(WorkspaceError, match="changed since"):
        workspace.write_file(root / "f", b"c\n")


@pytest.mark.spec("USR-28")
def test_a_link_and_its_target_are_one_file(workspace: LocalWorkspace, root: Path):
    (root / "target").write_text("a\n")
    (root / "link").symlink_to("target")
    with pytest.raises(WorkspaceError):
        workspace.write_file(root / "link", b"b\n")
    workspace.read_file(root / "link")
    workspace.write_file(root / "target", b"b\n")
    workspace.write_file(root / "link", b"c\n")
    assert (root / "link").is_symlink()
    assert (root / "target").read_text() == "c\n"


def test_a_write_keeps_the_file_mode_and_creates_parent_directories(workspace: LocalWorkspace, root: Path):
    script = root / "run.sh"
    script.write_text("a")
    script.chmod(0o750)
    workspace.read_file(script)
    workspace.write_file(script, b"b")
    workspace.write_file(root / "new/deep/file", b"x")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    assert (root / "new/deep/file").read_bytes() == b"x"
    assert not list(root.rglob("*.tmp"))


def test_the_error_names_what_blocks_a_write(workspace: LocalWorkspace, root: Path):
    (root / "file").write_text("x")
    (root / "dir").mkdir()
    os.mkfifo(root / "pipe")
    (root / "circle").symlink_to("circle")
    for path, said in (
        ("file/below", "is a file, not a directory|a file exists, but"),
        ("dir", "is a directory"),
        ("pipe", "not a file"),
        ("circle", "circle"),
        ("/proc/nowhere/x", "Cannot write"),
    ):
        with pytest.raises(WorkspaceError, match=said):
            workspace.write_file(root / path, b"x")
    with pytest.raises(WorkspaceError, match="not a file"):
        workspace.read_file(root / "pipe")
    with pytest.raises(WorkspaceError, match="does not exist"):
        workspace.read_file(root / "missing")


def test_a_full_disk_keeps_the_old_file_and_raises_an_error(root: Path):
    (root / "f").write_text("old")
    script = """
import resource, sys
from pathlib import Path
from shoal.core.errors import WorkspaceError
from shoal.workspaces.local_workspace import LocalWorkspace
root = Path(sys.argv[1])
workspace = LocalWorkspace(root)
workspace.read_file(root / "f")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    workspace.write_file(root / "f", b"x" * 5000)
except WorkspaceError as refusal:
    print(refusal)
"""
    done = subprocess.run([sys.executable, "-c", script, root], capture_output=True, text=True, check=True)
    assert "larger than the system allows" in done.stdout
    assert (root / "f").read_text() == "old"
    assert list(root.iterdir()) == [root / "f"]


def test_the_diff_of_a_binary_file_shows_sizes(workspace: LocalWorkspace, root: Path):
    (root / "b").write_bytes(b"\0\1\2")
    with pytest.raises(WorkspaceError, match="binary: 3 bytes became 2"):
        workspace.write_file(root / "b", b"\0\1")
