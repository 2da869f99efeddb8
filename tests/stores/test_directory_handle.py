"""Files in a directory that is held open: each operation on files, links, directories and nothing."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.core.errors import StateFileError
from shoal.stores.files.access import atomic_rename
from shoal.stores.files.access.directory_handle import DirectoryHandle, read_fd_from_offset

KINDS = ("missing", "file", "link", "dangling", "directory", "pipe")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[DirectoryHandle]:
    with DirectoryHandle.open_root(tmp_path / "home") as handle:
        yield handle


def count_descriptors() -> int:
    """Return the number of open descriptors; 0 if the system does not list them."""
    descriptors = Path("/proc/self/fd")
    return len(list(descriptors.iterdir())) if descriptors.exists() else 0


def put_entry(root: DirectoryHandle, kind: str, name: str = "entry") -> None:
    path = root.path / name
    match kind:
        case "file":
            path.write_bytes(b"old")
        case "link":
            (root.path.parent / "target").write_bytes(b"target")
            path.symlink_to(root.path.parent / "target")
        case "dangling":
            path.symlink_to("nowhere")
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)


REFUSED = StateFileError


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("operation", "outcomes"),
    [
        (
            lambda root: root.read_file("entry"),
            {"missing": None, "file": b"old"},
        ),
        (lambda root: root.has_entry("entry"), {**dict.fromkeys(KINDS, True), "missing": False}),
        (
            lambda root: root.get_entry_stat("entry") is not None,
            {**dict.fromkeys(KINDS, True), "missing": False},
        ),
        (
            lambda root: root.is_directory("entry"),
            {**dict.fromkeys(KINDS, False), "directory": True},
        ),
        (
            lambda root: root.describe_irregular_entry("entry"),
            {
                "missing": None,
                "file": None,
                "link": "a link",
                "dangling": "a link",
                "directory": "a directory",
                "pipe": "not a regular file",
            },
        ),
        (
            lambda root: root.create_file_if_missing("entry", b"new"),
            {**dict.fromkeys(KINDS, False), "missing": True},
        ),
        (
            lambda root: root.remove_file("entry"),
            {**dict.fromkeys(KINDS, True), "missing": False, "directory": REFUSED},
        ),
        (lambda root: root.remove_tree("entry"), dict.fromkeys(KINDS, True)),
        (
            lambda root: root.set_entry_aside("entry", "aside"),
            {**dict.fromkeys(KINDS, "aside"), "missing": REFUSED},
        ),
        (
            lambda root: root.add_hard_link("entry", "second"),
            {**dict.fromkeys(KINDS, True), "missing": REFUSED, "directory": REFUSED},
        ),
    ],
)
def test_each_operation_on_each_kind_of_entry(
    root: DirectoryHandle,
    kind: str,
    operation: Callable[[DirectoryHandle], object],
    outcomes: dict[str, object],
) -> None:
    put_entry(root, kind)
    expected = outcomes.get(kind, REFUSED)
    if isinstance(expected, type):
        with pytest.raises(expected):
            operation(root)
    else:
        assert operation(root) == expected
    target = root.path.parent / "target"
    assert not target.exists() or target.read_bytes() == b"target"
    assert not [name for name in root.list_names() if name.startswith(".")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "way", ["replace_file", "write_file", "overwrite_file_in_place", "rewrite_unshared_or_recreate_file"]
)
def test_every_way_of_writing_leaves_the_new_content_or_refuses(
    root: DirectoryHandle, kind: str, way: str
) -> None:
    put_entry(root, kind)
    write = getattr(root, way)
    replaces = {
        "replace_file": ("link", "dangling", "pipe"),
        "rewrite_unshared_or_recreate_file": ("link", "dangling", "pipe"),
    }
    if kind in ("missing", "file", *replaces.get(way, ())):
        write("entry", b"n")
        assert root.read_file("entry") == b"n"
        if kind == "missing":
            assert stat.S_IMODE((root.path / "entry").stat().st_mode) == 0o600
    else:
        with pytest.raises(StateFileError):
            write("entry", b"n")
    target = root.path.parent / "target"
    assert not target.exists() or target.read_bytes() == b"target"
    assert root.list_names() in ([], ["entry"])


def test_a_file_that_others_have_open_or_linked_is_not_rewritten(root: DirectoryHandle) -> None:
    root.write_file("entry", b"old")
    inode = (root.path / "entry").stat().st_ino
    root.rewrite_unshared_or_recreate_file("entry", b"alone")
    assert (root.path / "entry").stat().st_ino == inode
    with (root.path / "entry").open("rb") as reader:
        root.rewrite_unshared_or_recreate_file("entry", b"new")
        assert reader.read() == b"alone"
    os.link(root.path / "entry", root.path / "second")
    root.rewrite_unshared_or_recreate_file("entry", b"newer")
    assert root.read_file("second") == b"new"
    assert root.read_file("entry") == b"newer"


def test_second_names_and_names_aside_are_numbered(root: DirectoryHandle) -> None:
    root.write_file("entry", b"a")
    assert [root.add_backup_hard_link("entry", "backup") for _ in range(3)] == [
        "backup",
        "backup-2",
        "backup-3",
    ]
    assert not root.add_hard_link("entry", "backup")
    (root.path / "aside").symlink_to("nowhere")
    assert root.set_entry_aside("entry", "aside") == "aside-2"
    root.write_file("entry", b"b")
    assert root.set_entry_aside("entry", "aside") == "aside-3"
    assert root.read_file("aside-3") == b"b"


def test_a_second_name_of_a_link_is_a_link(root: DirectoryHandle) -> None:
    put_entry(root, "link")
    root.add_hard_link("entry", "second")
    assert (root.path / "second").is_symlink()


def test_files_are_moved_and_exchanged(root: DirectoryHandle) -> None:
    with root.open_or_create("sub") as other:
        root.write_file("entry", b"new")
        root.move_file("entry", other, "moved")
        assert other.read_file("moved") == b"new"
        assert not root.has_entry("entry")
        root.write_file("entry", b"newer")
        root.swap_or_move_file("entry", other, "moved")
        assert other.read_file("moved") == b"newer"
        root.write_file("fresh", b"first")
        root.swap_or_move_file("fresh", other, "unknown")
        assert other.read_file("unknown") == b"first"
        assert not root.has_entry("fresh")
        with pytest.raises(StateFileError):
            root.move_file("missing", other, "x")


def test_a_subdirectory_is_opened_without_links_and_private(root: DirectoryHandle) -> None:
    assert root.open_existing("a", "b") is None
    with root.open_or_create("a", "b") as made:
        assert made.path == root.path / "a" / "b"
        assert stat.S_IMODE(made.path.stat().st_mode) == 0o700
        assert not made.is_removed
        made.path.rmdir()
        assert made.is_removed
    assert made.is_removed
    put_entry(root, "dangling", "link")
    put_entry(root, "file", "file")
    for name in ("link", "file"):
        for open_directory in (root.open_or_create, root.open_existing):
            with pytest.raises(StateFileError, match="is a link or not a directory"):
                open_directory(name, "x")


def test_a_removed_directory_takes_no_files(tmp_path: Path, root: DirectoryHandle) -> None:
    with root.open_or_create("sub") as handle:
        handle.path.rmdir()
        with pytest.raises(StateFileError, match="has been removed"):
            handle.write_file("entry", b"")
        with pytest.raises(FileNotFoundError):
            handle.open_file("entry", os.O_RDONLY)
    handle.close()
    descriptors = count_descriptors()
    for _ in range(3):
        with root.open_or_create("x", "y"), pytest.raises(StateFileError):
            root.open_or_create("x", "../y")
        assert root.open_existing("x", "missing") is None
        put_entry(root, "pipe", "pipe")
        with pytest.raises(StateFileError, match="is not a plain file"):
            root.open_file("pipe", os.O_RDONLY)
        root.remove_file("pipe")
    assert count_descriptors() == descriptors


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b"])
def test_only_plain_names_are_used(root: DirectoryHandle, name: str) -> None:
    for use in (root.read_file, root.has_entry, root.remove_file, root.remove_tree, root.get_entry_stat):
        with pytest.raises(StateFileError, match="is not a file name"):
            use(name)


def test_a_tree_is_removed_without_following_links_until_it_must_stop(root: DirectoryHandle) -> None:
    outside = root.path.parent / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"")
    deep = root.path / "tree" / "a" / "b"
    deep.mkdir(parents=True)
    for number in range(3):
        (deep / f"f{number}").write_bytes(b"")
    (deep / "link").symlink_to(outside)
    answers = iter([True, True, *[False] * 20])
    assert not root.remove_tree("tree", should_continue=lambda: next(answers))
    assert len(list(deep.iterdir())) == 2
    asked: list[None] = []

    def count() -> bool:
        asked.append(None)
        return True

    assert root.remove_tree("tree", should_continue=count)
    assert len(asked) == 5
    assert not root.has_entry("tree")
    assert (outside / "kept").exists()
    assert root.remove_tree("tree")


def test_a_long_file_is_read_from_any_offset(root: DirectoryHandle) -> None:
    content = bytes(range(256)) * 10_000
    root.write_file("entry", content)
    assert root.read_file("entry") == content
    fd = root.open_file("entry", os.O_RDONLY)
    try:
        assert [read_fd_from_offset(fd, at) for at in (5, len(content) - 1, len(content))] == [
            content[5:],
            content[-1:],
            b"",
        ]
    finally:
        os.close(fd)


def test_appending_creates_a_private_file(root: DirectoryHandle) -> None:
    for part in (b"a", b"b"):
        fd = root.open_file_for_append("entry")
        os.write(fd, part)
        os.close(fd)
    assert root.read_file("entry") == b"ab"
    assert stat.S_IMODE((root.path / "entry").stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_a_tree_that_somebody_else_removes_meanwhile_is_removed(root: DirectoryHandle, kind: str) -> None:
    (root.path / "tree").mkdir()
    with root.open_or_create("tree") as tree:
        put_entry(tree, kind)

    def remove_before_us() -> bool:
        path = root.path / "tree" / "entry"
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        return True

    assert root.remove_tree("tree", should_continue=remove_before_us)
    assert not root.has_entry("tree")


@pytest.mark.parametrize("is_busy", [True, False])
def test_the_rest_of_a_tree_is_removed_even_if_a_part_cannot_be(root: DirectoryHandle, is_busy: bool) -> None:
    (root.path / "tree" / "a").mkdir(parents=True)
    (root.path / "tree" / "b").mkdir()

    def fill_again() -> bool:
        if is_busy and not (root.path / "tree" / "b" / "late").exists():
            (root.path / "tree" / "b").mkdir(exist_ok=True)
            (root.path / "tree" / "b" / "late").write_bytes(b"")
        return True

    assert root.remove_tree("tree", should_continue=fill_again) is not is_busy
    assert root.has_entry("tree") is is_busy
    assert not (root.path / "tree" / "a").exists()


def test_files_are_moved_and_exchanged_without_the_atomic_exchange(
    root: DirectoryHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    atomic_rename._load_renameat2.cache_clear()
    try:
        assert atomic_rename.rename_unless_target_exists(root.fd, "entry", root.fd, "other") is None
        assert atomic_rename.exchange_file_names(root.fd, "entry", root.fd, "other") is None
        test_files_are_moved_and_exchanged(root)
    finally:
        atomic_rename._load_renameat2.cache_clear()


@pytest.mark.skipif(sys.platform != "linux", reason="needs renameat2")
def test_an_atomic_rename_never_replaces_and_an_exchange_needs_both(root: DirectoryHandle) -> None:
    for name in ("one", "two"):
        root.write_file(name, name.encode())
    rename, exchange = atomic_rename.rename_unless_target_exists, atomic_rename.exchange_file_names
    assert rename(root.fd, "one", root.fd, "two") is False
    assert exchange(root.fd, "one", root.fd, "two") is True
    assert (root.read_file("one"), root.read_file("two")) == (b"two", b"one")
    assert rename(root.fd, "one", root.fd, "free") is True
    assert (root.read_file("one"), root.read_file("free")) == (None, b"two")
    for use in (rename, exchange):
        with pytest.raises(FileNotFoundError):
            use(root.fd, "missing", root.fd, "new")
    with pytest.raises(FileNotFoundError):
        exchange(root.fd, "two", root.fd, "missing")
