"""Sandbox with Landlock, if the kernel has it: a command drops its rights to files before it starts."""

from __future__ import annotations

import os
import sys
from functools import cache

from msgspec.structs import replace

from shoal.backends.guardian import CONFINING
from shoal.backends.sandbox.kind import existing, inside
from shoal.core.ports import Launch
from shoal.core.sandbox import Confines

_PATIENCE = 5.0


class Landlock:
    name = "Landlock"
    limits = (
        "Landlock cannot keep single files of a writable directory from being changed (.git/hooks, "
        ".git/config), gives no process space of its own, and leaves sockets within reach."
    )
    ends_all = False
    closes_doors = False

    def trouble(self) -> str | None:
        return _tried()

    def lack(self, confines: Confines) -> str | None:
        if not confines.network:
            return "Landlock cannot cut a command off the network"
        writable = existing(confines.writable)
        for path in existing(confines.sealed):
            if inside(path, writable):
                return f"Landlock cannot keep {path} from being changed inside a writable directory"
        for path in existing(confines.hidden):
            if inside(path, writable):
                return f"Landlock cannot hide {path}, which is inside a writable directory"
            if any(inside(place, [path]) for place in writable):
                return f"Landlock cannot hide {path}, which has a writable directory inside"
        return None

    def wrap(self, launch: Launch, confines: Confines) -> Launch:
        writable, hidden = map(existing, (confines.writable, confines.hidden))
        words = (str(len(writable)), *map(str, writable), str(len(hidden)), *map(str, hidden))
        return replace(launch, argv=(*_LAUNCHER, *words, *launch.argv))


# The interpreter itself: it starts slower through the link of a virtual environment.
_LAUNCHER = (os.path.realpath(sys.executable), *CONFINING)


@cache
def _tried() -> str | None:
    import subprocess

    words = [*_LAUNCHER, "0", "0", "/bin/sh", "-c", "exit 0"]
    try:
        ran = subprocess.run(
            words, capture_output=True, stdin=subprocess.DEVNULL, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"Landlock cannot be tried: {error}"
    if ran.returncode == 0:
        return None
    return f"this kernel does not offer Landlock ({ran.stderr.decode(errors='replace').strip()})"
