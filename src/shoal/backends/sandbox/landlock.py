"""Sandbox with Landlock, if the kernel has it: a command drops its rights to files before it starts."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from shoal.backends.guardian import CONFINE_ARGUMENTS
from shoal.backends.sandbox.sandbox_driver import is_inside_any_directory, resolve_existing_paths
from shoal.core.permissions.sandbox import SandboxPolicy
from shoal.core.ports import ProcessLaunchSpec

_PROBE_TIMEOUT = 5.0


class LandlockSandboxDriver:
    name = "Landlock"
    limits = (
        "Landlock cannot protect single files in a writable directory (.git/hooks, .git/config), does not "
        "isolate processes, and leaves sockets reachable."
    )
    ends_all_processes = False
    blocks_sockets = False
    hides_denied_files = False
    needs_placeholders = False

    def explain_unavailable(self) -> str | None:
        return _probe_landlock()

    def find_unsupported_policy_part(self, policy: SandboxPolicy) -> str | None:
        if not policy.network:
            return "Landlock cannot block the network for a command"
        writable = resolve_existing_paths(policy.writable)
        for path in resolve_existing_paths(policy.always_read_only):
            if is_inside_any_directory(path, writable):
                return f"Landlock cannot protect {path} inside a writable directory"
        for path in resolve_existing_paths(policy.hidden):
            if is_inside_any_directory(path, writable):
                return f"Landlock cannot hide {path}, which is inside a writable directory"
        return None

    def wrap_launch(self, launch: ProcessLaunchSpec, policy: SandboxPolicy) -> ProcessLaunchSpec:
        # A writable directory in a hidden one gets its own rights.
        writable, readable = map(resolve_existing_paths, (policy.writable, policy.readable))
        hidden = [
            each for path in resolve_existing_paths(policy.hidden) for each in _list_hidden(path, readable)
        ]
        arguments = (str(len(writable)), *map(str, writable), str(len(hidden)), *map(str, hidden))
        return replace(launch, argv=(*_LAUNCHER, *arguments, *launch.argv))


def _list_hidden(path: Path, readable: list[Path]) -> list[Path]:
    """Return paths that together cover everything under a hidden one except what is readable."""
    if path in readable:
        return []
    if not any(each.is_relative_to(path) for each in readable):
        return [path]
    return [hidden for entry in path.iterdir() for hidden in _list_hidden(entry, readable)]


# The interpreter itself: it starts slower through the link of a virtual environment.
_LAUNCHER = (os.path.realpath(sys.executable), *CONFINE_ARGUMENTS)


@cache
def _probe_landlock() -> str | None:
    import subprocess

    argv = [*_LAUNCHER, "0", "0", "/bin/sh", "-c", "exit 0"]
    try:
        result = subprocess.run(
            argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=_PROBE_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot test Landlock: {error}"
    if result.returncode == 0:
        return None
    return f"this kernel does not support Landlock ({result.stderr.decode(errors='replace').strip()})"
