"""A home in a directory that this user may not read: every way to open it names the problem."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

NOBODY = 65_534
_OPEN_AS_NOBODY = f"""
import os, sys
from pathlib import Path
from shoal.core.errors import StateFileError
from shoal.stores.files.home.home_directories import (
    open_existing_home_subdirectory,
    open_or_create_home_subdirectory,
)
from shoal.stores.files.home.home_paths import make_private_directory

home = Path(sys.argv[1])
if os.geteuid() == 0:
    os.setgid({NOBODY})
    os.setuid({NOBODY})
for open_home in (
    make_private_directory,
    lambda home: open_or_create_home_subdirectory(home, "teams"),
    lambda home: open_existing_home_subdirectory(home, "teams"),
):
    try:
        open_home(home)
    except StateFileError as error:
        print(error)
"""


@pytest.fixture
def unreadable_directory():
    # Only root may read the temporary directories of pytest.
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    directory.chmod(0)
    yield directory
    directory.chmod(0o700)
    shutil.rmtree(directory)


def test_an_unreadable_home_is_named_in_the_error(unreadable_directory):
    command = [sys.executable, "-c", _OPEN_AS_NOBODY, str(unreadable_directory / "here" / "home")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    errors = done.stdout.splitlines()
    assert len(errors) == 3
    assert all("Permission denied" in each and "SHOAL_HOME" in each for each in errors)
