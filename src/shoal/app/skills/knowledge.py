"""Knowledge that agents get in addition to their task: skills, commands and instruction files."""

from __future__ import annotations

from msgspec import Struct

from shoal.app.definitions.instructions import Instructions
from shoal.app.skills.invoking import Invoking, Preloaded
from shoal.app.skills.news import News
from shoal.app.skills.skills import Skills
from shoal.core.definitions import Definition
from shoal.core.skills import Skill, TypedPrompt, TypedPrompts
from shoal.core.tools import Tool
from shoal.tools.skill import skill_list, skill_tool


class Knowledge(Struct, kw_only=True):
    skills: Skills
    invoking: Invoking
    news: News
    instructions: Instructions
    prompts: list[TypedPrompts] = []
    """Sources of additional commands."""

    def for_newcomer(self, definition: Definition) -> Preloaded:
        """Return the texts an agent starts with. Raises `AgentRequestRefused` for a missing skill."""
        known = self.invoking.preloaded(definition.skills, definition.name)
        since = self.news.since_start() if definition.tools is None else ""
        return Preloaded(texts=(*known.texts, *filter(None, [since])), directories=known.directories)

    def commands(self) -> tuple[Skill | TypedPrompt, ...]:
        """Return everything the user can type as a slash command."""
        offered = (each for source in self.prompts for each in source.list())
        return (*self.skills.for_person(), *offered)

    def tool(self) -> Tool:
        return skill_tool(self.invoking.use, skill_list(self.skills.for_model()))

    def remarks(self) -> tuple[str, ...]:
        """Return notices about unusable skills and omitted instructions."""
        return (*self.skills.unusable(), *self.instructions.notes)
