"""Renames that Python does not offer: only if the new name is free, and exchanging two names.

If the system does not support them, the result is None and the caller uses a fallback.
"""

from __future__ import annotations

import errno
import os
import sys
from functools import cache
from typing import Any

_NOREPLACE, _EXCHANGE = 1, 2
FILE_NAME_CODEC = (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
"""What `os.fsencode` uses, without its checks: each change of a task renames six times."""
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})


def rename_unless_target_exists(source: int, name: str, target: int, new_name: str) -> bool | None:
    """Rename and return True; False if the new name is taken. Raises FileNotFoundError without `name`."""
    try:
        return _call_renameat2(source, name, target, new_name, _NOREPLACE)
    except FileExistsError:
        return False


def exchange_file_names(source: int, name: str, target: int, other_name: str) -> bool | None:
    """Exchange two names and return True. Raises FileNotFoundError if one is missing."""
    return _call_renameat2(source, name, target, other_name, _EXCHANGE)


def _call_renameat2(source: int, name: str, target: int, new_name: str, flags: int) -> bool | None:
    rename = _load_renameat2()
    if rename is None:
        return None
    failure = rename(source, name.encode(*FILE_NAME_CODEC), target, new_name.encode(*FILE_NAME_CODEC), flags)
    if not failure:
        return True
    import ctypes

    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return None
    raise OSError(number, os.strerror(number), new_name)


@cache
def _load_renameat2() -> Any:
    if sys.platform != "linux":
        return None
    import ctypes

    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
