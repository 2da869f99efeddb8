"""Tools that start, message and list other agents, and the list of agents for the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from shoal.core.agents.agent_definitions import ALL_TOOLS, AgentDefinition
from shoal.core.agents.subagents import (
    AgentOperations,
    AgentResult,
    AgentStatusSnapshot,
    BackgroundAgentLaunchResult,
    RemoteAgentLaunchResult,
    ResolvedAgentSettings,
    ResourceRequest,
    SpawnRequest,
)
from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput
from shoal.core.errors import AgentRequestRefused
from shoal.core.teams.team_operations import (
    TeammateSpawnResult,
    TeammateStatusSnapshot,
    TeamOperations,
)
from shoal.tools.bounded_list import format_bounded_list
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.function_tool import FunctionTool
from shoal.tools.message_tool import SessionMessageSender, build_send_message_tool
from shoal.tools.tool_texts import format_tool_text, load_tool_description, load_tool_text
from shoal.wire.field_parsers import InvalidFrontMatterFieldError
from shoal.wire.notification_text import (
    format_agent_report,
    format_retained_worktree_work,
    format_work_evidence,
)
from shoal.wire.resource_codec import parse_resource_request

MAX_LIST_CHARACTERS = 16_000
"""Limit for the list of agents, which is sent with every request."""
_DESCRIPTION_LIMITS = (2_000, 600, 200, 80)
_MAX_LISTED_TOOLS = 12


AgentStartResult: TypeAlias = (
    AgentResult | BackgroundAgentLaunchResult | RemoteAgentLaunchResult | TeammateSpawnResult
)


class AgentToolOptions(Struct, frozen=True, kw_only=True):
    """Optional inputs of the Agent tool that have an effect in this session; the others are hidden."""

    background: bool = True
    has_background: bool = True
    """True if agents can run in the background, by choice or always."""
    model: bool = True
    remote: bool = False
    cwd: bool = False
    teams: bool = False
    resources: bool = False
    """True if teammates or agents can run on a cluster."""
    forks: bool = False
    """True if omitting the agent's type forks the caller."""


def build_agent_tools(
    supervisor: AgentOperations,
    teams: TeamOperations,
    *,
    listing: str,
    options: AgentToolOptions,
    send_to_session: SessionMessageSender,
) -> tuple[Tool, ...]:
    """Return the agent tools; `listing` names the agents, `send_to_session` reaches other sessions."""
    message_tool = build_send_message_tool(
        supervisor, teams, send_to_session, can_resume=options.has_background
    )
    return (
        _build_agent_tool(supervisor, teams, listing, options),
        message_tool,
        _build_list_agents_tool(supervisor, teams),
    )


def _build_agent_tool(
    supervisor: AgentOperations, teams: TeamOperations, listing: str, options: AgentToolOptions
) -> Tool:
    tool_description = "\n\n".join(
        [
            load_tool_description("Agent", without="" if options.has_background else "background").strip(),
            *([load_tool_text("Agent", "forks")] if options.forks else []),
            listing,
        ]
    ).strip()

    @builtin_tool(name="Agent", deadline=None, description=tool_description, concurrent=True)
    async def agent_tool(  # noqa: PLR0913, PLR0917 - the inputs that the protocol names
        description: str,
        prompt: Annotated[str, Meta(min_length=1)],
        subagent_type: str | None = None,
        model: str | None = None,
        run_in_background: bool = False,  # noqa: FBT001, FBT002 - the protocol names it
        name: str | None = None,
        team_name: str | None = None,
        mode: str | None = None,
        isolation: Literal["worktree", "remote"] | None = None,
        cwd: str | None = None,
        effort: str | int | None = None,
        resources: dict[str, Any] | None = None,
        *,
        context: ToolContext,
    ) -> ToolOutput:
        request = SpawnRequest(
            description=description,
            prompt=prompt,
            kind=subagent_type,
            model=model,
            background=run_in_background,
            name=name,
            team=team_name,
            mode=mode,
            isolation=isolation,
            cwd=cwd,
            effort=effort,
            resources=_parse_resources(resources),
        )
        return format_agent_start_result(await _start_agent_or_teammate(supervisor, teams, request, context))

    agent_tool.restrict_inputs(_select_agent_tool_inputs(agent_tool, options))
    return agent_tool


def _select_agent_tool_inputs(agent: FunctionTool, options: AgentToolOptions) -> dict[str, Any]:
    inputs = agent.get_inputs_without(
        *(() if options.background else ("run_in_background",)),
        *(() if options.model else ("model",)),
        *(() if options.cwd else ("cwd",)),
        *(() if options.teams else ("team_name", "mode")),
        *(() if options.resources else ("resources",)),
    )
    if options.forks:
        # A new dict: all sessions of a process share the cached schema.
        inputs["subagent_type"] = {
            **inputs["subagent_type"],
            "description": load_tool_text("Agent", "fork_subagent_type"),
        }
    if options.remote:
        inputs["isolation"] = {
            **inputs["isolation"],
            "description": load_tool_text("Agent", "remote_isolation"),
        }
    else:
        inputs["isolation"] = {**inputs["isolation"], "enum": ["worktree"]}
    return inputs


