"""Removes the names that only Linux has from every Python process that a test starts."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from linux_only_names import remove_linux_only_names

sys.path.pop()
remove_linux_only_names()
