"""Whether what a skill or command would allow counts: a person's own does, a project's only when trusted."""

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
    """What people said about the files of one project, each as it was then."""

    def __init__(self, home: Path, project: Path) -> None:
        self._file = TrustFile(home)
        self._project = project

    def of(self, skill: Skill) -> Trust:
        """In doubt it is not trusted."""
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
        """What of its `allowed-tools` may be used without asking."""
        return skill.allowed_tools if self.of(skill) == "trusted" else ()

    def answer(self, skills: Sequence[Skill], *, trusted: bool) -> None:
        """Keep a person's word on these, as they are. Raises `StoreError`."""
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
    """Those that would allow something and may come from anyone."""
    found = (*skills.skills.all(), *skills.commands.all())
    return tuple(skill for skill in found if skill.allowed_tools and not skill.source.trusted)


def _key(skill: Skill) -> str:
    return f"{skill.kind}:{skill.source}"
