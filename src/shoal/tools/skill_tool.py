"""The Skill tool, which returns a skill's instructions, and the list of skills for the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeAlias

from msgspec import Meta

from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput
from shoal.core.extensions.skills import Skill
from shoal.tools.bounded_list import format_bounded_list
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.tool_texts import load_tool_description, load_tool_text

SkillRunner: TypeAlias = Callable[[str, str, ToolContext], Awaitable[ToolOutput]]
"""Runs a skill, given its name and arguments."""

MAX_LIST_CHARACTERS = 8_000
"""Limit for the whole list, which is sent with every request."""
_DESCRIPTION_LIMITS = (1_024, 400, 160, 80)


def build_skill_tool(run_skill: SkillRunner, listing: str) -> Tool:
    listing = listing or load_tool_text("Skill", "no_skills")

    @builtin_tool(name="Skill", deadline=None, description=f"{load_tool_description('Skill')}\n\n{listing}")
    async def use_skill(
        skill: Annotated[str, Meta(min_length=1)],
        args: str = "",
        *,
        context: ToolContext,
    ) -> ToolOutput:
        return await run_skill(skill, args, context)

    return use_skill


def format_skill_list(skills: Sequence[Skill], *, max_characters: int = MAX_LIST_CHARACTERS) -> str:
    """Return one line per skill: its name and when to use it. Never exceeds `max_characters`."""
    return format_bounded_list(skills, max_characters=max_characters, description_limits=_DESCRIPTION_LIMITS)
