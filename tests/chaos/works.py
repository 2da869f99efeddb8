"""What is done while it is disturbed: a team works off its board, or a lead hands jobs to sub-agents."""

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
    """What is said to a lead that was resumed."""
    span: float
    changes: int
    """About how long it takes, in seconds and in changes to the disk."""
    faults: Callable[[Path, str], list[str]]
    """What is wrong when it is done, in this place and with this session; nobody cleaned up before."""


class Removal(Struct, frozen=True, kw_only=True):
    """How a person clears up after a lead that is not resumed."""

    words: tuple[str, ...]
    is_there: Callable[[Path], bool]
    """Whether there is anything to remove."""
    faults: Callable[[Path], list[str]]


class Work(Struct, frozen=True, kw_only=True):
    name: str
    mind: Mind
    parts: tuple[Part, ...]
    removal: Removal | None = None
    places: Callable[[Path, str], list[str]] | None = None
    """What is wrong with where agents run, before the last part."""


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
