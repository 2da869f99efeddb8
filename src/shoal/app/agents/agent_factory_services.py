"""Services from which every agent of a session is created."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from shoal.agent.agent_runner import AgentRunner, EmitEvent, LoopLimits
from shoal.app.agents.agent_memory import AgentMemory
from shoal.app.agents.agent_transcripts import AgentTranscriptStore
from shoal.app.hooks.agent_hooks import HookRegistry
from shoal.app.isolation.agent_workspace import WorkspaceAllocator
from shoal.app.mcp.mcp_servers import AgentTools
from shoal.app.skills.skill_invoker import PreloadedSkills
from shoal.core.agent_definitions import AgentDefinition, ToolSelection
from shoal.core.agents import ShellCommandResult, SpawnRequest
from shoal.core.budget import Budget
from shoal.core.clock import Clock
from shoal.core.ids import AgentId, IdGenerator
from shoal.core.ports import Model
from shoal.core.tools import Tool
from shoal.runs.inbox_queue import SharedInboxQueue


class AgentFactoryServices(Struct, frozen=True, kw_only=True):
    """Services from which every agent of a session is created."""

    transcripts: AgentTranscriptStore
    output_directory: Path
    find_definition: Callable[[str], AgentDefinition]
    """Raises `UnknownAgentType` or `InvalidAgentDefinition`."""
    resolve_model: Callable[[AgentRunner, SpawnRequest, AgentDefinition], Awaitable[Model]]
    build_system_prompt: Callable[[str, Path, bool], str]
    """Builds the system prompt from an agent's own part, its directory, and whether to add instructions."""
    resolve_memory: Callable[[AgentDefinition, ToolSelection, Iterable[str]], AgentMemory | None]
    """Raises `AgentRequestRefused`."""
    preload_skills: Callable[[AgentDefinition], PreloadedSkills]
    """Preloads the skills of a definition. Raises `AgentRequestRefused`."""
    tools: Mapping[str, Tool]
    open_tools: Callable[[AgentDefinition, Sequence[str]], Awaitable[AgentTools]]
    """Opens the tools of one agent, given the tools it had before. Raises `AgentRequestRefused`."""
    lead_only_tools: Collection[str]
    """Tools that only the lead has, and its forks see."""
    workspace_allocator: WorkspaceAllocator
    hooks: HookRegistry
    loop_limits: LoopLimits
    budget: Budget
    queue: SharedInboxQueue
    run_acceptance: Callable[[str, AgentRunner], Awaitable[tuple[ShellCommandResult, str]]]
    """Runs an acceptance command for an agent."""
    clean_up_agent: Callable[[AgentId], Awaitable[None]]
    """Cleans up after an agent has ended."""
    publish_event: EmitEvent
    clock: Clock
    ids: IdGenerator
