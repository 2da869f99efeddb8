"""Interface of the sandbox drivers, and path helpers that they share."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from shoal.core.permissions.sandbox import SandboxPolicy
from shoal.core.ports import ProcessLaunchSpec


class SandboxDriver(Protocol):
    """One mechanism that confines commands."""

    @property
    def name(self) -> str: ...

    @property
    def limits(self) -> str:
        """Limits compared to other drivers, as a sentence; empty if there are none."""
        ...

    @property
    def blocks_sockets(self) -> bool:
        """True if commands cannot reach the sockets that the policy hides."""
        ...

    @property
    def ends_all_processes(self) -> bool:
        """True if the end of a command ends every process that it started."""
        ...

    @property
    def hides_denied_files(self) -> bool:
        """True if it can hide paths inside a writable directory."""
        ...

    @property
    def needs_placeholders(self) -> bool:
        """True if it keeps commands from creating a path only where a placeholder is."""
        ...

    def explain_unavailable(self) -> str | None:
        """Return why it does not work on this machine and what to do, or None; checked once."""
        ...

    def find_unsupported_policy_part(self, policy: SandboxPolicy) -> str | None:
        """Return the part of the policy that it cannot enforce, or None."""
        ...

    def wrap_launch(self, launch: ProcessLaunchSpec, policy: SandboxPolicy) -> ProcessLaunchSpec: ...


def resolve_existing_paths(paths: Iterable[Path]) -> list[Path]:
    """Return the existing paths with links followed, each once."""
    return list(dict.fromkeys(Path(os.path.realpath(path)) for path in paths if os.path.exists(path)))  # noqa: PTH110


def is_inside_any_directory(path: Path, places: Iterable[Path]) -> bool:
    return any(path.is_relative_to(place) for place in places)
