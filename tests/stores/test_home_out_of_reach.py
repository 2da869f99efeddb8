"""A home in a directory that this user may not look into: said as such, by whoever meets it first."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

NOBODY = 65_534
_AS_NOBODY = f"""
import os, sys
from pathlib import Path
from shoal.core.errors import StoreError
from shoal.stores.files.below_home import found_inside, inside
from shoal.stores.files.places import make_private

home = Path(sys.argv[1])
if os.geteuid() == 0:
    os.setgid({NOBODY})
    os.setuid({NOBODY})
for look in (make_private, lambda home: inside(home, "teams"), lambda home: found_inside(home, "teams")):
    try:
        look(home)
    except StoreError as error:
        print(error)
"""


@pytest.fixture
def closed():
    # Where pytest keeps its files only root may look.
    place = Path(tempfile.mkdtemp())
    place.chmod(0)
    yield place
    place.chmod(0o700)
    shutil.rmtree(place)


def test_a_home_that_nobody_may_look_into_is_named(closed):
    words = [sys.executable, "-c", _AS_NOBODY, str(closed / "here" / "home")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    told = done.stdout.splitlines()
    assert len(told) == 3
    assert all("Permission denied" in each and "SHOAL_HOME" in each for each in told)
