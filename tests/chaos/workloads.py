"""Workloads that are disturbed: a team works off its board, or a lead gives jobs to sub-agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from tests.chaos import agents_faults, agents_script, team_faults, team_script
from tests.chaos.flaky_provider import ReplyScript


class WorkloadPart(Struct, frozen=True, kw_only=True):
    prompt: str
    resume_prompt: str
    """Prompt for a lead that was resumed."""
    span: float
    changes: int
    """Approximate duration, in seconds and in changes to the disk."""
    find_faults: Callable[[Path, str], list[str]]
    """Returns the faults when it is done, in this directory and session; nothing is cleaned up before."""


class CleanupCommand(Struct, frozen=True, kw_only=True):
    """Command with which a person cleans up after a lead that is not resumed."""

    arguments: tuple[str, ...]
    is_needed: Callable[[Path], bool]
    """True if there is anything to remove."""
    find_faults: Callable[[Path], list[str]]


class Workload(Struct, frozen=True, kw_only=True):
    name: str
    script: ReplyScript
    parts: tuple[WorkloadPart, ...]
    removal: CleanupCommand | None = None
    find_backend_faults: Callable[[Path, str], list[str]] | None = None
    """Returns faults of the backends that agents run in, before the last part."""


TEAM_WORKLOAD = Workload(
    name="team",
    script=team_script.choose_reply,
    parts=(
        WorkloadPart(
            prompt=team_script.BEGIN,
            resume_prompt=team_script.GO_ON,
            span=1.2,
            changes=2500,
            find_faults=lambda place, session: asyncio.run(team_faults.find_work_faults(place, session)),
        ),
        WorkloadPart(
            prompt=team_script.FINISH,
            resume_prompt=team_script.FINISH,
            span=0.5,
            changes=300,
            find_faults=team_faults.find_end_faults,
        ),
    ),
    removal=CleanupCommand(
        arguments=("team", "rm", team_script.TEAM, "--yes", "--force"),
        is_needed=team_faults.has_team,
        find_faults=team_faults.find_removal_faults,
    ),
    find_backend_faults=team_faults.find_backend_faults,
)
AGENTS_WORKLOAD = Workload(
    name="agents",
    script=agents_script.choose_reply,
    parts=(
        WorkloadPart(
            prompt=agents_script.BEGIN,
            resume_prompt=agents_script.GO_ON,
            span=0.6,
            changes=900,
            find_faults=agents_faults.find_agent_faults,
        ),
    ),
)
WORKLOADS = {work.name: work for work in (TEAM_WORKLOAD, AGENTS_WORKLOAD)}