def _parse_resources(value: dict[str, Any] | None) -> ResourceRequest | None:
    if value is None:
        return None
    try:
        return parse_resource_request(value)
    except InvalidFrontMatterFieldError as error:
        raise AgentRequestRefused(format_tool_text("Agent", "bad_resources", reason=error)) from error


async def _start_agent_or_teammate(
    supervisor: AgentOperations, teams: TeamOperations, request: SpawnRequest, context: ToolContext
) -> AgentStartResult:
    """Start a teammate if the call asks for one, else an agent for one job."""
    return await teams.spawn_teammate(request, context) or await supervisor.start_agent(request, context)


def _build_list_agents_tool(supervisor: AgentOperations, teams: TeamOperations) -> Tool:
    @builtin_tool(name="ListAgents", reads_only=True, deadline=10)
    async def list_agents() -> ToolOutput:
        agents = supervisor.list_agents()
        members = (*teams.list_members(), *await teams.list_external_members())
        lines = [_format_teammate_line(each) for each in members]
        lines += [_format_agent_snapshot_line(each) for each in agents]
        return ToolOutput(
            content="\n".join(lines) or load_tool_text("ListAgents", "empty"),
            data={"agents": [_encode_agent_snapshot(each) for each in agents], "teammates": members},
        )

    return list_agents


def _format_teammate_line(member: TeammateStatusSnapshot) -> str:
    model = f" on {member.model}" if member.model else ""
    return f"{member.name}: teammate, {member.kind or 'unknown type'}{model}, {member.state}"


def format_agent_start_result(
    result: AgentStartResult,
) -> ToolOutput:
    """Return the tool output for an agent that was started or has completed."""
    match result:
        case AgentResult():
            return _format_agent_result(result)
        case BackgroundAgentLaunchResult():
            return _format_background_launch(result)
        case RemoteAgentLaunchResult():
            return _format_remote_launch(result)
        case TeammateSpawnResult():
            return _format_spawned_teammate(result)


def _format_agent_result(result: AgentResult) -> ToolOutput:
    data = {
        "status": result.status,
        "content": result.text,
        "agentId": result.agent,
        "totalTokens": result.usage.total_tokens,
        "totalToolUseCount": result.evidence.tool_calls,
        "totalDurationMs": result.duration_ms,
        "evidence": result.evidence,
    }
    if result.worktree is not None:
        data |= {"worktreePath": result.worktree.path, "worktreeBranch": result.worktree.branch}
    if result.status != "completed":
        earlier_text = f"\n\nIts last text:\n{format_agent_report(result)}" if result.text else ""
        outcome = "was stopped" if result.status == "killed" else "failed"
        message = f"The agent {outcome}: {result.detail}{earlier_text}"
        return ToolOutput(
            content=f"{message}\n\n{_format_agent_result_trailer(result)}",
            is_error=not result.text,
            data=data,
        )
    parts = [format_agent_report(result)]
    if result.detail:
        parts.append(f"[{result.detail}]")
    if result.worktree is not None or not result.one_shot:
        parts.append(_format_agent_result_trailer(result))
    return ToolOutput(content="\n\n".join(parts), data=data)


def remove_agent_result_trailer(text: str, result: AgentResult) -> str:
    """Return the output without the facts for the agent that called the tool, for a person to read."""
    words = text.removesuffix(f"\n\n{_format_agent_result_trailer(result)}")
    if words == text or result.worktree is None:
        return words
    return f"{words}\n\n{format_retained_worktree_work(result.worktree)}"


def _format_agent_result_trailer(result: AgentResult) -> str:
    lines = [format_tool_text("Agent", "agent_id", agent=result.agent)]
    if result.worktree is not None:
        lines.append(format_retained_worktree_work(result.worktree))
    lines.append(f"evidence: {format_work_evidence(result.evidence)}")
    lines.append(
        f"<usage>total_tokens: {result.usage.total_tokens}\ntool_uses: {result.evidence.tool_calls}\n"
        f"duration_ms: {result.duration_ms}</usage>"
    )
    return "\n".join(lines)


