"""List of agents that the model reads before it starts one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shoal.core.definitions import EVERY, Definition
from shoal.tools.bounded_list import bounded_list

LONGEST = 16_000
"""Limit of the whole list, which is sent with every request."""
_ROOMS = (2_000, 600, 200, 80)
_MOST_TOOLS = 12


def listing(definitions: Iterable[Definition], *, longest: int = LONGEST) -> str:
    """Return one line per agent: its name, when to use it, and its tools. Never exceeds `max_characters`."""
    return bounded_list(
        tuple(definitions),
        longest=longest,
        rooms=_ROOMS,
        more=lambda agent: f" (Tools: {_tools(agent)})",
    )


def _tools(agent: Definition) -> str:
    off = f" except {_some(agent.disallowed_tools)}" if agent.disallowed_tools else ""
    if agent.tools is None or EVERY in agent.tools:
        return f"all{off}"
    return f"{_some(agent.tools)}{off}" if agent.tools else "none"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_TOOLS} more" if len(names) > _MOST_TOOLS else ""
    return ", ".join(name[:80] for name in names[:_MOST_TOOLS]) + more
