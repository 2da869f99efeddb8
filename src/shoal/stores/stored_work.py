"""Summary of the stored work of an agent, the same for every store."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from shoal.core.store import WorkPart, WorkSummary


def select_current_parts(parts: Iterable[WorkPart]) -> tuple[WorkPart, ...]:
    """Leave out parts that a later one has replaced; a crash may have kept them."""
    current: list[WorkPart] = []
    for part in parts:
        if part.is_first:
            current.clear()
        current.append(part)
    return tuple(current)


def summarize_work(parts: Iterable[WorkPart]) -> dict[str, WorkSummary]:
    """Return the summaries by agent."""
    by_agent: dict[str, list[WorkPart]] = {}
    for part in parts:
        by_agent.setdefault(part.agent, []).append(part)
    summaries = {}
    for agent, stored in by_agent.items():
        first, *later = select_current_parts(stored)
        summaries[agent] = WorkSummary(
            last=replace([first, *later][-1], bundle=b""),
            parts=1 + len(later),
            first_size=len(first.bundle),
            later_size=sum(len(part.bundle) for part in later),
        )
    return summaries
