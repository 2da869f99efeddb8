"""Names of teams, agents and tasks. They become paths, so they are validated before any disk access."""

from __future__ import annotations

import re
import unicodedata
from typing import NewType

from shoal.core.errors import BadName

TeamName = NewType("TeamName", str)
AgentName = NewType("AgentName", str)
TaskId = NewType("TaskId", str)

LEAD_NAME = AgentName("team-lead")
PERSON = AgentName("user")
TASK_LIST = AgentName("task-list")
RESERVED: frozenset[str] = frozenset({LEAD_NAME, PERSON, TASK_LIST, "system"})
"""Sender names that only the runtime may use."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TASK_ID = re.compile(r"[1-9][0-9]{0,17}")


def name_from(text: str) -> str:
    """Parse a name: fold compatibility forms, then allow only letters, digits, `_` and `-`."""
    folded = unicodedata.normalize("NFKC", text).strip()
    if _NAME.fullmatch(folded) is None:
        raise BadName(
            f"{text[:80]!r} cannot be a name: it needs 1 to 64 letters, digits, '_' or '-', "
            "and starts with a letter or digit."
        )
    return folded


def team_name(text: str) -> TeamName:
    return TeamName(name_from(text))


def agent_name(text: str) -> AgentName:
    return AgentName(name_from(text))


def task_id(text: str) -> TaskId:
    """Parse a task id: a decimal number without leading zeros."""
    if _TASK_ID.fullmatch(text) is None:
        raise BadName(f"{text[:80]!r} is not a task id: ids are whole numbers from 1 on.")
    return TaskId(text)


def free_name(wanted: str, taken: set[str]) -> str:
    """Return the name, with the first number that makes it unique if it is taken."""
    if wanted not in taken:
        return wanted
    number = 2
    while (candidate := f"{wanted[: 63 - len(str(number))]}-{number}") in taken:
        number += 1
    return candidate
