"""Loads the skills, instructions and notes of a session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shoal.app.config.session_config import SessionConfig
from shoal.app.definitions.instructions import (
    LoadedInstructionFiles,
    list_managed_instruction_files,
    load_instructions,
)
from shoal.app.definitions.output_styles import choose_output_style
from shoal.app.definitions.path_instructions import PathInstructionFactory
from shoal.app.definitions.project_memory import (
    find_project_memory_directory,
    read_instruction_exclusions,
    read_memory_index,
)
from shoal.app.definitions.workflow_files import WorkflowFiles
from shoal.app.hooks.agent_hooks import HookRegistry
from shoal.app.mcp.mcp_servers import McpPromptCommands, SessionMcpServerManager
from shoal.app.model_notices import format_session_notice
from shoal.app.runtime.event_bus import EventBus
from shoal.app.settings.managed_switches import is_plugin_only
from shoal.app.settings.settings import Settings
from shoal.app.skills.catalog_changes import AgentAndSkillChangeReporter
from shoal.app.skills.knowledge import SkillsAndInstructions
from shoal.app.skills.mentions import MentionExpander
from shoal.app.skills.skill_catalog import SkillAndCommandLibrary, load_skills, load_skills_from_paths
from shoal.app.skills.skill_invoker import SkillInvoker
from shoal.app.skills.skill_policy import load_skill_policy
from shoal.app.skills.skill_trust import SkillTrustDecisionStore
from shoal.core.extensions.skills import is_full_or_unprefixed_skill_name
from shoal.core.text.filenames import escape_filename
from shoal.core.text.name_suggestions import suggest_name
from shoal.policy.permission_engine import PermissionEngine
from shoal.runs.running_agents import RunningAgents


def load_skills_and_instructions(
    config: SessionConfig,
    permissions: PermissionEngine,
    hooks: HookRegistry,
    servers: SessionMcpServerManager,
    running_agents: RunningAgents,
    window: int,
    events: EventBus,
) -> SkillsAndInstructions:
    """Load skills and instructions; `window` is the context window of the lead's model in tokens."""
    settings, cwd = config.settings, hooks.project
    skills = _load_session_skills(config, cwd)
    only = config.options.skills
    unknown_skills = () if only is None else _restrict_skills(skills, only)
    trust = SkillTrustDecisionStore(settings.home, cwd)
    instructions = LoadedInstructionFiles()
    path_instructions, memory = None, ""
    sources = config.options.setting_sources
    if settings.own.instructions and (sources is None or sources):
        is_hidden = permissions.build_unreadable_file_filter("Read", str(cwd))
        exclusions = read_instruction_exclusions(settings)
        # One character per token of the window is about a quarter of the window.
        instructions = load_instructions(
            cwd=cwd,
            home=settings.home,
            is_hidden=is_hidden,
            max_chars=window,
            exclusions=exclusions,
            sources=sources,
            managed=list_managed_instruction_files(),
        )
        if sources is None or "project" in sources:
            path_instructions = PathInstructionFactory(
                project=cwd, home=settings.home, loaded=instructions, max_chars=window, exclusions=exclusions
            )
        if sources is None or "user" in sources:
            memory = _load_project_memory(settings, cwd, permissions)
    return SkillsAndInstructions(
        skills=skills,
        # A member may run where some skills of its lead do not exist.
        unknown_skills=unknown_skills if config.options.membership is None else (),
        invoker=SkillInvoker(
            skills,
            trust,
            running_agents=running_agents,
            cwd=cwd,
            hooks=hooks,
            note=events.note,
        ),
        catalog_changes=AgentAndSkillChangeReporter(config.definitions, skills),
        instructions=instructions,
        mentions=MentionExpander(config.definitions, servers),
        path_instructions=path_instructions,
        output_style=choose_output_style(settings, cwd, config.plugins.list_style_dirs()),
        memory=memory,
        prompts=(McpPromptCommands(servers),),
        workflows=_find_workflow_files(config, cwd),
    )


def _find_workflow_files(config: SessionConfig, cwd: Path) -> WorkflowFiles | None:
    options = config.options
    if not options.slash_commands:
        return None
    sources = () if options.bare else options.setting_sources
    return WorkflowFiles(home=config.settings.home, project=cwd, plugins=config.plugins, sources=sources)


def _load_project_memory(settings: Settings, cwd: Path, permissions: PermissionEngine) -> str:
    """Return the notes about the project for the lead, which may then read their directory."""
    directory = find_project_memory_directory(settings, cwd)
    if directory is None or not (index := read_memory_index(directory)):
        return ""
    permissions.allow_reading(directory)
    return format_session_notice("project_memory", directory=escape_filename(directory), index=index)


def _load_session_skills(config: SessionConfig, cwd: Path) -> SkillAndCommandLibrary:
    options = config.options
    if not options.slash_commands:
        return load_skills_from_paths(())
    policy = load_skill_policy(config.settings.documents)
    skills = (
        load_skills_from_paths((), policy)
        if options.bare or is_plugin_only(config.settings.documents, "skills")
        else load_skills(cwd=cwd, home=config.settings.home, policy=policy, sources=options.setting_sources)
    )
    skills.add_plugins(config.plugins)
    return skills


def _restrict_skills(library: SkillAndCommandLibrary, names: Sequence[str]) -> tuple[str, ...]:
    """Leave only the named skills; return a sentence about each name that no skill has."""
    available = [skill.name for skill in library.list_skills_and_commands()]
    suggestions = {
        name: suggest_name(name, available) if available else " There are no skills."
        for name in names
        if not any(is_full_or_unprefixed_skill_name(name, each) for each in available)
    }
    library.restrict_to_names(names)
    return tuple(f"There is no skill named {name!r}.{hint}" for name, hint in suggestions.items())
