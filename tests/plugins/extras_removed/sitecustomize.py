"""Lets every Python process on whose path it is find no module of the extras for databases and clusters."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

EXTRAS = ("asyncpg", "greenlet", "ray", "uvloop")


class FinderWithoutExtras(PathFinder):
    """Finds all modules but those."""

    @classmethod
    def find_spec(cls, name: str, *arguments: Any) -> ModuleSpec | None:
        return None if name.partition(".")[0] in EXTRAS else super().find_spec(name, *arguments)


sys.meta_path[:] = [FinderWithoutExtras if each is PathFinder else each for each in sys.meta_path]
