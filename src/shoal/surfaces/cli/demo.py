"""`shoal demo`: three agents repair a small project side by side before one's eyes, offline."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.surfaces.cli.demo_summary import Ran, introduce, merge_all, summary
from shoal.surfaces.cli.paint import DIM
from shoal.surfaces.cli.screen import Screen, screen_for
from shoal.surfaces.cli.sentences import say, unwrapped
from shoal.surfaces.cli.signals import Signals

if TYPE_CHECKING:
    from shoal.surfaces.cli.demo_show import Show


@click.command(
    name="demo",
    help="Watch three agents repair a small project side by side: offline, without a key, "
    "in about 20 seconds.",
)
@click.option("--fast", is_flag=True, help="Without pauses.")
@click.option("--keep", is_flag=True, help="Keep the project and the transcripts, and say where they are.")
@click.option("--home", type=click.Path(path_type=Path), help="Keep the transcripts in this home.")
def command(*, fast: bool, keep: bool, home: Path | None) -> int:
    screen = screen_for(sys.stdout)
    signals = Signals()
    try:
        with _place(keep=keep) as place:
            demo = _Demo(screen, place, home and home.absolute(), fast=fast, keep=keep)
            with demo.left_elsewhere():
                ran = asyncio.run(demo.run(signals))
                return summary(screen, ran)
    except asyncio.CancelledError:
        # Only a signal cancels the whole run.
        screen.close()
        say("Interrupted.")
        return signals.exit_code
    except ExceptionGroup as group:
        raise unwrapped(group) from None
    finally:
        screen.close()


@contextmanager
def _place(*, keep: bool) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="shoal-demo-")).resolve()
    try:
        yield place
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


class _Demo:
    def __init__(self, screen: Screen, place: Path, home: Path | None, *, fast: bool, keep: bool) -> None:
        self._screen = screen
        self._project = place / "project"
        self._home = home or place / "home"
        self._elsewhere = home is not None
        self._fast = fast
        self._keep = keep
        self._show: Show | None = None

    @contextmanager
    def left_elsewhere(self) -> Iterator[None]:
        """In a home of the person's own, worktrees of a project that is gone are of no use."""
        try:
            yield
        finally:
            if self._elsewhere and not self._keep and self._show is not None:
                shelf = (self._home / "worktrees").resolve()
                for directory in self._show.worktrees:
                    # It is the person's own: nothing but a directory of worktrees is taken away there.
                    if directory.parent == shelf:
                        shutil.rmtree(directory, ignore_errors=True)

    async def run(self, signals: Signals) -> Ran:
        from shoal.app.demo.harbour import TASK, lay_out, put_under_git
        from shoal.app.demo.stage import prepare, stage
        from shoal.app.session import Session
        from shoal.stores.files.places import journal_path, transcript_path
        from shoal.surfaces.cli.demo_show import Show

        signals.listen()
        prepare(os.environ, self._home)
        lay_out(self._project)
        put_under_git(self._project)
        staged = stage(self._project, os.environ, fast=self._fast)
        introduce(self._screen, TASK, staged.unguarded)
        async with Session(staged.options) as session:
            if self._keep or self._elsewhere:
                beside = f"SHOAL_HOME={shlex.quote(str(self._home))} shoal watch {session.id[:8]}"
                self._screen.write(f"  From another terminal: {beside}\n", DIM)
            self._show = Show(self._screen, session)
            finished = await self._show.run(TASK)
        await merge_all(self._screen, self._project, self._home, pause=0.0 if self._fast else 0.5)
        return Ran(
            finished=finished,
            completions=tuple(self._show.completions),
            seconds=self._show.seconds,
            project=self._project,
            journal=journal_path(self._home, session.id),
            transcript=transcript_path(self._home, str(session.parts.workspace.root), session.id),
            kept=self._keep,
            home=self._home,
        )
