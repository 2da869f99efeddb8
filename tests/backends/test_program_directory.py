"""Temporary directories of programs that a killed process left are removed, and no others."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal.backends.program_directory import ProgramDirectory, remove_abandoned_directories

_LEAVE = """
import subprocess, sys, time
from pathlib import Path
from shoal.backends.program_directory import ProgramDirectory
directory = ProgramDirectory("ray", parent=Path(sys.argv[1]))
if sys.argv[2] == "program":
    program = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=directory.output,
                               stderr=directory.output)
    print(program.pid, flush=True)
else:
    print(0, flush=True)
time.sleep(600)
"""


@contextmanager
def start_owner(parent: Path, program: str = "") -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a process with such a directory, and a program in it; yield it and the program's process id."""
    command = [sys.executable, "-c", _LEAVE, str(parent), program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout is not None
            yield owner, int(owner.stdout.readline())
        finally:
            owner.kill()


def test_the_directory_of_a_killed_process_is_removed_and_that_of_a_live_one_is_not(tmp_path: Path) -> None:
    with start_owner(tmp_path) as (owner, _):
        (left,) = tmp_path.iterdir()
        (left / "data").mkdir()
        own = ProgramDirectory("pg", parent=tmp_path)
        assert remove_abandoned_directories(tmp_path) == []
        owner.kill()
        owner.wait()
        assert remove_abandoned_directories(tmp_path) == [left]
        assert list(tmp_path.iterdir()) == [own.path]
        own.remove()
        assert list(tmp_path.iterdir()) == []


def test_the_directory_of_a_program_that_outlives_its_process_is_kept(tmp_path: Path) -> None:
    with start_owner(tmp_path, "program") as (owner, program):
        (left,) = tmp_path.iterdir()
        try:
            owner.kill()
            owner.wait()
            assert remove_abandoned_directories(tmp_path) == []
        finally:
            end = os.pidfd_open(program)
            os.kill(program, signal.SIGKILL)
            wait_for_end(end)
        assert remove_abandoned_directories(tmp_path) == [left]


def wait_for_end(process: int) -> None:
    assert select.select([process], [], [], 30)[0]
    os.close(process)


def test_directories_without_such_a_file_and_links_are_left_alone(tmp_path: Path) -> None:
    outside, parent = tmp_path / "outside", tmp_path / "parent"
    for name in ("other", "linked", "hard"):
        (parent / f"shoal-pg-{name}").mkdir(parents=True)
    outside.mkdir()
    for name in ("locked-output.log", "twice"):
        (outside / name).touch()
    (parent / "shoal-ray-link").symlink_to(outside)
    (parent / "shoal-pg-linked" / "locked-output.log").symlink_to(outside / "locked-output.log")
    (parent / "shoal-pg-hard" / "locked-output.log").hardlink_to(outside / "twice")
    os.mkfifo(parent / "shoal-pg-other" / "locked-output.log")
    (parent / "shoal-pg-file").touch()
    (parent / "other-ray-x").mkdir()
    (parent / "other-ray-x" / "locked-output.log").touch()
    before = sorted(parent.iterdir())
    assert remove_abandoned_directories(parent) == []
    assert sorted(parent.iterdir()) == before
    assert (outside / "locked-output.log").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize(("directory_owner", "file_owner", "removed"), [(0, 65534, False), (65534, 0, True)])
def test_the_file_must_belong_to_this_user(
    tmp_path: Path, directory_owner: int, file_owner: int, *, removed: bool
) -> None:
    """As root, who gives the directory of the database to the database's user."""
    with start_owner(tmp_path) as (owner, _):
        (left,) = tmp_path.iterdir()
        os.chown(left, directory_owner, directory_owner)
        os.chown(left / "locked-output.log", file_owner, file_owner)
        owner.kill()
        owner.wait()
    assert remove_abandoned_directories(tmp_path) == ([left] if removed else [])
