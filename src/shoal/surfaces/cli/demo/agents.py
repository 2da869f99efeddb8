"""`shoal demo agents`: three agents repair a small project side by side, each in a git worktree."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from shoal.surfaces.cli.demo.agents_summary import Ran, introduce, merge_all, summary
from shoal.surfaces.cli.demo.place import Where
from shoal.surfaces.cli.headless.signals import Signals
from shoal.surfaces.terminal.screen import Screen

if TYPE_CHECKING:
    from shoal.surfaces.cli.demo.agents_show import Show


class AgentsDemo:
    def __init__(self, screen: Screen, where: Where) -> None:
        self._screen = screen
        self._where = where
        self._show: Show | None = None

    async def run(self, signals: Signals) -> int:
        from shoal.app.demo.harbour import TASK, lay_out, put_under_git
        from shoal.app.demo.stage import prepare, stage
        from shoal.app.session.session import Session
        from shoal.stores.files.places import journal_path, transcript_path
        from shoal.surfaces.cli.demo.agents_show import Show

        where = self._where
        signals.listen()
        prepare(os.environ, where.home, where.place)
        lay_out(where.project)
        put_under_git(where.project)
        staged = stage(where.project, os.environ, fast=where.fast)
        introduce(self._screen, TASK, staged.unguarded)
        async with Session(staged.options) as session:
            where.tell_beside(self._screen, session.id)
            self._show = Show(self._screen, session)
            finished = await self._show.run(TASK)
        await merge_all(self._screen, where.project, where.home, pause=0.0 if where.fast else 0.5)
        ran = Ran(
            finished=finished,
            completions=tuple(self._show.completions),
            seconds=self._show.seconds,
            project=where.project,
            journal=journal_path(where.home, session.id),
            transcript=transcript_path(where.home, str(session.parts.workspace.root), session.id),
            kept=where.keep,
            home=where.home,
        )
        return summary(self._screen, ran)

    def clear_up(self) -> None:
        """Remove the demo's worktrees from a home given by the user: their project is gone."""
        where = self._where
        if where.elsewhere and not where.keep and self._show is not None:
            shelf = (where.home / "worktrees").resolve()
            for directory in self._show.worktrees:
                # The home belongs to the user: remove nothing but a directory of worktrees.
                if directory.parent == shelf:
                    shutil.rmtree(directory, ignore_errors=True)
