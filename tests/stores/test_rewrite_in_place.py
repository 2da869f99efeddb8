"""Files are rewritten in place only while nobody else has them open."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from board_helpers import fill_board, open_board
from mail_helpers import create_mailboxes, make_mail
from store_helpers import make_member

from shoal.core.clock import SystemClock
from shoal.core.teams.tasks import TaskUpdate
from shoal.stores.files.access.directory_handle import DirectoryHandle, is_open_exclusively
from shoal.stores.files.home.home_paths import write_file_atomically
from shoal.stores.files.teams.file_roster_store import FileRosterStore


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DirectoryHandle]:
    with closing(DirectoryHandle.open_root(tmp_path)) as handle:
        yield handle


def get_inode(path: Path) -> int:
    return path.stat().st_ino


def test_a_file_that_nobody_else_has_open_is_rewritten_in_place(
    tmp_path: Path, directory: DirectoryHandle
) -> None:
    directory.write_file("a", b"first, and longer")
    before = get_inode(tmp_path / "a")
    directory.rewrite_unshared_or_recreate_file("a", b"second")
    assert (tmp_path / "a").read_bytes() == b"second"
    assert get_inode(tmp_path / "a") == before


@pytest.mark.spec("HOM-05")
@pytest.mark.parametrize(
    "method", ["rewrite_unshared_or_recreate_file", "replace_file", "write_file_atomically"]
)
def test_a_reader_keeps_the_content_it_opened(
    tmp_path: Path, directory: DirectoryHandle, method: str
) -> None:
    directory.write_file("a", b"first")
    with (tmp_path / "a").open("rb", buffering=0) as reader:
        assert reader.read(2) == b"fi"
        if method == "write_file_atomically":
            write_file_atomically(tmp_path / "a", b"SECOND")
        else:
            getattr(directory, method)("a", b"SECOND")
        assert reader.read() == b"rst"
    assert (tmp_path / "a").read_bytes() == b"SECOND"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.spec("HOM-05")
async def test_readers_of_team_files_see_one_consistent_state_of_each_file(home: Path) -> None:
    rosters = FileRosterStore(home, clock=SystemClock())
    boxes = create_mailboxes(home, "roof")
    ann = make_member("ann")
    await rosters.create_team("roof", lead=ann, session="s", description=None)
    await boxes.open_inbox("ann")
    await boxes.post("ann", make_mail("one", ident="1"))
    async with open_board(home) as board:
        await fill_board(board, 1)
        team = home / "teams" / "roof"
        files = (team / "config.json", team / "inboxes" / "ann.json", home / "tasks" / "roof" / "1.json")
        before = [path.read_bytes() for path in files]
        with ExitStack() as handle:
            readers = [handle.enter_context(path.open("rb", buffering=0)) for path in files]
            starts = [reader.read(5) for reader in readers]
            await rosters.add_member("roof", ann)
            await boxes.post("ann", make_mail("two", ident="2"))
            await board.update("1", TaskUpdate(subject="another"), by="ann")
            found = [start + reader.read() for start, reader in zip(starts, readers, strict=True)]
    assert found == before
    after = [path.read_bytes() for path in files]
    assert [json.loads(each) == json.loads(old) for each, old in zip(after, before, strict=True)] == [
        False
    ] * 3
    await boxes.aclose()
    await rosters.aclose()


def test_a_hard_linked_file_is_not_rewritten_in_place(tmp_path: Path, directory: DirectoryHandle) -> None:
    directory.write_file("a", b"first")
    os.link(tmp_path / "a", tmp_path / "kept")
    directory.rewrite_unshared_or_recreate_file("a", b"second")
    assert (tmp_path / "kept").read_bytes() == b"first"
    assert (tmp_path / "a").read_bytes() == b"second"


def test_rewriting_a_missing_file_creates_it(tmp_path: Path, directory: DirectoryHandle) -> None:
    directory.rewrite_unshared_or_recreate_file("a", b"x")
    assert (tmp_path / "a").read_bytes() == b"x"


def test_another_descriptor_of_the_same_process_makes_a_file_shared(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    fd = os.open(path, os.O_WRONLY)
    try:
        with path.open("rb"):
            assert not is_open_exclusively(fd)
    finally:
        os.close(fd)
