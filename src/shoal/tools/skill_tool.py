"""The Skill tool, which returns a skill's instructions, and the list of skills for the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeAlias

from msgspec import Meta

from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput
from shoal.core.extensions.skills import Skill
from shoal.tools.bounded_list import format_bounded_list
from shoal.tools.function_tool import tool

SkillRunner: TypeAlias = Callable[[str, str, ToolContext], Awaitable[ToolOutput]]
"""Runs a skill, given its name and arguments."""

MAX_LIST_CHARACTERS = 8_000
"""Limit of the whole list, which is sent with every request."""
_DESCRIPTION_LIMITS = (1_024, 400, 160, 80)
_SKILL_DESCRIPTION = (
    "Get the instructions of a skill: how a kind of work is done here, by somebody who knows. Where one of "
    "them fits what you are asked to do, call this before you begin, and follow what it says. It names the "
    "directory of the skill; files beside it are read with Read when they are needed. A skill is called by "
    "its name alone, and none but those listed here, or told of later, are there."
)
NO_SKILLS = "(There is none yet.)"


def build_skill_tool(run_skill: SkillRunner, listing: str) -> Tool:
    @tool(name="Skill", deadline=None, description=f"{_SKILL_DESCRIPTION}\n\n{listing or NO_SKILLS}")
    async def use_skill(
        skill: Annotated[str, Meta(min_length=1), "Its name"],
        args: Annotated[str, "What it is to be done with, as a person would type it"] = "",
        *,
        context: ToolContext,
    ) -> ToolOutput:
        return await run_skill(skill, args, context)

    return use_skill


def format_skill_list(skills: Sequence[Skill], *, max_characters: int = MAX_LIST_CHARACTERS) -> str:
    """Return one line per skill: its name and when to use it. Never exceeds `max_characters`."""
    return format_bounded_list(skills, max_characters=max_characters, description_limits=_DESCRIPTION_LIMITS)
