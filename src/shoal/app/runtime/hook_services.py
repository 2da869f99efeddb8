"""Services for hooks that ask a model, with or without tools, or call an MCP tool."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import to_builtins
from msgspec.structs import replace

from shoal.agent.agent_runner import BYTES_PER_TOKEN, AgentLoopState, AgentRunner
from shoal.agent.agent_texts import load_prompt
from shoal.agent.model_call import ask_other_model, call_model
from shoal.agent.tool_calls import run_tool_for_hook
from shoal.app.mcp.mcp_servers import SessionMcpServerManager
from shoal.app.model_notices import format_session_notice
from shoal.app.models.child_model import SubagentModelResolver
from shoal.core.conversation.messages import Message, ToolResultBlock, ToolUseBlock, user_message
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.conversation.tools import Tool
from shoal.core.errors import ShoalError
from shoal.core.extensions.hooks import MAX_AGENT_HOOK_TURNS, NO_HOOKS, McpToolHookAction
from shoal.core.extensions.mcp_servers import format_mcp_tool_name
from shoal.core.ids import AgentId
from shoal.core.permissions.permission_decisions import AllowDecision
from shoal.core.ports import Model
from shoal.runs.running_agents import RunningAgents
from shoal.wire.json_codec import encode_json

_READ_TOOLS = ("Read", "Grep", "Glob")
"""Tools of a hook of type `agent`."""
_AGENT_HOOK_MAX_TOKENS = 4_096


class HookToolCallError(ShoalError):
    """The MCP tool of a hook is missing or failed."""


class SessionHookServices:
    """Answers hooks at the cost, and with the tools, of the agent whose event they are about."""

    def __init__(
        self, models: SubagentModelResolver, servers: SessionMcpServerManager, running_agents: RunningAgents
    ) -> None:
        self._models = models
        self._servers = servers
        self._running_agents = running_agents

    async def ask_model(self, prompt: str, model: str, *, agent: AgentId, can_read: bool) -> str:
        runner = self._find_runner(agent)
        judge = await self._models.load_background_model(runner.model, model)
        runner.budget.budget.require_priced_model(judge.card, runner.identity.kind)
        if not can_read:
            return await ask_other_model(runner, judge, system=load_prompt("hook_judge"), text=prompt)
        tools = {name: tool for name in _READ_TOOLS if (tool := runner.tools.get(name)) is not None}
        system = f"{load_prompt('hook_judge')}\n\n{load_prompt('hook_agent')}"
        return await _ask_model_with_tools(runner, judge, tools, system=system, text=prompt)

    async def call_mcp_tool(self, action: McpToolHookAction, *, agent: AgentId, seconds: float) -> str:
        runner = self._find_runner(agent)
        await self._servers.wait_until_ready()
        name = format_mcp_tool_name(action.server, action.tool)
        tools = runner.environment.session_tools
        if name not in tools:
            # The first request does not wait for every server.
            await self._servers.wait_until_settled()
        tool = tools.get(name)
        if tool is None:
            raise HookToolCallError(
                format_session_notice("hook_tool_missing", server=action.server, tool=action.tool)
            )
        call = ToolUseBlock(id=f"hook-{runner.ids.new_short_id()}", name=name, input=dict(action.input))
        output = await run_tool_for_hook(runner, call, tool, seconds)
        if output.is_error:
            raise HookToolCallError(format_session_notice("hook_tool_failed", name=name, text=output.text))
        return output.text

    def _find_runner(self, agent: AgentId) -> AgentRunner:
        # An agent that has not started yet, or has ended, is not listed: the lead pays for its hooks.
        return self._running_agents.find_agent(agent) or self._running_agents.lead


async def _ask_model_with_tools(
    agent: AgentRunner, model: Model, tools: Mapping[str, Tool], *, system: str, text: str
) -> str:
    """Return the answer of a model that may use tools first, at the agent's cost.

    The tools have the agent's permissions, but nobody is asked: a call that is not allowed fails.
    """
    asking = replace(agent, model=model, system=system, tools=tools, hooks=NO_HOOKS, state=AgentLoopState())
    messages = [user_message(text)]
    schemas = tuple(tool.schema for tool in tools.values())
    for _ in range(MAX_AGENT_HOOK_TURNS):
        asking.state.context_tokens = (
            sum(len(encode_json(to_builtins(each))) for each in messages) // BYTES_PER_TOKEN
        )
        request = ModelRequest(
            system=system, messages=messages, tools=schemas, max_tokens=_AGENT_HOOK_MAX_TOKENS
        )
        reply, _ = await call_model(asking, request, emits_stream=False)
        calls = [block for block in reply.message.content if isinstance(block, ToolUseBlock)]
        if not calls:
            agent.state.api_seconds += asking.state.api_seconds
            return reply.message.text.strip()
        results = [await _run_permitted_call(asking, call) for call in calls]
        messages += [reply.message, Message(role="user", content=tuple(results))]
    raise HookToolCallError(format_session_notice("hook_agent_silent", turns=MAX_AGENT_HOOK_TURNS))


async def _run_permitted_call(agent: AgentRunner, call: ToolUseBlock) -> ToolResultBlock:
    tool = agent.tools.get(call.name)
    if tool is None:
        return ToolResultBlock(
            tool_use_id=call.id,
            content=format_session_notice("hook_agent_tool", name=call.name),
            is_error=True,
        )
    decision = agent.permissions.decide_tool_call(call, tool, agent.identity)
    if not isinstance(decision, AllowDecision):
        return ToolResultBlock(
            tool_use_id=call.id, content=format_session_notice("hook_agent_denied"), is_error=True
        )
    output = await run_tool_for_hook(agent, call, tool)
    return ToolResultBlock(tool_use_id=call.id, content=output.content, is_error=output.is_error)
