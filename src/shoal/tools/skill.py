"""The Skill tool, which returns a skill's instructions, and the list of skills for the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeAlias

from msgspec import Meta

from shoal.core.skills import Skill
from shoal.core.tools import Outcome, Site, Tool
from shoal.tools.bounded_list import bounded_list
from shoal.tools.define import tool

Use: TypeAlias = Callable[[str, str, Site], Awaitable[Outcome]]
"""Runs a skill, given its name and arguments."""

LONGEST = 8_000
"""Limit of the whole list, which is sent with every request."""
_ROOMS = (1_024, 400, 160, 80)
_ABOUT = (
    "Get the instructions of a skill: how a kind of work is done here, by somebody who knows. Where one of "
    "them fits what you are asked to do, call this before you begin, and follow what it says. It names the "
    "directory of the skill; files beside it are read with Read when they are needed. A skill is called by "
    "its name alone, and none but those listed here, or told of later, are there."
)
NONE = "(There is none yet.)"


def skill_tool(use: Use, listed: str) -> Tool:
    @tool(name="Skill", deadline=None, description=f"{_ABOUT}\n\n{listed or NONE}")
    async def skill(
        skill: Annotated[str, Meta(min_length=1), "Its name"],
        args: Annotated[str, "What it is to be done with, as a person would type it"] = "",
        *,
        site: Site,
    ) -> Outcome:
        return await use(skill, args, site)

    return skill


def skill_list(skills: Sequence[Skill], *, longest: int = LONGEST) -> str:
    """Return one line per skill: its name and when to use it. Never exceeds `max_characters`."""
    return bounded_list(skills, longest=longest, rooms=_ROOMS)
