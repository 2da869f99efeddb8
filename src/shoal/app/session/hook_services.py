"""Services for hooks that ask a model or call an MCP tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.agent.agent_runner import AgentRunner
from shoal.agent.agent_texts import load_prompt
from shoal.agent.model_call import ask_other_model
from shoal.agent.tool_calls import run_tool_for_hook
from shoal.app.models.child_model import SubagentModelResolver, choose_background_model
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.errors import ShoalError
from shoal.core.extensions.hooks import McpToolHookAction
from shoal.core.extensions.mcp_servers import format_mcp_tool_name
from shoal.core.ids import AgentId

if TYPE_CHECKING:
    from shoal.app.runtime.runtime import Runtime


class HookToolCallError(ShoalError):
    """The MCP tool of a hook is missing or failed."""


class SessionHookServices:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._model_resolver = SubagentModelResolver(runtime.settings, runtime.choose_model)

    async def ask_model(self, prompt: str, model: str, *, agent: AgentId) -> str:
        runner = self._find_runner(agent)
        name = choose_background_model(self._runtime.settings, runner.model.card, model)
        judge = await self._model_resolver.load_model(runner.model, name)
        self._runtime.budget.require_priced_model(judge.card, runner.identity.kind)
        return await ask_other_model(runner, judge, system=load_prompt("hook_judge"), text=prompt)

    async def call_mcp_tool(self, action: McpToolHookAction, *, agent: AgentId) -> str:
        runtime, runner = self._runtime, self._find_runner(agent)
        await runtime.servers.wait_until_ready()
        name = format_mcp_tool_name(action.server, action.tool)
        if name not in runtime.tools:
            # The first request does not wait for every server.
            await runtime.servers.wait_until_settled()
        tool = runtime.tools.get(name)
        if tool is None:
            raise HookToolCallError(
                f"the MCP server {action.server} has no tool {action.tool} now; `shoal mcp ls` lists servers"
            )
        call = ToolUseBlock(id=f"hook-{runner.ids.new_short_id()}", name=name, input=dict(action.input))
        output = await run_tool_for_hook(runner, call, tool)
        if output.is_error:
            raise HookToolCallError(f"the MCP tool {name} failed: {output.text}")
        return output.text

    def _find_runner(self, agent: AgentId) -> AgentRunner:
        # An agent that has not started yet, or has ended, is not listed: the lead pays for its hooks.
        return self._runtime.agents.running.find_agent(agent) or self._runtime.agents.running.lead
