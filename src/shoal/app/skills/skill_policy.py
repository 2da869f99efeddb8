"""Settings about skills: which are offered to whom, and whether the commands in their text run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.extensions.skills import Skill
from shoal.wire.settings_codec import SettingsDocument

_OVERRIDES = ("on", "name-only", "user-invocable-only", "off")


class SkillPolicy(Struct, frozen=True, kw_only=True):
    """Overrides by name of a skill, and whether the shell commands in the text of a skill run."""

    overrides: Mapping[str, str] = {}
    runs_commands: bool = True
    problems: tuple[str, ...] = ()

    def apply_to_skill(self, skill: Skill) -> Skill | None:
        """Return the skill as the settings allow it; None if it is off. Plug-ins have their own settings."""
        override = "on" if skill.source.kind == "plugin" else self.overrides.get(skill.name, "on")
        if override == "on":
            return skill
        if override == "name-only":
            return replace(skill, description="")
        return replace(skill, for_model=False) if override == "user-invocable-only" else None


def load_skill_policy(documents: Sequence[SettingsDocument]) -> SkillPolicy:
    """Load the policy from settings files, highest precedence first. An unknown value turns a skill off."""
    overrides: dict[str, str] = {}
    problems: list[str] = []
    for document in reversed(documents):
        for name, value in (document.raw.get("skillOverrides") or {}).items():
            if value not in _OVERRIDES:
                location = document.locate_key(("skillOverrides", name))
                choices = ", ".join(_OVERRIDES)
                problems.append(
                    f"{location}: skillOverrides.{name}: expected {choices}; the skill is disabled"
                )
            overrides[name] = value if value in _OVERRIDES else "off"
    runs_commands = not any(document.raw.get("disableSkillShellExecution") is True for document in documents)
    return SkillPolicy(overrides=overrides, runs_commands=runs_commands, problems=tuple(problems))
