"""Blueprint of an agent: its future identity and permissions."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.agent.agent_runner import LoopLimits
from shoal.agent.conversation import Conversation
from shoal.app.agent_permissions import get_permission_engine
from shoal.app.agents.member_setup import resolve_member_identity
from shoal.app.agents.spawn_requests import parse_spawn_permission_mode
from shoal.app.isolation.agent_workspace import AgentWorkspace
from shoal.app.mcp.mcp_servers import AgentTools
from shoal.app.skills.skill_invoker import PreloadedSkills
from shoal.core.agents.agent_definitions import AgentDefinition, ToolSelection
from shoal.core.agents.identity import AgentIdentity
from shoal.core.agents.subagent_metadata import SubagentMetadata
from shoal.core.agents.subagents import SpawnRequest
from shoal.core.ids import AgentId
from shoal.core.ports import Model, Transcript
from shoal.policy.agent_restrictions import StoredToolRestrictions
from shoal.policy.memory_directory import AgentMemoryDirectory
from shoal.policy.permission_engine import PermissionEngine
from shoal.policy.permission_rules import parse_permission_rule
from shoal.runs.prepared_agent import AgentPreparationRequest


class AgentBlueprint(Struct, frozen=True, kw_only=True):
    """Everything needed to create an agent."""

    new_agent: AgentPreparationRequest
    request: SpawnRequest | None = None
    """Request it was spawned with; None for a resumed agent."""
    preloaded: PreloadedSkills = PreloadedSkills()
    definition: AgentDefinition
    facts: SubagentMetadata
    resumed: bool = False
    agent_tools: AgentTools
    toolset: ToolSelection
    model: Model
    agent_workspace: AgentWorkspace
    loop_limits: LoopLimits
    transcript: Transcript
    conversation: Conversation


def build_agent_identity(blueprint: AgentBlueprint) -> AgentIdentity:
    facts, parent, agent = blueprint.facts, blueprint.new_agent.parent.identity, blueprint.new_agent.agent
    return resolve_member_identity(
        AgentIdentity(
            session=parent.session,
            agent=agent,
            name=facts.name or agent,
            team=parent.team,
            color=facts.color,
            parent=AgentId(facts.origin.parent),
            kind=facts.agent_type,
            depth=facts.origin.depth,
        ),
        blueprint.new_agent.assignment,
        facts.mode,
    )


def build_agent_permissions(blueprint: AgentBlueprint) -> PermissionEngine:
    """Build its permissions; a resumed agent's come from its resumer, restricted as they were."""
    agent_workspace, toolset, facts = blueprint.agent_workspace, blueprint.toolset, blueprint.facts
    resumed, stored = blueprint.resumed, facts.restrictions
    permissions = get_permission_engine(blueprint.new_agent.parent).create_child(
        agent_workspace.workspace,
        mode=parse_spawn_permission_mode(facts.mode),
        allowed_tools=(blueprint.definition.capabilities.tools or ()) if toolset.only and not resumed else (),
        denied_tools=() if resumed else toolset.never,
        main_checkout=agent_workspace.main_checkout,
        stored=StoredToolRestrictions(only=stored.narrowed, never=stored.denied) if resumed else None,
        sandbox=agent_workspace.sandbox_selection,
    )
    _lend_permissions(permissions, blueprint.request, blueprint.preloaded)
    if stored.memory:
        permissions.use_memory_directory(
            AgentMemoryDirectory(directory=stored.memory, only=stored.memory_tools)
        )
        agent_workspace.workspace.allow_writes(Path(stored.memory))
    return permissions


def store_restrictions(blueprint: AgentBlueprint, permissions: PermissionEngine) -> AgentBlueprint:
    """Return the blueprint with the restrictions of a new agent in its metadata, for its resumption."""
    facts, found = blueprint.facts, permissions.restrictions
    restrictions = replace(facts.restrictions, narrowed=found.only, denied=found.never)
    return replace(blueprint, facts=replace(facts, restrictions=restrictions))


def _lend_permissions(
    permissions: PermissionEngine, request: SpawnRequest | None, preloaded: PreloadedSkills
) -> None:
    """Lend permissions while the agent works; a resumed agent has to ask."""
    if preloaded.directories:
        permissions.allow_reading(*preloaded.directories)
    if request is not None and request.lent:
        permissions.grant_allow_rules(
            (parse_permission_rule(entry, request.description) for entry in request.lent), lasting=True
        )
