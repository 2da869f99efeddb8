"""Changes to the agent and skill lists, reported once, after the cached prefix of the prompt."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from shoal.app.definitions.agent_catalog import AgentCatalog
from shoal.app.model_notices import format_session_notice
from shoal.app.skills.skill_catalog import SkillAndCommandLibrary
from shoal.core.agents.agent_definitions import AgentDefinition
from shoal.core.extensions.skills import Skill
from shoal.core.text.control_tags import escape_control_tags
from shoal.wire.notification_text import format_system_reminder

_MAX_DESCRIPTION_CHARS = 400
"""Maximum characters of one description."""
_MAX_LINES = 40
_TOOLS = {"agents": "Agent", "skills": "Skill"}


class AgentAndSkillChangeReporter:
    """Reports changes against the lists in the tool descriptions, which stay fixed for caching."""

    def __init__(self, definitions: AgentCatalog, skills: SkillAndCommandLibrary) -> None:
        self._agents = _CatalogDescriptionCache(definitions.all)
        self._list_cached_agents = definitions.list_cached_definitions
        self._skills = _CatalogDescriptionCache(skills.list_skills_and_commands)
        self._initial = self._describe_catalogs()
        self._reported = self._initial

    def describe_new_changes(self, tools: Collection[str]) -> str:
        """Return the changes since the last call for an agent with these tools; empty if there are none."""
        before, self._reported = self._reported, self._describe_catalogs()
        usable = {
            noun: descriptions for noun, descriptions in self._reported.items() if _TOOLS[noun] in tools
        }
        return _format_catalog_changes(before, usable)

    def describe_changes_since_start(self) -> str:
        """Return the changes for a new agent, which has read the lists of the session start.

        Its own definition was just looked up, so the agent list is current.
        """
        now = {
            "agents": self._agents.describe_items(self._list_cached_agents()),
            "skills": self._skills.refresh(),
        }
        return _format_catalog_changes(self._initial, now)

    def _describe_catalogs(self) -> dict[str, Mapping[str, str]]:
        return {"agents": self._agents.refresh(), "skills": self._skills.refresh()}


class _CatalogDescriptionCache:
    """Names and descriptions; the same object while nothing changes."""

    def __init__(self, list_items: Callable[[], tuple[AgentDefinition | Skill, ...]]) -> None:
        self._list_items = list_items
        self._items: tuple[AgentDefinition | Skill, ...] | None = None
        self._descriptions: Mapping[str, str] = {}

    def refresh(self) -> Mapping[str, str]:
        return self.describe_items(self._list_items())

    def describe_items(self, items: tuple[AgentDefinition | Skill, ...]) -> Mapping[str, str]:
        if items is not self._items:
            visible = (each for each in items if not isinstance(each, Skill) or each.for_model)
            self._items, self._descriptions = items, {each.name: each.description for each in visible}
        return self._descriptions


def _format_catalog_changes(
    before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]
) -> str:
    lines: list[str] = []
    for noun, current in now.items():
        previous = before[noun]
        if current is previous:
            continue
        new = [
            f"- {name}: {_shorten_description(text)}"
            for name, text in current.items()
            if previous.get(name) != text
        ]
        removed = [f"- {name}" for name in previous if name not in current]
        if new:
            lines += [format_session_notice("changed", noun=noun), *_limit_lines(new)]
        if removed:
            lines += [format_session_notice("removed", noun=noun), *_limit_lines(removed)]
    if not lines:
        return ""
    return format_system_reminder(escape_control_tags("\n".join(lines)))


def _limit_lines(lines: list[str]) -> list[str]:
    return (
        lines if len(lines) <= _MAX_LINES else [*lines[:_MAX_LINES], f"… and {len(lines) - _MAX_LINES} more"]
    )


def _shorten_description(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_DESCRIPTION_CHARS else f"{line[: _MAX_DESCRIPTION_CHARS - 1]}…"
