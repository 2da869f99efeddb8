"""Notices of the kernel about a directory, where the system has them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def inotify_on(directory: Path | str, mask: Any) -> Any:
    """Of `inotify_simple`, not blocking; `mask` chooses among its flags. None where nothing will be told."""
    if sys.platform != "linux":
        return None
    from inotify_simple import INotify, flags  # type: ignore[import-untyped]

    try:
        inotify = INotify(nonblocking=True)
    except OSError:
        return None  # the user's limit of watches is reached
    try:
        inotify.add_watch(directory, mask(flags))
    except OSError:
        inotify.close()
        return None
    return inotify
