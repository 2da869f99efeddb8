"""Trust in the tools that a skill allows: a user's skill is trusted, a project's only after an answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from shoal.app.settings.settings_listing import EscalationTrustRow
from shoal.app.settings.settings_trust import TrustState
from shoal.app.skills.skill_catalog import SkillAndCommandLibrary
from shoal.core.clock import SystemClock
from shoal.core.errors import StateFileError
from shoal.core.extensions.skills import Skill
from shoal.stores.files.home.trust_file import ProjectTrustFile
from shoal.wire.trust_codec import TrustDecision


class SkillTrustDecisionStore:
    """Answers of the user about the skill files of one project, each for a version of the file."""

    def __init__(self, home: Path, project: Path) -> None:
        self._file = ProjectTrustFile(home)
        self._project = project

    def read_skill_trust(self, skill: Skill) -> TrustState:
        """Return the trust in a skill; if in doubt, a skill is untrusted."""
        if skill.source.is_trusted:
            return "trusted"
        try:
            decision = self._file.get_trust_decision(self._project, _make_trust_key(skill))
        except StateFileError:
            return "unasked"
        if decision is None or decision.digest != skill.digest:
            return "unasked"
        return "trusted" if decision.trusted else "refused"

    def list_granted_tools(self, skill: Skill) -> tuple[str, ...]:
        """Return the entries of `allowed-tools` that need no question."""
        return skill.allowed_tools if self.read_skill_trust(skill) == "trusted" else ()

    def save_decisions(self, skills: Sequence[Skill], *, trusted: bool) -> None:
        """Store the user's answer about these skills in their current version. Raises `StateFileError`."""
        now = SystemClock().now()
        decisions = {
            _make_trust_key(skill): TrustDecision(digest=skill.digest, trusted=trusted, at=now)
            for skill in skills
        }
        if decisions:
            self._file.store_trust_decisions(self._project, decisions)

    def list_skill_trust_rows(self, skills: Sequence[Skill]) -> Iterator[EscalationTrustRow]:
        for skill in skills:
            parts = {"allowed-tools": list(skill.allowed_tools), "hooks": msgspec.to_builtins(skill.hooks)}
            for key, value in parts.items():
                if value:
                    yield EscalationTrustRow(
                        key=f"{skill.kind} {skill.name}: {key}",
                        value=value,
                        origin=skill.source.locate_field(key.replace("-", "_")) or str(skill.source),
                        trust=self.read_skill_trust(skill),
                    )


def find_escalating_skills(skills: SkillAndCommandLibrary) -> tuple[Skill, ...]:
    """Return skills that allow tools or run hooks and may come from anyone."""
    found = (*skills.skills.all(), *skills.commands.all())
    return tuple(
        skill for skill in found if (skill.allowed_tools or skill.hooks) and not skill.source.is_trusted
    )


def _make_trust_key(skill: Skill) -> str:
    return f"{skill.kind}:{skill.source}"
