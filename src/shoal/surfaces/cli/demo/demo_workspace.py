"""Directories of a demo run: its project and its home, and whether they are kept."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from shoal.surfaces.terminal.screen import TerminalScreen
from shoal.surfaces.terminal.text_styles import DIM


class DemoWorkspace(Struct, frozen=True, kw_only=True):
    root: Path
    project: Path
    home: Path
    uses_given_home: bool
    """True if the user chose the home directory."""
    fast: bool
    keep: bool

    def print_watch_hint(self, screen: TerminalScreen, session: str) -> None:
        """Print how to watch the run from another terminal, if its home can be found from there."""
        if self.keep or self.uses_given_home:
            watch_command = f"SHOAL_HOME={shlex.quote(str(self.home))} shoal watch {session[:8]}"
            screen.write(f"  From another terminal: {watch_command}\n", DIM)


@contextmanager
def open_demo_workspace(home: Path | None, *, fast: bool, keep: bool) -> Iterator[DemoWorkspace]:
    root = Path(tempfile.mkdtemp(prefix="shoal-demo-")).resolve()
    try:
        yield DemoWorkspace(
            root=root,
            project=root / "project",
            home=root / "home" if home is None else home.absolute(),
            uses_given_home=home is not None,
            fast=fast,
            keep=keep,
        )
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)
