"""Error output for paths that do not exist, with suggestions."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from shoal.core.errors import WorkspaceError
from shoal.core.filenames import shown
from shoal.core.tools import Outcome, Site, failed

_MOST_NAMES = 2000


def state_of(path: Path) -> os.stat_result | None:
    """Return the stat result, or None if nothing is there. Raises `WorkspaceError` if access is denied."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise WorkspaceError(f"Cannot look at {shown(path)}: {error.strerror}.") from None


def missing(path: Path, site: Site) -> Outcome:
    """Return failed output that names close matches, or the nearest existing directory."""
    import difflib

    told = f"{shown(path)} does not exist."
    if not path.parent.is_dir():
        there = next((parent for parent in path.parents if parent.is_dir()), Path("/"))
        return failed(f"{told} Neither does its directory; the nearest that does is {shown(there)}.")
    try:
        names = [entry.name for entry in itertools.islice(path.parent.iterdir(), _MOST_NAMES)]
    except OSError:
        names = []
    close = difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
    same_stem = [name for name in names if Path(name).stem == path.stem and name not in close]
    near = [shown(path.parent / name) for name in (*close, *sorted(same_stem)[:3])]
    if near:
        return failed(f"{told} Close to it: {', '.join(near)}.")
    return failed(f"{told} The working directory is {shown(site.workspace.cwd)}; use Glob to find the file.")
