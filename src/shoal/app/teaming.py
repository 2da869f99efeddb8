"""Gives a session its team: what of the session it stands on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.runs.crew import AgentCrew
from shoal.runs.outfit import Outfitter
from shoal.team.footing import Footing
from shoal.team.teams import SessionTeams

if TYPE_CHECKING:
    from shoal.app.crewing import Ground


def make_teams(ground: Ground, crew: AgentCrew, outfitter: Outfitter) -> SessionTeams:
    own = ground.settings.own
    teams = SessionTeams(
        Footing(
            record=ground.between,
            outfitter=outfitter,
            queue=ground.queue,
            purse=ground.purse,
            desk=ground.desk,
            clock=ground.options.clock,
            ids=ground.ids.branch(),
            emit=ground.emit,
            note=ground.note,
            lead=crew.lead,
            mode=lambda: ground.permissions.mode,
            approver=lambda: own.plan_approver,
            usual=crew.habits.usual,
            grace=own.shutdown_grace,
            report_tokens=own.report_tokens,
            stop_agents_of=crew.stop_those_of,
        )
    )
    crew.teammate = teams.agent
    return teams
