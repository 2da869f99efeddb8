"""Removing a worktree completely, even if the agent made directories unreadable."""

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
import shutil  # before the change of user, who may not read the library
from pathlib import Path
from shoal.workspaces.worktree_files import remove_directory_tree

top = Path(sys.argv[1])
if os.geteuid() == 0:
    os.setgid({NOBODY})
    os.setuid({NOBODY})
os.chdir("/")
deepest = top / "tree" / "a" / "b" / "c"
deepest.mkdir(parents=True)
(deepest / "file").write_text("x")
for directory in (deepest, *list(deepest.parents)[:3]):
    directory.chmod(int(sys.argv[2], 8))
remove_directory_tree(top / "tree")
print((top / "tree").exists())
"""


def remove_tree_as_nobody(mode):
    # Only root may read the temporary directories of pytest.
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        if os.geteuid() == 0:
            os.chown(directory, NOBODY, NOBODY)
        command = [sys.executable, "-c", _AS_NOBODY, str(directory), mode]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", directory], check=False)
        shutil.rmtree(directory)


def test_nested_unreadable_directories_are_removed():
    done = remove_tree_as_nobody("000")
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_nested_unwritable_directories_are_removed():
    done = remove_tree_as_nobody("555")
    assert (done.stdout, done.stderr) == ("False\n", "")
