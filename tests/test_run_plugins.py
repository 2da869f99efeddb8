"""The plugins of a run: its temporary directory, and the bytecode files of its modules."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from rewritten_tests import get_bytecode_path, write_bytecode_files
from run_directory import PREFIX, RunDirectory, remove_abandoned

PLUGINS = Path(__file__).parent / "plugins"


def wait_until_unlocked(path: Path) -> None:
    """Wait for the process that removes the directory, unless it has done so."""
    with suppress(FileNotFoundError):
        lock = os.open(path, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.close(lock)


def test_the_directory_of_a_running_run_stays_whatever_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    running = RunDirectory()
    ended = [tmp_path / f"{PREFIX}{number}" for number in range(5)]
    for number, path in enumerate(ended):
        (path / "run" / "home").mkdir(parents=True)
        os.utime(path, (number, number))
    os.utime(running.path, (0, 0))
    remove_abandoned(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([running.path, *ended[2:]])
    running.pytest_unconfigure()
    wait_until_unlocked(running.path)
    assert sorted(tmp_path.iterdir()) == sorted(ended[2:])


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize("outcome", ["passes", "fails"])
def test_a_run_leaves_its_files_only_if_a_test_fails(tmp_path: Path, workers: str, outcome: str):
    temporary, project = tmp_path / "tmp", tmp_path / "project"
    temporary.mkdir()
    project.mkdir()
    (project / "conftest.py").write_text('pytest_plugins = ["run_directory"]\n')
    (project / "test_it.py").write_text(
        "def test_file(tmp_path):\n"
        "    (tmp_path / 'written').touch()\n"
        f"    assert tmp_path.is_relative_to({str(temporary)!r}) and {outcome == 'passes'}\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist", "-n", workers],
        cwd=project,
        env=os.environ
        | {
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(PLUGINS),
            "TMPDIR": str(temporary),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == (outcome == "fails"), ran.stdout
    for path in temporary.glob(f"{PREFIX}*"):
        wait_until_unlocked(path)
    left = list(temporary.glob(f"{PREFIX}*"))
    assert len(left) == (outcome == "fails")
    for path in left:
        assert f"The files of this run are in {path.resolve()}." in ran.stdout
        assert list(path.rglob("written"))


def test_test_modules_are_rewritten_once_before_the_workers_start(
    pytestconfig: pytest.Config, tmp_path: Path
):
    modules = [tmp_path / f"test_{number}.py" for number in range(5)]
    for module in modules:
        module.write_text("def test_it():\n    assert [1] == [1]\n")
    write_bytecode_files(pytestconfig, modules)
    first = {path: path.stat().st_ino for path in map(get_bytecode_path, modules)}
    modules[0].write_text("def test_it():\n    assert [2] == [2]\n")
    write_bytecode_files(pytestconfig, modules)
    again = {path: path.stat().st_ino for path in first}
    assert [path for path in first if first[path] != again[path]] == [get_bytecode_path(modules[0])]
