"""The list of agents that the model reads before it starts one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shoal.core.definitions import EVERY, Definition
from shoal.core.neutral import neutral

LONGEST = 16_000
"""Characters of the whole list: it is sent with every request."""
_SHORTER = (2_000, 600, 200, 80)
"""Characters of one description, the first that makes the whole fit."""
_MOST_TOOLS = 12


def listing(definitions: Iterable[Definition], *, longest: int = LONGEST) -> str:
    """A line for each agent: its name, when to use it, and its tools. Never longer than it may be."""
    agents = tuple(definitions)
    for room in _SHORTER:
        text = "\n".join(_line(agent, room) for agent in agents)
        if len(text) <= longest:
            return text
    return _names(agents, longest)


def _line(agent: Definition, room: int) -> str:
    described = " ".join(agent.description.split())
    if len(described) > room:
        described = f"{described[: room - 1].rstrip()}…"
    # A file of the project may come from anyone, and what it says of its agent stands in our own words.
    return neutral(f"- {agent.name}: {described} (Tools: {_tools(agent)})")


def _tools(agent: Definition) -> str:
    off = f" except {_some(agent.disallowed_tools)}" if agent.disallowed_tools else ""
    if agent.tools is None or EVERY in agent.tools:
        return f"all{off}"
    return f"{_some(agent.tools)}{off}" if agent.tools else "none"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_TOOLS} more" if len(names) > _MOST_TOOLS else ""
    return ", ".join(name[:80] for name in names[:_MOST_TOOLS]) + more


def _names(agents: Sequence[Definition], longest: int) -> str:
    """Where there are too many to describe: the first names, and how many are left out."""
    lines: list[str] = []
    room = longest - len(f"… and {len(agents)} more")
    for agent in agents:
        line = neutral(f"- {agent.name}")
        if len(line) + 1 > room:
            return "\n".join([*lines, f"… and {len(agents) - len(lines)} more"])
        lines.append(line)
        room -= len(line) + 1
    return "\n".join(lines)
