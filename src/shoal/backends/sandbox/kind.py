"""What every way of confining can do, and paths as all of them need to see them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from shoal.core.ports import Launch
from shoal.core.sandbox import Confines


class Kind(Protocol):
    """One way of confining commands."""

    @property
    def name(self) -> str: ...

    @property
    def limits(self) -> str:
        """What it does not hold that the others do, as a sentence; empty where there is nothing to say."""
        ...

    @property
    def closes_doors(self) -> bool:
        """Whether the sockets of `Confines.doors` are out of a command's reach."""
        ...

    @property
    def ends_all(self) -> bool:
        """Whether the end of a command is the end of every process it started."""
        ...

    def trouble(self) -> str | None:
        """Why it does not work on this machine, and what to do; None where it does. Tried once."""
        ...

    def lack(self, confines: Confines) -> str | None:
        """What of these confines it could not hold, if anything."""
        ...

    def wrap(self, launch: Launch, confines: Confines) -> Launch: ...


def existing(paths: Iterable[Path]) -> list[Path]:
    """Those that are there, with links followed, each once."""
    return list(dict.fromkeys(Path(os.path.realpath(path)) for path in paths if os.path.exists(path)))  # noqa: PTH110


def inside(path: Path, places: Iterable[Path]) -> bool:
    return any(path.is_relative_to(place) for place in places)
