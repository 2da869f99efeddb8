"""Loads the skills, instructions and prompts of a session's agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shoal.app.config.session_config import SessionConfig
from shoal.app.definitions.instructions import LoadedInstructionFiles, load_instructions
from shoal.app.session.lead_resources import LeadResources
from shoal.app.skills.catalog_changes import AgentAndSkillChangeReporter
from shoal.app.skills.knowledge import SkillsAndInstructions
from shoal.app.skills.skill_catalog import load_skills
from shoal.app.skills.skill_invoker import SkillInvoker
from shoal.app.skills.skill_trust import SkillTrustDecisionStore
from shoal.core.skills import ExternalSlashPromptSource
from shoal.core.tools import Tool


def load_skills_and_instructions(
    config: SessionConfig,
    lead_resources: LeadResources,
    *,
    tools: Mapping[str, Tool],
    prompts: list[ExternalSlashPromptSource],
    window: int,
    note: Callable[[str], None],
) -> SkillsAndInstructions:
    """Load the knowledge; `window` is the context window of the lead's model in tokens."""
    settings, plugins, cwd = config.settings, config.plugins, lead_resources.workspace.root
    skills = load_skills(cwd=cwd, home=settings.home)
    for namespace, directory in plugins.list_skill_dirs():
        skills.add_plugin_skills(namespace, skills=directory)
    for namespace, directory in plugins.list_command_dirs():
        skills.add_plugin_skills(namespace, commands=directory)
    trust = SkillTrustDecisionStore(settings.home, cwd)
    instructions = LoadedInstructionFiles()
    if settings.own.instructions:
        is_hidden = lead_resources.permissions.build_unreadable_file_filter("Read", str(cwd))
        # One character per token of the window is about a quarter of the window.
        instructions = load_instructions(cwd=cwd, home=settings.home, is_hidden=is_hidden, max_chars=window)
    return SkillsAndInstructions(
        skills=skills,
        invoker=SkillInvoker(skills, trust, tools=tools, cwd=cwd, note=note),
        catalog_changes=AgentAndSkillChangeReporter(config.definitions, skills),
        instructions=instructions,
        prompts=prompts,
    )
