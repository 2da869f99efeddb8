"""Directories of a demo run: its project and its home, and whether they are kept."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from shoal.surfaces.terminal.paint import DIM
from shoal.surfaces.terminal.screen import Screen


class Where(Struct, frozen=True, kw_only=True):
    place: Path
    project: Path
    home: Path
    elsewhere: bool
    """True if the user named the home."""
    fast: bool
    keep: bool

    def tell_beside(self, screen: Screen, session: str) -> None:
        """Print how to watch the run from another terminal, if its home can be found from there."""
        if self.keep or self.elsewhere:
            beside = f"SHOAL_HOME={shlex.quote(str(self.home))} shoal watch {session[:8]}"
            screen.write(f"  From another terminal: {beside}\n", DIM)


@contextmanager
def a_place(home: Path | None, *, fast: bool, keep: bool) -> Iterator[Where]:
    place = Path(tempfile.mkdtemp(prefix="shoal-demo-")).resolve()
    try:
        yield Where(
            place=place,
            project=place / "project",
            home=place / "home" if home is None else home.absolute(),
            elsewhere=home is not None,
            fast=fast,
            keep=keep,
        )
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)
