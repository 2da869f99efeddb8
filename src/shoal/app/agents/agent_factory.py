"""Prepares agents: the model, tools, permissions, workspace and transcript of each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from shoal.agent.agent_runner import (
    AgentContextSources,
    AgentEnvironment,
    AgentRunner,
    LoopLimits,
    SentToolSchemas,
)
from shoal.agent.conversation import Conversation
from shoal.agent.forks import FORK_KIND, build_fork_prompt, is_forked_agent
from shoal.app.agent_permissions import get_permission_engine
from shoal.app.agents.agent_blueprint import (
    AgentBlueprint,
    build_agent_identity,
    build_agent_permissions,
    store_restrictions,
)
from shoal.app.agents.agent_extras import ToolsetCache, add_program_tools, get_program_extras
from shoal.app.agents.agent_memory import AgentMemory, resolve_agent_memory
from shoal.app.agents.agent_transcripts import AgentTranscriptStore, RestoredAgentState
from shoal.app.agents.member_setup import (
    build_agent_role_prompt,
    limit_tools_to_session,
    resolve_member_permission_mode,
    resolve_member_tools,
)
from shoal.app.agents.spawn_requests import (
    FORK_DEFINITION,
    build_agent_first_prompt,
    change_agent_directory,
    parse_spawn_permission_mode,
    require_agent_start_allowed,
    require_valid_isolation,
    resolve_loop_limits,
)
from shoal.app.config.system_prompt import build_system_prompt, format_settings_instructions
from shoal.app.config.tool_selection import remove_denied_tools
from shoal.app.definitions.path_instructions import AgentPathInstructions
from shoal.app.hooks.agent_hooks import HookSubjectAgent, describe_agent_hooks
from shoal.app.isolation.agent_workspace import AgentWorkspace
from shoal.app.mcp.mcp_servers import AgentTools
from shoal.app.model_notices import format_session_notice
from shoal.app.models.child_model import format_qualified_model_name
from shoal.app.skills.skill_invoker import PreloadedSkills
from shoal.core.agents.agent_definitions import AgentDefinition, ToolSelection
from shoal.core.agents.subagent_metadata import SubagentMetadata, SubagentOrigin, SubagentRestrictions
from shoal.core.agents.subagents import (
    ResolvedAgentSettings,
    RetainedWorktreeWork,
    ShellCommandResult,
    SpawnRequest,
)
from shoal.core.budgets.agent_budgets import AgentBudget
from shoal.core.budgets.limits import BudgetLimits
from shoal.core.conversation.messages import Message
from shoal.core.errors import (
    AgentRequestRefused,
    AgentUnusable,
    BudgetError,
    InvalidAgentDefinition,
    ModelError,
    NoModelConfigured,
    SettingsError,
    UnknownAgentType,
)
from shoal.core.events import AgentStarted
from shoal.core.extensions.mcp_servers import list_mcp_servers_of_tools
from shoal.core.ids import AgentId, EntryId
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.ports import Model
from shoal.policy.memory_directory import AgentMemoryDirectory
from shoal.policy.mode_inheritance import get_fork_permission_mode, narrow_child_permission_mode
from shoal.policy.permission_engine import PermissionEngine
from shoal.policy.rule_names import refuse_misspelled_rules
from shoal.runs.prepared_agent import (
    AcceptanceCheck,
    AgentPreparationRequest,
    PreparedAgent,
    TeammateMembership,
)
from shoal.runs.progress_monitor import ProgressMonitor
from shoal.tools.schedule_tools import SCHEDULE_TOOLS
from shoal.tools.structured_output_tool import STRUCTURED_OUTPUT
from shoal.tools.team_tools import TEAM_TOOLS
from shoal.tools.worktree_tools import WORKTREE_TOOLS
from shoal.workspaces.local_workspace import LocalWorkspace

if TYPE_CHECKING:
    from shoal.app.runtime.runtime import Runtime

# An agent ends with its job, so its schedule would have no recipient.
LEAD_ONLY_TOOLS = (*SCHEDULE_TOOLS, *TEAM_TOOLS, STRUCTURED_OUTPUT, *WORKTREE_TOOLS)
"""Tools that only the lead can use, although its forks see them."""


class _ResolvedSpawnRequest(Struct, frozen=True, kw_only=True):
    """A resolved spawn request, before anything is created for it."""

    request: SpawnRequest
    definition: AgentDefinition
    agent_tools: AgentTools
    toolset: ToolSelection
    loop_limits: LoopLimits
    model: Model
    preloaded: PreloadedSkills = PreloadedSkills()
    memory: AgentMemory | None = None


class _InitialAgentState(Struct, frozen=True, kw_only=True):
    """Initial state of an agent, from its definition or from the parent that it forks."""

    mode: PermissionMode
    system: str
    color: str | None
    background: bool
    memory: AgentMemoryDirectory | None
    history: Sequence[Message] = ()
    fork_of: EntryId | None = None
    """Last entry of that history."""
    previous_entry: str = ""
    """Last entry of a former agent with its id."""


class AgentFactory:
    def __init__(self, runtime: Runtime) -> None:
        config = runtime.config
        self._runtime = runtime
        self.transcripts = AgentTranscriptStore(
            config.history.store, clock=runtime.clock, ids=runtime.agents.ids, report=runtime.events.note
        )
        self._toolset_cache = ToolsetCache(LEAD_ONLY_TOOLS)
        self._model_resolver = runtime.models
        self._get_system_prompt = cache(self._build_agent_system_prompt)
        self._output_directory = f"{runtime.store.directory}/tasks"

    def get_agent_output_path(self, agent: AgentId) -> str:
        return f"{self._output_directory}/{agent}.output"

    def create_progress_monitor(self, agent: AgentId) -> ProgressMonitor:
        return ProgressMonitor(
            self.get_agent_output_path(agent),
            self._runtime.events.publish_event,
            is_kept=self.transcripts.is_persistent,
        )

    async def prepare_new_agent(
        self, request: SpawnRequest, new_agent: AgentPreparationRequest
    ) -> PreparedAgent:
        parent = new_agent.parent
        definition = self._find_agent_definition(request.kind or "")
        require_agent_start_allowed(parent, definition.name)
        require_valid_isolation(definition, request, is_on_machine=self._is_remote_agent(new_agent.agent))
        agent_tools = await self._prepare_agent_tools(new_agent, definition, ())
        async with agent_tools.close_on_failure():
            return await self._prepare_new_agent_with_tools(request, new_agent, definition, agent_tools)

    async def _prepare_agent_tools(
        self, new_agent: AgentPreparationRequest, definition: AgentDefinition, names: Sequence[str]
    ) -> AgentTools:
        """Return the tools for an agent, including those that only the program has."""
        agent_tools = await self._runtime.servers.prepare_agent_tools(
            definition, new_agent.parent.environment.session_tools, names
        )
        extras = get_program_extras(self._runtime, definition)
        # A teammate reports by mail, and never with an answer.
        output = None if new_agent.assignment is not None else new_agent.output or extras.output
        return add_program_tools(agent_tools, extras.tools, output)

    async def _prepare_new_agent_with_tools(
        self,
        request: SpawnRequest,
        new_agent: AgentPreparationRequest,
        definition: AgentDefinition,
        agent_tools: AgentTools,
    ) -> PreparedAgent:
        toolset = self._resolve_toolset(definition, new_agent.assignment, agent_tools)
        memory = resolve_agent_memory(
            definition,
            toolset,
            agent_tools.tools,
            home=self._runtime.settings.home,
            project=self._runtime.config.cwd,
        )
        spawn_plan = _ResolvedSpawnRequest(
            request=request,
            definition=definition,
            agent_tools=agent_tools,
            toolset=agent_tools.add_output_tool_name(
                limit_tools_to_session(
                    toolset if memory is None else replace(toolset, names=memory.tools),
                    self._runtime.options.available_tools,
                    new_agent.assignment,
                )
            ),
            loop_limits=resolve_loop_limits(self._runtime.lead.loop_limits, definition, request),
            model=await self._resolve_agent_model(new_agent.parent, request, definition),
            preloaded=self._runtime.knowledge.preload_agent_skills(definition),
            memory=memory,
        )
        agent_workspace = await self._allocate_agent_workspace(
            new_agent, request.isolation or definition.run.isolation
        )
        try:
            return self._prepare_new_agent_in_workspace(spawn_plan, new_agent, agent_workspace)
        except BaseException:
            await agent_workspace.finish()
            raise

    def _prepare_new_agent_in_workspace(
        self,
        spawn_plan: _ResolvedSpawnRequest,
        new_agent: AgentPreparationRequest,
        agent_workspace: AgentWorkspace,
    ) -> PreparedAgent:
        request, definition, assignment = spawn_plan.request, spawn_plan.definition, new_agent.assignment
        workspace, memory = agent_workspace.workspace, spawn_plan.memory
        change_agent_directory(request.cwd, workspace)
        agent_prompt = build_agent_role_prompt(definition, assignment)
        if memory is not None:
            agent_prompt = f"{agent_prompt}\n\n{memory.build_prompt_section()}"
        if spawn_plan.agent_tools.output_tool is not None:
            instruction = format_session_notice("output_instruction", tool=STRUCTURED_OUTPUT)
            agent_prompt = f"{agent_prompt}\n\n{instruction}"
        build_system = self._get_system_prompt if assignment is None else self._build_agent_system_prompt
        initial = _InitialAgentState(
            mode=resolve_member_permission_mode(
                get_permission_engine(new_agent.parent), definition, assignment
            ),
            system=build_system(agent_prompt, workspace.cwd, definition.instructions),
            color=definition.color if assignment is None else assignment.color,
            background=definition.run.background,
            memory=None
            if memory is None
            else AgentMemoryDirectory(directory=str(memory.directory), only=memory.added_tools),
            previous_entry="" if assignment is None else self.transcripts.read_last_entry_id(new_agent.agent),
        )
        prompt = build_agent_first_prompt(
            request,
            agent_workspace.agent_notice,
            (*spawn_plan.preloaded.texts, *_list_missing_tool_notices(spawn_plan.toolset)),
        )
        return self._assemble_new_agent(spawn_plan, new_agent, agent_workspace, initial, prompt)

    async def prepare_fork(self, request: SpawnRequest, new_agent: AgentPreparationRequest) -> PreparedAgent:
        runtime, parent = self._runtime, new_agent.parent
        if is_forked_agent(parent):
            raise AgentRequestRefused(format_session_notice("nested_fork"))
        require_agent_start_allowed(parent, FORK_KIND)
        require_valid_isolation(FORK_DEFINITION, request)
        branch = parent.conversation.copy_up_to_last_reply()
        if branch is None:
            raise AgentRequestRefused(format_session_notice("nothing_to_fork"))
        if request.isolation is None:
            agent_workspace = runtime.agents.workspaces.allocate_shared_workspace(new_agent)
            agent_workspace.workspace.copy_read_state(_get_local_workspace(parent))
        else:
            agent_workspace = await runtime.agents.workspaces.allocate_worktree_workspace(
                new_agent, is_fork=True
            )
        try:
            return self._build_forked_agent(request, new_agent, agent_workspace, branch)
        except BaseException:
            await agent_workspace.finish()
            raise

    def _build_forked_agent(
        self,
        request: SpawnRequest,
        new_agent: AgentPreparationRequest,
        agent_workspace: AgentWorkspace,
        branch: tuple[list[Message], EntryId],
    ) -> PreparedAgent:
        parent, permissions, (history, entry) = (
            new_agent.parent,
            get_permission_engine(new_agent.parent),
            branch,
        )
        change_agent_directory(request.cwd, agent_workspace.workspace)
        spawn_plan = _ResolvedSpawnRequest(
            request=request,
            definition=FORK_DEFINITION,
            agent_tools=AgentTools(tools=parent.tools),
            toolset=ToolSelection(names=tuple(parent.tools)),
            loop_limits=replace(parent.limits, max_turns=None),
            model=parent.model,
        )
        initial = _InitialAgentState(
            mode=get_fork_permission_mode(permissions.mode),
            system=parent.system,
            color=parent.identity.color,
            background=True,
            memory=permissions.memory,
            history=history,
            fork_of=entry,
        )
        job = "\n\n".join(filter(None, (agent_workspace.agent_notice, request.prompt)))
        prepared = self._assemble_new_agent(
            spawn_plan, new_agent, agent_workspace, initial, build_fork_prompt(history[-1].tool_uses, job)
        )
        _share_path_instructions(parent, prepared.agent)
        # For the provider's cache of the parent's requests.
        prepared.agent.copy_tools(parent)
        # The provider's count for the parent is better than an estimate.
        prepared.agent.state.context_tokens = parent.state.context_tokens
        return replace(
            prepared, resolved=replace(prepared.resolved, start_tokens=parent.state.context_tokens)
        )

    def _assemble_new_agent(
        self,
        spawn_plan: _ResolvedSpawnRequest,
        new_agent: AgentPreparationRequest,
        agent_workspace: AgentWorkspace,
        initial: _InitialAgentState,
        prompt: Message,
    ) -> PreparedAgent:
        runtime, request, memory = self._runtime, spawn_plan.request, initial.memory
        facts = SubagentMetadata(
            agent_type=spawn_plan.definition.name,
            description=request.description,
            name=request.name or "",
            model=format_qualified_model_name(spawn_plan.model),
            mode=initial.mode,
            system=initial.system,
            tools=spawn_plan.toolset.names,
            cwd=str(agent_workspace.workspace.cwd),
            isolation=request.isolation or spawn_plan.definition.run.isolation,
            worktree=agent_workspace.name,
            color=initial.color,
            background=initial.background,
            thinking_tokens=spawn_plan.loop_limits.thinking_tokens,
            origin=SubagentOrigin(
                parent=new_agent.parent.identity.agent,
                call=new_agent.call,
                depth=new_agent.parent.identity.depth + 1,
                fork_of=initial.fork_of or "",
                after=initial.previous_entry,
            ),
            restrictions=SubagentRestrictions()
            if memory is None
            else SubagentRestrictions(memory=memory.directory, memory_tools=memory.only),
        )
        transcript = self.transcripts.open_transcript(new_agent.agent, facts)
        blueprint = AgentBlueprint(
            new_agent=new_agent,
            request=request,
            preloaded=spawn_plan.preloaded,
            definition=spawn_plan.definition,
            facts=facts,
            agent_tools=spawn_plan.agent_tools,
            toolset=spawn_plan.toolset,
            model=spawn_plan.model,
            agent_workspace=agent_workspace,
            loop_limits=spawn_plan.loop_limits,
            transcript=transcript,
            conversation=Conversation(
                transcript,
                runtime.clock,
                runtime.agents.ids.derive_generator(),
                messages=initial.history,
                last=initial.fork_of,
            ),
        )
        permissions = build_agent_permissions(blueprint)
        blueprint = store_restrictions(blueprint, permissions)
        prepared = self._build_prepared_agent(blueprint, permissions, prompt)
        self._save_agent_metadata(blueprint)
        return prepared

    async def prepare_resumed_agent(self, new_agent: AgentPreparationRequest) -> PreparedAgent:
        stored = self.transcripts.load_agent(new_agent)
        facts, is_fork = stored.facts, bool(stored.facts.origin.fork_of)
        if facts.isolation == "remote" and not self._is_remote_agent(new_agent.agent):
            raise AgentRequestRefused(format_session_notice("remote_resume", agent=new_agent.agent))
        definition = FORK_DEFINITION if is_fork else self._find_agent_definition(facts.agent_type)
        require_agent_start_allowed(new_agent.parent, definition.name)
        agent_tools = await self._prepare_agent_tools(new_agent, definition, facts.tools)
        async with agent_tools.close_on_failure():
            return await self._restore_agent_with_tools(new_agent, stored, definition, agent_tools)

    async def _restore_agent_with_tools(
        self,
        new_agent: AgentPreparationRequest,
        stored: RestoredAgentState,
        definition: AgentDefinition,
        agent_tools: AgentTools,
    ) -> PreparedAgent:
        facts, toolset = stored.facts, self._resolve_toolset(definition, new_agent.assignment, agent_tools)
        if facts.tools:
            # Kept as they were: a definition that changed since would miss the prompt cache.
            names = tuple(name for name in facts.tools if name in agent_tools.tools)
            toolset = replace(toolset, names=names)
        toolset = limit_tools_to_session(toolset, self._runtime.options.available_tools, new_agent.assignment)
        if not facts.origin.fork_of:
            toolset = agent_tools.add_output_tool_name(toolset)
        request = SpawnRequest(description=facts.description, prompt="", model=facts.model or None)
        spawn_plan = _ResolvedSpawnRequest(
            request=request,
            definition=definition,
            agent_tools=agent_tools,
            toolset=toolset,
            loop_limits=resolve_loop_limits(
                self._runtime.lead.loop_limits, definition, request, facts.thinking_tokens
            ),
            model=await self._resolve_agent_model(new_agent.parent, request, definition),
        )
        agent_workspace = await self._allocate_agent_workspace(new_agent, facts.isolation, facts.worktree)
        try:
            if facts.cwd and not facts.isolation:
                change_agent_directory(facts.cwd, agent_workspace.workspace)
            blueprint = self._build_resumed_blueprint(spawn_plan, new_agent, agent_workspace, stored)
            prepared = self._build_prepared_agent(blueprint, build_agent_permissions(blueprint), None)
            if agent_workspace.name != facts.worktree:
                self._save_agent_metadata(blueprint)
        except BaseException:
            await agent_workspace.finish()
            raise
        return replace(
            prepared,
            started=replace(prepared.started, resumed=True),
            delivered=stored.delivered,
            answered=stored.answered,
        )

    def _build_resumed_blueprint(
        self,
        spawn_plan: _ResolvedSpawnRequest,
        new_agent: AgentPreparationRequest,
        agent_workspace: AgentWorkspace,
        stored: RestoredAgentState,
    ) -> AgentBlueprint:
        definition, permissions = spawn_plan.definition, get_permission_engine(new_agent.parent)
        facts = stored.facts
        mode = narrow_child_permission_mode(
            permissions.mode,
            parse_spawn_permission_mode(facts.mode),
            person_configured=definition.source.is_trusted and definition.permission_mode is not None,
            can_bypass=permissions.can_bypass,
        )
        agent_prompt = build_agent_role_prompt(definition, new_agent.assignment)
        system = facts.system or self._get_system_prompt(
            agent_prompt, agent_workspace.workspace.cwd, definition.instructions
        )
        return AgentBlueprint(
            new_agent=new_agent,
            definition=definition,
            facts=replace(facts, system=system, mode=mode, worktree=agent_workspace.name),
            resumed=True,
            agent_tools=spawn_plan.agent_tools,
            toolset=spawn_plan.toolset,
            model=spawn_plan.model,
            agent_workspace=agent_workspace,
            loop_limits=spawn_plan.loop_limits,
            transcript=stored.transcript,
            conversation=stored.conversation,
        )

    async def _allocate_agent_workspace(
        self, new_agent: AgentPreparationRequest, isolation: str | None, worktree: str = ""
    ) -> AgentWorkspace:
        allocator = self._runtime.agents.workspaces
        return (
            await allocator.allocate_worktree_workspace(new_agent, worktree)
            if isolation and isolation != "remote"
            else allocator.allocate_shared_workspace(new_agent)
        )

    def _is_remote_agent(self, agent: AgentId) -> bool:
        """Return True if this process was started on another machine for this agent."""
        membership = self._runtime.options.membership
        return membership is not None and membership.agent == agent

    def _find_agent_definition(self, kind: str) -> AgentDefinition:
        try:
            definition = self._runtime.config.definitions.find(kind)
        except (UnknownAgentType, InvalidAgentDefinition) as error:
            raise AgentUnusable(str(error)) from error
        # Checked before anything is created: its hooks must be runnable.
        self._runtime.hooks.load_definition_hooks(definition)
        return definition

    def _resolve_toolset(
        self, definition: AgentDefinition, assignment: TeammateMembership | None, agent_tools: AgentTools
    ) -> ToolSelection:
        toolset = self._toolset_cache.resolve_toolset(definition, agent_tools)
        if toolset.missing and not toolset.names:
            agent, tools = f"{definition.name} ({definition.source})", ", ".join(toolset.missing)
            raise AgentUnusable(format_session_notice("only_missing_tools", agent=agent, tools=tools))
        if definition.source.kind == "builtin":
            # It names tools that settings turn off.
            toolset = replace(toolset, missing=())
        location = definition.source.locate_field("disallowed_tools") or str(definition.source)
        try:
            refuse_misspelled_rules(location, toolset.never, agent_tools.tools)
        except SettingsError as error:
            raise AgentUnusable(
                format_session_notice("agent_not_started", name=definition.name, error=error)
            ) from error
        return resolve_member_tools(toolset, assignment, agent_tools.tools)

    async def _resolve_agent_model(
        self, parent: AgentRunner, request: SpawnRequest, definition: AgentDefinition
    ) -> Model:
        try:
            if definition is FORK_DEFINITION:
                # A resumed fork keeps the model that it started with, whatever others get now.
                model = await self._model_resolver.load_model(parent.model, request.model)
            else:
                model = await self._model_resolver.resolve_model(
                    parent.model, call=request.model, definition=definition.model
                )
            self._runtime.budget.require_priced_model(model.card, definition.name)
        except (BudgetError, ModelError, NoModelConfigured, SettingsError) as error:
            raise AgentUnusable(format_session_notice("model_unavailable", error=error)) from error
        return model

    def _save_agent_metadata(self, blueprint: AgentBlueprint) -> None:
        self.transcripts.save_agent_metadata(blueprint.new_agent.agent, blueprint.facts)

    def _create_runner(self, blueprint: AgentBlueprint, permissions: PermissionEngine) -> AgentRunner:
        runtime, facts, parent = self._runtime, blueprint.facts, blueprint.new_agent.parent
        agent, assignment = blueprint.new_agent.agent, blueprint.new_agent.assignment
        environment, workspace = parent.environment, blueprint.agent_workspace.workspace
        hook_subject = HookSubjectAgent(
            identity=build_agent_identity(blueprint),
            workspace=workspace,
            permissions=permissions,
            transcript=self.transcripts.get_transcript_path(agent),
        )
        rules = permissions.get_active_rules()
        available = remove_denied_tools(
            {name: blueprint.agent_tools.tools[name] for name in blueprint.toolset.names}, rules.deny
        )
        tools, deferred = runtime.agents.deferral.select_tools(
            available, blueprint.definition.capabilities, rules=rules
        )
        return AgentRunner(
            identity=hook_subject.identity,
            model=blueprint.model,
            system=facts.system,
            tools=tools,
            schemas=SentToolSchemas(deferred=deferred),
            conversation=blueprint.conversation,
            environment=AgentEnvironment(
                workspace=workspace,
                processes=environment.processes,
                question_broker=environment.question_broker
                if assignment is None
                else assignment.question_broker,
                results=environment.results,
                env=environment.env,
                clock=runtime.clock,
                ids=runtime.agents.ids.derive_generator(),
                emit=blueprint.new_agent.emit or blueprint.new_agent.monitor.record_and_forward_event,
                session_tools=environment.session_tools,
                sandbox=blueprint.agent_workspace.create_sandbox(permissions.list_denied_paths),
                journal=environment.journal,
                checkpoints=environment.checkpoints,
            ),
            permissions=permissions,
            hooks=runtime.hooks.create_agent_hooks(
                hook_subject, runtime.hooks.load_definition_hooks(blueprint.definition)
            ),
            budget=self._open_agent_budget(agent, blueprint),
            inbox=runtime.inbox.queue.open_inbox(agent),
            limits=blueprint.loop_limits,
            context=AgentContextSources(
                path_instructions=runtime.knowledge.create_path_instructions(workspace, permissions)
                if blueprint.definition.instructions
                else None,
                build_briefing=None if assignment is None else assignment.build_briefing,
                read_mentions=runtime.knowledge.mentions.read_mentions,
                explain_missing_tool=runtime.agents.deferral.explain_missing_tool,
                server_instructions=runtime.servers.create_agent_instructions(blueprint.agent_tools),
            ),
        )

    def _open_agent_budget(self, agent: AgentId, blueprint: AgentBlueprint) -> AgentBudget:
        agent_budget = self._runtime.budget.get_or_create_agent_budget(
            agent, blueprint.facts.agent_type, BudgetLimits(max_usd=blueprint.definition.run.max_budget_usd)
        )
        try:
            agent_budget.require_priced_model(blueprint.model.card)
        except BudgetError as error:
            raise AgentRequestRefused(str(error)) from error
        return agent_budget

    def _build_prepared_agent(
        self, blueprint: AgentBlueprint, permissions: PermissionEngine, prompt: Message | None
    ) -> PreparedAgent:
        facts, agent = blueprint.facts, self._create_runner(blueprint, permissions)

        async def release_agent_resources() -> RetainedWorktreeWork | None:
            blueprint.transcript.close()
            await blueprint.agent_tools.close()
            await self._release_shared_resources(blueprint.new_agent.agent)
            return await blueprint.agent_workspace.finish()

        return PreparedAgent(
            agent=agent,
            started=AgentStarted(
                agent=blueprint.new_agent.agent,
                kind=facts.agent_type,
                name=facts.name,
                description=facts.description,
                parent=blueprint.new_agent.parent.identity.agent,
                call=blueprint.new_agent.call,
                depth=facts.origin.depth,
                model=blueprint.model.card.id,
                mode=facts.mode,
                background=facts.background,
                cwd=facts.cwd,
                tools=blueprint.toolset.names,
                color=facts.color,
                isolation=facts.isolation,
                team="" if blueprint.new_agent.assignment is None else blueprint.new_agent.assignment.team,
            ),
            resolved=ResolvedAgentSettings(
                kind=facts.agent_type,
                model=blueprint.model.card.id,
                mode=facts.mode,
                tools=blueprint.toolset.names,
                cwd=facts.cwd,
                source=str(blueprint.definition.source),
                start_tokens=agent.state.context_tokens,
                worktree=str(blueprint.agent_workspace.workspace.root)
                if blueprint.agent_workspace.name
                else "",
                hooks=describe_agent_hooks(agent.hooks),
                servers=list_mcp_servers_of_tools(blueprint.toolset.names),
                skills=blueprint.definition.capabilities.skills,
                notes=(*blueprint.agent_workspace.notes, *_list_missing_tool_notices(blueprint.toolset)),
            ),
            prompt=prompt,
            output_tool=blueprint.agent_tools.output_tool,
            one_shot=blueprint.definition.run.one_shot,
            acceptance_check=self._create_acceptance_check(
                blueprint.definition.run.acceptance, agent, blueprint.new_agent.monitor
            ),
            list_commits=blueprint.agent_workspace.commits.list_commits,
            clean_up=release_agent_resources,
        )

    def _build_agent_system_prompt(self, prompt: str, cwd: Path, with_instructions: bool) -> str:  # noqa: FBT001 - a cache key
        instructions = self._runtime.knowledge.instructions.text if with_instructions else ""
        return build_system_prompt(
            cwd=cwd,
            clock=self._runtime.clock,
            replacement=prompt,
            instructions=instructions,
            appended=format_settings_instructions(self._runtime.settings, talks_to_person=False),
        )

    async def _release_shared_resources(self, agent: AgentId) -> None:
        """Release what an ended agent holds in services that all agents share."""
        self._runtime.agents.plans.forget_plan(agent)
        self._runtime.agents.workspaces.leases.release_agent_leases(agent)
        await self._runtime.processes.shells.stop_agent_shells(agent)

    def _create_acceptance_check(
        self, command: str | None, agent: AgentRunner, monitor: ProgressMonitor
    ) -> AcceptanceCheck | None:
        if command is None:
            return None

        async def run_acceptance_command() -> tuple[ShellCommandResult, str]:
            result, output = await self._runtime.agents.acceptance.run_command(command, agent)
            monitor.write_output(f"[acceptance: {command}: {result.exit_code}]\n{output}\n")
            return result, output

        return run_acceptance_command


def _list_missing_tool_notices(toolset: ToolSelection) -> tuple[str, ...]:
    names = ", ".join(toolset.missing)
    return (format_session_notice("missing_tools", names=names),) if names else ()


def _share_path_instructions(parent: AgentRunner, fork: AgentRunner) -> None:
    """Do not repeat instructions that the copied conversation has."""
    delivered, instructions = parent.context.path_instructions, fork.context.path_instructions
    if isinstance(delivered, AgentPathInstructions) and isinstance(instructions, AgentPathInstructions):
        instructions.copy_delivered(delivered)


def _get_local_workspace(agent: AgentRunner) -> LocalWorkspace:
    assert isinstance(agent.environment.workspace, LocalWorkspace)
    return agent.environment.workspace
