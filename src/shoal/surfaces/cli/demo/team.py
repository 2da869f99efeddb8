"""`shoal demo team`: a team of separate processes repairs a small project and survives a kill."""

from __future__ import annotations

import os

from shoal.surfaces.cli.demo.place import Where
from shoal.surfaces.cli.demo.team_summary import Ran, introduce, summary
from shoal.surfaces.cli.headless.signals import Signals
from shoal.surfaces.terminal.screen import Screen


class TeamDemo:
    def __init__(self, screen: Screen, where: Where) -> None:
        self._screen = screen
        self._where = where

    async def run(self, signals: Signals) -> int:
        from shoal.app.demo.harbour import TASK, lay_out, put_under_git
        from shoal.app.demo.stage import prepare
        from shoal.app.demo.team_stage import CALLS_BEFORE, KILLED, team_options, write_mind
        from shoal.app.session.session import Session
        from shoal.stores.files.places import journal_path
        from shoal.surfaces.cli.demo.acts import Target
        from shoal.surfaces.cli.demo.team_show import TeamShow

        where, mind = self._where, self._where.place / "mind.json"
        signals.listen()
        prepare(os.environ, where.home, where.place)
        lay_out(where.project)
        put_under_git(where.project)
        write_mind(mind, fast=where.fast)
        introduce(self._screen, TASK)
        target = Target(name=KILLED, calls=CALLS_BEFORE)
        async with Session(team_options(where.project, mind)) as session:
            where.tell_beside(self._screen, session.id)
            show = TeamShow(self._screen, session, where.home, target, pause=0.0 if where.fast else 1.0)
            finished = await show.run(TASK)
        mail = await show.files.mail()
        await show.files.aclose()
        ran = Ran(
            finished=finished,
            seconds=show.seconds,
            team=show.files.team,
            tasks=tuple(show.files.tasks),
            mail=tuple(mail),
            revival=show.revival,
            answered=show.answered,
            standings=show.standings,
            journal=journal_path(where.home, session.id),
            where=where,
        )
        return summary(self._screen, ran)

    def clear_up(self) -> None:
        """Do nothing: the team's files are kept or removed with the home."""
