"""Texts for the members of a team and their lead, from the files in `prompts`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shoal.core.names import AgentName, TeamName
from shoal.core.teams.roster import TeamRoster
from shoal.core.text.model_texts import ModelTexts, fill_template

MAX_NAMED_MEMBERS = 50
"""Maximum number of members named in the prompt; others become known by their messages."""
_TEXTS = ModelTexts(Path(__file__).parent / "prompts")


def format_team_notice(key: str, /, **values: object) -> str:
    """Return a section of `notices.md` with its placeholders filled in."""
    return _TEXTS.fill_section("notices", key, **values)


def build_team_prompt_section(team: TeamRoster, name: AgentName) -> str:
    """Build the team section of the system prompt, with the roster as the member joins."""
    section = fill_template(_TEXTS.load_text("member").strip(), name=name, team=team.name)
    lines = [section, "", f"The team {team.name}"]
    if team.description:
        lines.append(team.description)
    lines += [f"- {each.name} ({each.agent_type})" for each in team.members[:MAX_NAMED_MEMBERS]]
    if unnamed_count := len(team.members[MAX_NAMED_MEMBERS:]):
        lines.append(f"- and {unnamed_count} more")
    return "\n".join(lines)


def format_unknown_member_error(name: str, team: TeamName, names: Sequence[AgentName]) -> str:
    listing = ", ".join(names) or "nobody yet"
    return format_team_notice("unknown_member", team=team, name=repr(name), names=listing)
