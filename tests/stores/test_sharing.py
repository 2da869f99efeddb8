"""Files are written again only while nobody else has them open."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from shoal.stores.files.handles import Directory
from shoal.stores.files.sharing import is_open_here_alone


@pytest.fixture
def directory(tmp_path: Path):
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
def test_a_reader_keeps_the_file_it_opened_as_it_was(tmp_path: Path, directory: Directory) -> None:
    directory.write("a", b"first")
    with (tmp_path / "a").open("rb", buffering=0) as reader:
        assert reader.read(2) == b"fi"
        directory.write_again("a", b"SECOND")
        assert reader.read() == b"rst"
    assert (tmp_path / "a").read_bytes() == b"SECOND"


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
