"""Gives each run of the tests a temporary directory that no other run removes.

pytest puts the directories of all runs of a user in one place. When a run ends, it removes older ones there,
and takes a lock file for abandoned if the clock says so. Every test of a run whose directory is gone has an
error. Here a directory belongs to a run as long as the run holds a lock of the kernel on it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

PREFIX = "shoal-tests-"
KEPT = 3
"""The directories of so many failed runs stay."""


class RunDirectory:
    """The directory of this run. It is removed at the end, unless a test failed."""

    def __init__(self) -> None:
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
            self._lock = os.open(self.path, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if self.path.exists():
                break
            os.close(self._lock)  # another run has removed it before it was locked
        self._is_kept = False

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int | pytest.ExitCode
    ) -> None:
        self._is_kept = exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if self._is_kept:
            terminalreporter.line(f"The files of this run are in {self.path}.")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        if not self._is_kept:
            # Thousands of directories: nobody waits for this. The other process holds the lock until its end.
            os.set_inheritable(self._lock, True)
            os.posix_spawnp("rm", ["rm", "-rf", str(self.path)], os.environ)
        os.close(self._lock)


def remove_abandoned(directory: Path) -> None:
    """Remove the directories of runs that have ended, except for the last ones."""
    ended: list[tuple[float, Path, int]] = []
    for path in directory.glob(f"{PREFIX}*"):
        with suppress(OSError):  # a run uses or removes it, or it belongs to another user
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                raise
            ended.append((path.stat().st_mtime, path, lock))
    for _, path, _ in sorted(ended)[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)
    for _, _, lock in ended:
        os.close(lock)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Workers of xdist use the directory of their controller.
    if not hasattr(config, "workerinput") and not config.option.basetemp:
        remove_abandoned(Path(tempfile.gettempdir()))
        directory = RunDirectory()
        config.option.basetemp = str(directory.path / "run")
        config.pluginmanager.register(directory, "run-directory")
