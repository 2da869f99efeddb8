"""Loads the skills, instructions and prompts of a session's agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shoal.app.basis.basis import Basis
from shoal.app.definitions.instructions import Instructions, instructions_for
from shoal.app.session.reach import Reach
from shoal.app.skills.invoking import Invoking
from shoal.app.skills.knowledge import Knowledge
from shoal.app.skills.news import News
from shoal.app.skills.skills import skills_for
from shoal.app.skills.trust import SkillTrust
from shoal.core.skills import TypedPrompts
from shoal.core.tools import Tool


def gathered(
    basis: Basis,
    reach: Reach,
    *,
    tools: Mapping[str, Tool],
    prompts: list[TypedPrompts],
    window: int,
    note: Callable[[str], None],
) -> Knowledge:
    """Load the knowledge; `window` is the context window of the lead's model in tokens."""
    settings, plugins, cwd = basis.settings, basis.plugins, reach.workspace.root
    skills = skills_for(cwd=cwd, home=settings.home)
    for space, place in plugins.skill_dirs():
        skills.add_plugin(space, skills=place)
    for space, place in plugins.command_dirs():
        skills.add_plugin(space, commands=place)
    trust = SkillTrust(settings.home, cwd)
    told = Instructions()
    if settings.own.instructions:
        hidden = reach.permissions.unreadable("Read", str(cwd))
        # One character per token of the window is about a quarter of the window.
        told = instructions_for(cwd=cwd, home=settings.home, hidden=hidden, room=window)
    return Knowledge(
        skills=skills,
        invoking=Invoking(skills, trust, tools=tools, cwd=cwd, note=note),
        news=News(basis.definitions, skills),
        instructions=told,
        prompts=prompts,
    )
