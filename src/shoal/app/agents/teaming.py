"""Creates the teams of a session and their services."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from shoal.app.agents.berths import Berths
from shoal.app.authority import authority_of
from shoal.app.teams.record import AgentsRecord
from shoal.core.errors import ShoalError, StoreError
from shoal.core.events import Noted
from shoal.core.ids import LEAD
from shoal.core.permissions import Suggestion
from shoal.runs.crew import AgentCrew
from shoal.runs.outfit import Outfitter
from shoal.team.footing import Footing
from shoal.team.nesting import NestedTeams
from shoal.team.outpost import Outpost
from shoal.team.teams import SessionTeams

if TYPE_CHECKING:
    from shoal.app.agents.crewing import Ground


def make_teams(ground: Ground, crew: AgentCrew, outfitter: Outfitter) -> SessionTeams | Outpost:
    """Create the teams that the session leads or, in a teammate's process, the member host."""
    own, membership = ground.settings.own, ground.options.membership
    footing = Footing(
        record=ground.between,
        outfitter=outfitter,
        queue=ground.queue,
        purse=ground.purse,
        clock=ground.options.clock,
        ids=ground.ids.branch(),
        emit=ground.emit,
        note=partial(_note, ground),
        lead=crew.lead,
        mode=lambda: authority_of(crew.lead()).mode,
        approver=lambda: own.plan_approver,
        usual=crew.habits.usual,
        implicit=lambda: own.implicit_team and "TeamCreate" in crew.lead().tools,
        grace=own.shutdown_grace,
        stall_after=own.stall_after,
        report_tokens=own.report_tokens,
        trust_unsigned=own.trust_unsigned_mail,
        stop_agents_of=crew.stop_those_of,
        unanswered=crew.unanswered,
        form="in-process" if membership is None else "process",
        elsewhere=Berths(ground, crew.lead),
        hear=ground.shore.hear,
        permit=partial(_permit, crew),
        revivals=own.teammate_restarts,
    )
    teams: SessionTeams | Outpost
    if membership is None:
        teams = _led(footing, own.team_depth, ground.between)
    else:
        teams = Outpost(footing, membership, lambda: crew.working)
    crew.teammate = teams.agent
    return teams


def _note(ground: Ground, text: str) -> None:
    with suppress(StoreError):  # a full disk must not end the caller over a note
        ground.emit(Noted(agent=LEAD, text=text))


def _permit(crew: AgentCrew, update: Suggestion) -> None:
    with suppress(ShoalError):  # the person who answered has seen the error
        authority_of(crew.lead()).answers.add(update)


def _led(footing: Footing, depth: int, between: AgentsRecord) -> SessionTeams:
    if depth == 1:
        return SessionTeams(footing)
    teams = NestedTeams(footing, depth, lambda agent: authority_of(agent).mode)
    between.leading = teams.led_as
    return teams
