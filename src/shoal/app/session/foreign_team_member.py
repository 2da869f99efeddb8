"""Runs this process as a member of a foreign program's team."""

from __future__ import annotations

import signal
from pathlib import Path

from shoal.app.options import Options
from shoal.app.session.member_main import end_member_on_signals, trim_heap_when_member_idles
from shoal.app.session.session import Session
from shoal.core.agents.subagents import SpawnRequest
from shoal.core.teams.member_backends import MemberLaunchArgs
from shoal.runs.run_outcome import AgentRunOutcome
from shoal.team.members.member_host import MemberHost, TeamMembership


def build_foreign_member_options(launch_args: MemberLaunchArgs, cwd: Path | None = None) -> Options:
    """Build options from the lead's arguments and the local settings; its prompt is its first mail."""
    request = SpawnRequest(
        description=f"{launch_args.name} of the team {launch_args.team}",
        prompt="",
        kind=launch_args.kind,
        name=launch_args.name,
        model=launch_args.model,
    )
    return Options(
        cwd=cwd,
        model=launch_args.model,
        mode=launch_args.mode,
        skip_permissions=launch_args.skip_permissions,
        allowed_tools=launch_args.allowed,
        disallowed_tools=launch_args.disallowed,
        max_budget_usd=launch_args.max_budget_usd,
        settings=launch_args.settings,
        plugin_dirs=tuple(map(Path, launch_args.plugin_dirs)),
        attended=True,
        membership=TeamMembership(
            name=launch_args.name,
            team=launch_args.team,
            spawn_request=request,
            mode="plan" if launch_args.plan_mode_required else launch_args.mode,
        ),
    )


async def run_member_of_foreign_lead(session: Session) -> AgentRunOutcome:
    """Run the member until its lead shuts it down or its process is asked to end."""
    member_host = session.teams
    assert isinstance(member_host, MemberHost)
    end_member_on_signals(member_host, signal.SIGTERM, signal.SIGHUP)
    trim_heap_when_member_idles(session)
    return await member_host.run_member()
