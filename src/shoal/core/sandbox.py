"""Sandbox policy of shell commands, and the port that enforces it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from msgspec import Struct

from shoal.core.ports import Launch


class Confines(Struct, frozen=True, kw_only=True):
    """Path access of a command. Paths not listed are read-only. The innermost listed path applies.

    For a path listed twice, hidden wins over writable, and writable over read-only.
    """

    writable: tuple[Path, ...]
    kept: tuple[Path, ...] = ()
    """Read-only paths inside writable ones: files that run or decide outside the sandbox later."""
    sealed: tuple[Path, ...] = ()
    """Read-only even if listed as writable. A sandbox that cannot enforce this must not be used."""
    hidden: tuple[Path, ...] = ()
    withheld: tuple[Path, ...] = ()
    """Also hidden, by a sandbox that can hide paths inside a writable directory."""
    doors: tuple[Path, ...] = ()
    """Also hidden: sockets of programs that would act for a command outside the sandbox."""
    shown: tuple[Path, ...] = ()
    """Readable paths inside hidden ones."""
    network: bool = True


class Sandbox(Protocol):
    """Confines commands; availability is detected on first use and then cached."""

    @property
    def holds(self) -> bool:
        """True if commands are confined. The first access tests it, which takes some milliseconds."""
        ...

    @property
    def vouches(self) -> bool:
        """True if the settings allow confined commands to run without a question."""
        ...

    @property
    def ends_all(self) -> bool:
        """True if the end of a command ends every process it started."""
        ...

    async def ready(self) -> None:
        """Detect availability without blocking the event loop."""
        ...

    def wrap(self, launch: Launch) -> Launch:
        """Return the confined launch; unchanged if the sandbox is optional and unavailable.

        Raises `ProcessError` if the requested policy cannot be enforced.
        """
        ...
