"""Workloads that are disturbed: a team works off its board, or a lead gives jobs to sub-agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from tests.chaos import agents_faults, agents_mind, team_faults, team_mind
from tests.chaos.provider import Mind


class Part(Struct, frozen=True, kw_only=True):
    prompt: str
    again: str
    """Prompt for a lead that was resumed."""
    span: float
    changes: int
    """Approximate duration, in seconds and in changes to the disk."""
    faults: Callable[[Path, str], list[str]]
    """Returns the faults when it is done, in this directory and session; nothing is cleaned up before."""


class Removal(Struct, frozen=True, kw_only=True):
    """Command with which a person cleans up after a lead that is not resumed."""

    words: tuple[str, ...]
    is_there: Callable[[Path], bool]
    """True if there is anything to remove."""
    faults: Callable[[Path], list[str]]


class Work(Struct, frozen=True, kw_only=True):
    name: str
    mind: Mind
    parts: tuple[Part, ...]
    removal: Removal | None = None
    places: Callable[[Path, str], list[str]] | None = None
    """Returns faults of the backends that agents run in, before the last part."""


TEAM = Work(
    name="team",
    mind=team_mind.mind,
    parts=(
        Part(
            prompt=team_mind.BEGIN,
            again=team_mind.GO_ON,
            span=1.2,
            changes=2500,
            faults=lambda place, session: asyncio.run(team_faults.faults_of_work(place, session)),
        ),
        Part(
            prompt=team_mind.FINISH,
            again=team_mind.FINISH,
            span=0.5,
            changes=300,
            faults=team_faults.faults_of_end,
        ),
    ),
    removal=Removal(
        words=("team", "rm", team_mind.TEAM, "--yes", "--force"),
        is_there=team_faults.is_there,
        faults=team_faults.faults_of_removal,
    ),
    places=team_faults.faults_of_places,
)
AGENTS = Work(
    name="agents",
    mind=agents_mind.mind,
    parts=(
        Part(
            prompt=agents_mind.BEGIN,
            again=agents_mind.GO_ON,
            span=0.6,
            changes=900,
            faults=agents_faults.faults,
        ),
    ),
)
WORKS = {work.name: work for work in (TEAM, AGENTS)}
