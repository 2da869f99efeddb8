"""Taking a worktree away whole: also what its agent made so that nobody can look into it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NOBODY = 65_534
_AS_NOBODY = f"""
import os, sys
from pathlib import Path
from shoal.workspaces.worktree_files import erase

place = Path(sys.argv[1])
if os.geteuid() == 0:
    os.setgid({NOBODY})
    os.setuid({NOBODY})
os.chdir("/")
deepest = place / "tree" / "a" / "b" / "c"
deepest.mkdir(parents=True)
(deepest / "file").write_text("x")
for directory in (deepest, *list(deepest.parents)[:3]):
    directory.chmod(int(sys.argv[2], 8))
erase(place / "tree")
print((place / "tree").exists())
"""


def erased(mode):
    # Where pytest keeps its files only root may look.
    place = Path(tempfile.mkdtemp())
    try:
        if os.geteuid() == 0:
            os.chown(place, NOBODY, NOBODY)
        words = [sys.executable, "-c", _AS_NOBODY, str(place), mode]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", place], check=False)
        shutil.rmtree(place)


def test_directories_that_cannot_be_read_one_in_the_other_are_removed():
    done = erased("000")
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_directories_that_cannot_be_written_one_in_the_other_are_removed():
    done = erased("555")
    assert (done.stdout, done.stderr) == ("False\n", "")
