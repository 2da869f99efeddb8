"""What the agents of a session are told beside their jobs: skills, commands, and instructions from files."""

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
    """Where further commands come from."""

    def for_newcomer(self, definition: Definition) -> Preloaded:
        """What an agent begins with. Raises `AgentRefused` for a skill that is not there."""
        known = self.invoking.preloaded(definition.skills, definition.name)
        since = self.news.since_start() if definition.tools is None else ""
        return Preloaded(texts=(*known.texts, *filter(None, [since])), directories=known.directories)

    def commands(self) -> tuple[Skill | TypedPrompt, ...]:
        """All that a person can type with a slash in front."""
        offered = (each for source in self.prompts for each in source.list())
        return (*self.skills.for_person(), *offered)

    def tool(self) -> Tool:
        return skill_tool(self.invoking.use, skill_list(self.skills.for_model()))

    def remarks(self) -> tuple[str, ...]:
        """What a person should know before they miss something."""
        return (*self.skills.unusable(), *self.instructions.notes)
