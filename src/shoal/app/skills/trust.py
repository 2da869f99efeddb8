"""Trust in the tools that a skill allows: a user's skill is trusted, a project's only after an answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from shoal.app.settings.config_view import Trusted
from shoal.app.settings.trust import Trust
from shoal.app.skills.skills import Skills
from shoal.core.clock import SystemClock
from shoal.core.errors import StoreError
from shoal.core.skills import Skill
from shoal.stores.files.trust import TrustFile
from shoal.wire.trust import Said


class SkillTrust:
    """Answers of the user about the skill files of one project, each for a version of the file."""

    def __init__(self, home: Path, project: Path) -> None:
        self._file = TrustFile(home)
        self._project = project

    def of(self, skill: Skill) -> Trust:
        """Return the trust in a skill; a skill is untrusted if in doubt."""
        if skill.source.trusted:
            return "trusted"
        try:
            said = self._file.said(self._project, _key(skill))
        except StoreError:
            return "unasked"
        if said is None or said.digest != skill.digest:
            return "unasked"
        return "trusted" if said.trusted else "refused"

    def granted(self, skill: Skill) -> tuple[str, ...]:
        """Return the entries of `allowed-tools` that need no question."""
        return skill.allowed_tools if self.of(skill) == "trusted" else ()

    def answer(self, skills: Sequence[Skill], *, trusted: bool) -> None:
        """Store the user's answer about these skills in their current version. Raises `StoreError`."""
        now = SystemClock().now()
        said = {_key(skill): Said(digest=skill.digest, trusted=trusted, at=now) for skill in skills}
        if said:
            self._file.say(self._project, said)

    def shown(self, skills: Sequence[Skill]) -> Iterator[Trusted]:
        for skill in skills:
            yield Trusted(
                key=f"{skill.kind} {skill.name}: allowed-tools",
                value=list(skill.allowed_tools),
                origin=skill.source.place("allowed_tools") or str(skill.source),
                trust=self.of(skill),
            )


def widening_skills(skills: Skills) -> tuple[Skill, ...]:
    """Return skills that allow tools and may come from anyone."""
    found = (*skills.skills.all(), *skills.commands.all())
    return tuple(skill for skill in found if skill.allowed_tools and not skill.source.trusted)


def _key(skill: Skill) -> str:
    return f"{skill.kind}:{skill.source}"
