"""Gives a session its team: what of the session it stands on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.app.orders import authority_of
from shoal.core.events import Noted
from shoal.core.ids import LEAD
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
            clock=ground.options.clock,
            ids=ground.ids.branch(),
            emit=ground.emit,
            note=lambda text: ground.emit(Noted(agent=LEAD, text=text)),
            lead=crew.lead,
            mode=lambda: authority_of(crew.lead()).mode,
            approver=lambda: own.plan_approver,
            usual=crew.habits.usual,
            grace=own.shutdown_grace,
            report_tokens=own.report_tokens,
            trust_unsigned=own.trust_unsigned_mail,
            stop_agents_of=crew.stop_those_of,
        )
    )
    crew.teammate = teams.agent
    return teams