def _format_background_launch(launch: BackgroundAgentLaunchResult) -> ToolOutput:
    resolved = launch.resolved
    intro = load_tool_text("Agent", "moved" if launch.moved else "started")
    lines = [
        f"{intro} agentId: {launch.agent}" + (f", name: {launch.name}" if launch.name else ""),
        format_tool_text(
            "Agent",
            "resolved",
            kind=resolved.kind,
            source=resolved.source,
            model=resolved.model,
            mode=resolved.mode,
            cwd=resolved.cwd,
            capabilities=_format_agent_capabilities(resolved),
            tokens=f"{resolved.start_tokens:,}",
        ),
        *resolved.notes,
        format_tool_text("Agent", "launched", path=launch.output),
    ]
    return ToolOutput(
        content="\n".join(lines),
        data={
            "status": "async_launched",
            "agentId": launch.agent,
            "description": launch.description,
            "prompt": launch.prompt,
            "outputFile": str(launch.output),
            "canReadOutputFile": True,
            "resolved": resolved,
        },
    )


def _format_remote_launch(launch: RemoteAgentLaunchResult) -> ToolOutput:
    named = f", name: {launch.name}" if launch.name else ""
    lines = [
        f"{load_tool_text('Agent', 'remote')} agentId: {launch.agent}{named}, kind: {launch.kind}",
        format_tool_text("Agent", "launched", path=launch.output),
    ]
    return ToolOutput(
        content="\n".join(lines),
        data={
            "status": "remote_launched",
            "taskId": launch.agent,
            "sessionUrl": f"shoal://{launch.session}/{launch.agent}",
            "outputFile": str(launch.output),
            "description": launch.description,
        },
    )


def _format_spawned_teammate(teammate: TeammateSpawnResult) -> ToolOutput:
    resolved = teammate.resolved
    lines = [
        f"{format_tool_text('Agent', 'joined', name=teammate.name, team=teammate.team)} "
        f"teammate_id: {teammate.teammate}",
        f"It is {resolved.kind} ({resolved.source}) on {resolved.model}, mode {resolved.mode}, "
        f"in {resolved.cwd}, with {_format_agent_capabilities(resolved)}.",
        *resolved.notes,
        format_tool_text("Agent", "teammate_joined"),
    ]
    return ToolOutput(
        content="\n".join(lines),
        data={
            "status": "teammate_spawned",
            "teammate_id": teammate.teammate,
            "name": teammate.name,
            "team_name": teammate.team,
            "color": teammate.color,
            "resolved": resolved,
        },
    )


def _format_agent_capabilities(resolved: ResolvedAgentSettings) -> str:
    servers = f" (MCP servers: {', '.join(resolved.servers)})" if resolved.servers else ""
    parts = [f"{len(resolved.tools)} tools{servers}"]
    if resolved.skills:
        parts.append(f"the skill{'' if len(resolved.skills) == 1 else 's'} {', '.join(resolved.skills)}")
    if resolved.hooks:
        parts.append(f"{len(resolved.hooks)} hook{'' if len(resolved.hooks) == 1 else 's'}")
    return " and ".join(parts)


def _format_agent_snapshot_line(snapshot: AgentStatusSnapshot) -> str:
    label = f"{snapshot.agent}" + (f" ({snapshot.name})" if snapshot.name else "")
    activity = f", now {snapshot.doing}" if snapshot.doing else ""
    return (
        f"{label}: {snapshot.kind}, {snapshot.status}: {snapshot.description} "
        f"[{snapshot.tool_calls} tool calls, {snapshot.tokens:,} tokens, {snapshot.seconds:.0f} s{activity}]"
    )


def _encode_agent_snapshot(snapshot: AgentStatusSnapshot) -> dict[str, object]:
    return {
        "agentId": snapshot.agent,
        "name": snapshot.name,
        "agentType": snapshot.kind,
        "description": snapshot.description,
        "status": snapshot.status,
        "parent": snapshot.parent,
        "background": snapshot.background,
        "outputFile": snapshot.output,
    }


def format_agent_list(
    definitions: Iterable[AgentDefinition], *, max_characters: int = MAX_LIST_CHARACTERS
) -> str:
    """Return one line per agent: its name, when to use it, and its tools. Never exceeds `max_characters`."""
    return format_bounded_list(
        tuple(definitions),
        max_characters=max_characters,
        description_limits=_DESCRIPTION_LIMITS,
        format_extra=lambda agent: f" (Tools: {_format_agent_tools(agent)})",
    )


def _format_agent_tools(agent: AgentDefinition) -> str:
    tools, disallowed = agent.capabilities.tools, agent.capabilities.disallowed_tools
    exceptions = f" except {_format_limited_tool_names(disallowed)}" if disallowed else ""
    if tools is None or ALL_TOOLS in tools:
        return f"all{exceptions}"
    return f"{_format_limited_tool_names(tools)}{exceptions}" if tools else "none"


def _format_limited_tool_names(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _MAX_LISTED_TOOLS} more" if len(names) > _MAX_LISTED_TOOLS else ""
    return ", ".join(name[:80] for name in names[:_MAX_LISTED_TOOLS]) + rest
