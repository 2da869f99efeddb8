"""Runs this process as a member of a foreign program's team."""

from __future__ import annotations

import signal
from pathlib import Path

from shoal.app.options import Options
from shoal.app.session.outpost import leave_at, stay_small
from shoal.app.session.session import Session
from shoal.core.agents import Order
from shoal.core.backends import Papers
from shoal.runs.endings import Ending
from shoal.team.outpost import Membership, Outpost


def options_of(papers: Papers, cwd: Path | None = None) -> Options:
    """Build options from the lead's arguments and the local settings; its prompt is its first mail."""
    order = Order(
        description=f"{papers.name} of the team {papers.team}",
        prompt="",
        kind=papers.kind,
        name=papers.name,
        model=papers.model,
    )
    return Options(
        cwd=cwd,
        model=papers.model,
        mode=papers.mode,
        skip_permissions=papers.skip_permissions,
        allowed_tools=papers.allowed,
        disallowed_tools=papers.disallowed,
        max_budget_usd=papers.max_budget_usd,
        settings=papers.settings,
        plugin_dirs=tuple(map(Path, papers.plugin_dirs)),
        attended=True,
        membership=Membership(
            name=papers.name,
            team=papers.team,
            order=order,
            mode="plan" if papers.plan_mode_required else papers.mode,
        ),
    )


async def serve(session: Session) -> Ending:
    """Run the member until its lead shuts it down or its process is asked to end."""
    outpost = session.parts.teams
    assert isinstance(outpost, Outpost)
    leave_at(outpost, signal.SIGTERM, signal.SIGHUP)
    stay_small(session)
    return await outpost.serve()
