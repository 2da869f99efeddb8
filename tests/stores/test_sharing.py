"""Files are written again only while nobody else has them open."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from board_kit import board_at, filled

from shoal.core.clock import SystemClock
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.core.roster import Newcomer
from shoal.core.tasks import Change
from shoal.stores.files.handles import Directory
from shoal.stores.files.mailboxes import FileMailboxes
from shoal.stores.files.places import write_whole
from shoal.stores.files.rosters import FileRosters
from shoal.stores.files.sharing import is_open_here_alone


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    with closing(Directory.root(tmp_path)) as opened:
        yield opened


def inode(path: Path) -> int:
    return path.stat().st_ino


def test_a_file_nobody_else_has_open_is_written_again(tmp_path: Path, directory: Directory) -> None:
    directory.write("a", b"first, and longer")
    before = inode(tmp_path / "a")
    directory.write_again("a", b"second")
    assert (tmp_path / "a").read_bytes() == b"second"
    assert inode(tmp_path / "a") == before


@pytest.mark.spec("HOM-05")
@pytest.mark.parametrize("way", ["write_again", "replace", "write_whole"])
def test_a_reader_keeps_the_file_it_opened_as_it_was(tmp_path: Path, directory: Directory, way: str) -> None:
    directory.write("a", b"first")
    with (tmp_path / "a").open("rb", buffering=0) as reader:
        assert reader.read(2) == b"fi"
        if way == "write_whole":
            write_whole(tmp_path / "a", b"SECOND")
        else:
            getattr(directory, way)("a", b"SECOND")
        assert reader.read() == b"rst"
    assert (tmp_path / "a").read_bytes() == b"SECOND"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.spec("HOM-05")
async def test_who_reads_the_files_of_a_team_has_one_state_of_each_whole(home: Path) -> None:
    rosters = FileRosters(home, clock=SystemClock())
    boxes = FileMailboxes(home, "roof", clock=SystemClock(), ids=Ids())
    ann = Newcomer(name="ann", agent_type="general", model="m", cwd="/w", prompt="Do it.")
    await rosters.create("roof", lead=ann, session="s", description=None)
    await boxes.open("ann")
    await boxes.post("ann", Mail(id="1", sender="bob", text="one", timestamp="t"))
    async with board_at(home) as board:
        await filled(board, 1)
        team = home / "teams" / "roof"
        files = (team / "config.json", team / "inboxes" / "ann.json", home / "tasks" / "roof" / "1.json")
        before = [path.read_bytes() for path in files]
        with ExitStack() as opened:
            readers = [opened.enter_context(path.open("rb", buffering=0)) for path in files]
            begun = [reader.read(5) for reader in readers]
            await rosters.join("roof", ann)
            await boxes.post("ann", Mail(id="2", sender="bob", text="two", timestamp="t"))
            await board.update("1", Change(subject="another"), by="ann")
            found = [start + reader.read() for start, reader in zip(begun, readers, strict=True)]
    assert found == before
    after = [path.read_bytes() for path in files]
    assert [json.loads(each) == json.loads(old) for each, old in zip(after, before, strict=True)] == [
        False
    ] * 3
    await boxes.aclose()
    await rosters.aclose()


def test_a_file_with_a_second_name_is_left_alone(tmp_path: Path, directory: Directory) -> None:
    directory.write("a", b"first")
    os.link(tmp_path / "a", tmp_path / "kept")
    directory.write_again("a", b"second")
    assert (tmp_path / "kept").read_bytes() == b"first"
    assert (tmp_path / "a").read_bytes() == b"second"


def test_a_missing_file_is_made(tmp_path: Path, directory: Directory) -> None:
    directory.write_again("a", b"x")
    assert (tmp_path / "a").read_bytes() == b"x"


def test_another_descriptor_of_the_same_process_counts_too(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    fd = os.open(path, os.O_WRONLY)
    try:
        with path.open("rb"):
            assert not is_open_here_alone(fd)
    finally:
        os.close(fd)
