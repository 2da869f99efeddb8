"""The confines of a shell command: what it may change, what it must not see, and who holds it to that."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from msgspec import Struct

from shoal.core.ports import Launch


class Confines(Struct, frozen=True, kw_only=True):
    """What is not named can be read and not changed. Of two paths, one inside the other, the inner counts.

    Named twice, a path is hidden rather than writable, and writable rather than kept.
    """

    writable: tuple[Path, ...]
    kept: tuple[Path, ...] = ()
    """Read-only though inside a writable one: what runs or decides outside the sandbox later."""
    sealed: tuple[Path, ...] = ()
    """As `kept`, and also where it is named writable. What cannot hold this must not be used at all."""
    hidden: tuple[Path, ...] = ()
    withheld: tuple[Path, ...] = ()
    """Hidden too by a sandbox that can hide what lies in a writable directory."""
    doors: tuple[Path, ...] = ()
    """Hidden too: sockets of programs that would act for a command outside its confines."""
    shown: tuple[Path, ...] = ()
    """Readable though inside a hidden one."""
    network: bool = True


class Sandbox(Protocol):
    """Whether and how a command is confined; found out when first asked, and then known."""

    @property
    def holds(self) -> bool:
        """Whether commands are confined. The first asking tries it, which takes some milliseconds."""
        ...

    @property
    def vouches(self) -> bool:
        """Whether a command may run without asking because it is confined: the person's setting says so."""
        ...

    @property
    def ends_all(self) -> bool:
        """Whether the end of a command is the end of every process it started."""
        ...

    async def ready(self) -> None:
        """Find it out without holding up the loop."""
        ...

    def wrap(self, launch: Launch) -> Launch:
        """The launch, confined; as it is where the person does not insist and nothing can confine it.

        Raises `ProcessError` where what the person asked for cannot hold.
        """
        ...
