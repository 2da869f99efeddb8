"""`shoal demo agents`: three agents repair a small project side by side, each in a git worktree."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from shoal.surfaces.cli.demo.agents_summary import (
    AgentsDemoResult,
    merge_demo_worktrees,
    print_agents_introduction,
    print_agents_summary,
)
from shoal.surfaces.cli.demo.demo_workspace import DemoWorkspace
from shoal.surfaces.cli.headless.signal_handler import HeadlessSignalHandler
from shoal.surfaces.terminal.screen import TerminalScreen

if TYPE_CHECKING:
    from shoal.surfaces.cli.demo.agents_presenter import AgentsDemoPresenter


class AgentsDemo:
    def __init__(self, screen: TerminalScreen, workspace: DemoWorkspace) -> None:
        self._screen = screen
        self._workspace = workspace
        self._presenter: AgentsDemoPresenter | None = None

    async def run(self, signals: HeadlessSignalHandler) -> int:
        from shoal.app.demo.demo_project import TASK_PROMPT, init_repository_with_commit, write_demo_project
        from shoal.app.demo.demo_session import build_demo_setup, isolate_demo_environment
        from shoal.app.session.session import Session
        from shoal.stores.files.home.home_paths import get_journal_path, get_transcript_path
        from shoal.surfaces.cli.demo.agents_presenter import AgentsDemoPresenter

        workspace = self._workspace
        signals.install_handlers()
        isolate_demo_environment(os.environ, workspace.home, workspace.root)
        write_demo_project(workspace.project)
        init_repository_with_commit(workspace.project)
        setup = build_demo_setup(workspace.project, os.environ, fast=workspace.fast)
        print_agents_introduction(self._screen, TASK_PROMPT, setup.sandbox_problem)
        async with Session(setup.options) as session:
            workspace.print_watch_hint(self._screen, session.id)
            self._presenter = AgentsDemoPresenter(self._screen, session)
            finished = await self._presenter.run(TASK_PROMPT)
        await merge_demo_worktrees(
            self._screen, workspace.project, workspace.home, pause=0.0 if workspace.fast else 0.5
        )
        result = AgentsDemoResult(
            finished=finished,
            completions=tuple(self._presenter.completions),
            seconds=self._presenter.elapsed_seconds,
            project=workspace.project,
            journal=get_journal_path(workspace.home, session.id),
            transcript=get_transcript_path(workspace.home, str(session.cwd), session.id),
            kept=workspace.keep,
            home=workspace.home,
        )
        return print_agents_summary(self._screen, result)

    def remove_demo_worktrees(self) -> None:
        """Remove the demo's worktrees from a home given by the user: their project is gone."""
        workspace = self._workspace
        if workspace.uses_given_home and not workspace.keep and self._presenter is not None:
            worktrees_directory = (workspace.home / "worktrees").resolve()
            for directory in self._presenter.worktree_directories:
                # The home belongs to the user: remove nothing but a directory of worktrees.
                if directory.parent == worktrees_directory:
                    shutil.rmtree(directory, ignore_errors=True)
