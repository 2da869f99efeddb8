"""The tool with which an agent gets what a skill says, and the list of skills it reads before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeAlias

from msgspec import Meta

from shoal.core.skills import Skill
from shoal.core.tools import Outcome, Site, Tool
from shoal.tools.bounded_list import bounded_list
from shoal.tools.define import tool

Use: TypeAlias = Callable[[str, str, Site], Awaitable[Outcome]]
"""By the name of the skill and what it is given."""

LONGEST = 8_000
"""Characters of the whole list: it is sent with every request."""
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
    """A line for each: its name and when to use it. Never longer than it may be."""
    return bounded_list(skills, longest=longest, rooms=_ROOMS)
