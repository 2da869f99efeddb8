"""`shoal demo team`: a team of separate processes repairs a small project and survives a kill."""

from __future__ import annotations

import os

from shoal.surfaces.cli.demo.demo_workspace import DemoWorkspace
from shoal.surfaces.cli.demo.team_summary import TeamDemoResult, print_team_introduction, print_team_summary
from shoal.surfaces.cli.headless.signal_handler import HeadlessSignalHandler
from shoal.surfaces.terminal.screen import TerminalScreen


class TeamDemo:
    def __init__(self, screen: TerminalScreen, workspace: DemoWorkspace) -> None:
        self._screen = screen
        self._workspace = workspace

    async def run(self, signals: HeadlessSignalHandler) -> int:
        from shoal.app.demo.demo_project import TASK_PROMPT, init_repository_with_commit, write_demo_project
        from shoal.app.demo.demo_session import (
            CALLS_BEFORE_KILL,
            KILLED_MEMBER,
            build_team_demo_options,
            isolate_demo_environment,
            write_team_demo_script,
        )
        from shoal.app.session.session import Session
        from shoal.stores.files.home.home_paths import get_journal_path
        from shoal.surfaces.cli.demo.demo_actors import DemoMemberKillTarget
        from shoal.surfaces.cli.demo.team_presenter import TeamDemoPresenter

        workspace, state_file = self._workspace, self._workspace.root / "mind.json"
        signals.install_handlers()
        isolate_demo_environment(os.environ, workspace.home, workspace.root)
        write_demo_project(workspace.project)
        init_repository_with_commit(workspace.project)
        write_team_demo_script(state_file, fast=workspace.fast)
        print_team_introduction(self._screen, TASK_PROMPT)
        target = DemoMemberKillTarget(name=KILLED_MEMBER, calls=CALLS_BEFORE_KILL)
        async with Session(build_team_demo_options(workspace.project, state_file)) as session:
            workspace.print_watch_hint(self._screen, session.id)
            presenter = TeamDemoPresenter(
                self._screen, session, workspace.home, target, pause=0.0 if workspace.fast else 1.0
            )
            finished = await presenter.run(TASK_PROMPT)
        mail = await presenter.files.read_mail()
        await presenter.files.aclose()
        result = TeamDemoResult(
            finished=finished,
            seconds=presenter.elapsed_seconds,
            team=presenter.files.team,
            tasks=tuple(presenter.files.tasks),
            mail=tuple(mail),
            restart=presenter.restart,
            answered_count=presenter.answered_count,
            statuses=presenter.statuses,
            journal=get_journal_path(workspace.home, session.id),
            workspace=workspace,
        )
        return print_team_summary(self._screen, result)

    def remove_demo_worktrees(self) -> None:
        """Do nothing: the team's files are kept or removed with the home."""
