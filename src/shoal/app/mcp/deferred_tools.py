"""Tools of MCP servers whose schemas are sent only once an agent has searched for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from shoal.agent.agent_runner import AgentRunner
from shoal.app.agent_permissions import get_permission_engine
from shoal.app.mcp.mcp_servers import SessionMcpServerManager
from shoal.app.model_notices import format_session_notice
from shoal.app.settings.settings import Settings
from shoal.core.agents.agent_definitions import AgentCapabilities, select_definition_tools
from shoal.core.conversation.model_requests import ToolSchema
from shoal.core.conversation.tools import Tool, ToolContext
from shoal.core.extensions.mcp_servers import MCP_PREFIX
from shoal.core.ids import LEAD_ID, AgentId
from shoal.policy.permission_rules import PermissionRuleSet, ToolPermissionRule
from shoal.tools.tool_search_tool import TOOL_SEARCH, build_tool_search_tool

THRESHOLD_TOKENS = 4_000
"""Maximum number of tokens of MCP tool schemas that are sent without a search."""
_VARIABLE = "ENABLE_TOOL_SEARCH"
_PERCENT = 10
_CHARS_PER_TOKEN = 4
_SEARCH_WAIT = 20.0
"""Seconds that a search waits for servers that are still connecting."""


class ToolDeferral:
    """Decides which tools of an agent are deferred, and loads those that it finds."""

    def __init__(
        self,
        settings: Settings,
        window: int,
        servers: SessionMcpServerManager,
        find_agent: Callable[[AgentId], AgentRunner],
    ) -> None:
        self._threshold = _read_threshold(settings, window)
        self._servers = servers
        self._find_agent = find_agent

    def select_tools(
        self,
        tools: Mapping[str, Tool],
        capabilities: AgentCapabilities,
        *,
        rules: PermissionRuleSet,
        lead_tools: Iterable[str] | None = None,
    ) -> tuple[Mapping[str, Tool], frozenset[str]]:
        """Return the tools, with ToolSearch if it is needed, and the names of those that are deferred.

        Tools that the agent's `capabilities` name one by one are never deferred. If one of the agent's
        `rules` forbids ToolSearch, or asks before it, nothing is deferred: the agent could not reach it.

        `lead_tools` are the tools in the lead's last request; None for another agent. The lead keeps
        ToolSearch for the prompt cache, and its tools are selected again whenever a server changes.
        """
        if self._threshold is None or is_tool_search_restricted((*rules.deny, *rules.ask)):
            return tools, frozenset()
        if not self._servers.configured.servers and f" {MCP_PREFIX}" not in f" {' '.join(tools)}":
            return tools, frozenset()  # without a look at each tool: this happens for each agent
        named = capabilities.tools or ()
        always = self._servers.list_always_loaded_prefixes()
        candidates = {
            name: tool
            for name, tool in tools.items()
            if name.startswith(MCP_PREFIX) and name not in named and not name.startswith(always)
        }
        size = sum(_measure_schema(tool.schema) for tool in candidates.values())
        deferred = frozenset(candidates) if size > self._threshold * _CHARS_PER_TOKEN else frozenset()
        is_kept = TOOL_SEARCH in (lead_tools or ())
        is_waiting = capabilities.can_name_mcp_tools and (is_kept or self._servers.list_pending_names())
        if not deferred and not is_waiting:
            return tools, deferred
        names = {server.name for server in self._servers.configured.servers}
        names |= {name.removeprefix(MCP_PREFIX).partition("__")[0] for name in deferred}
        load_tools = partial(self._load_tools, None if lead_tools is not None else capabilities)
        search = build_tool_search_tool(sorted(names), load_tools)
        own = {name: tool for name, tool in tools.items() if not name.startswith(MCP_PREFIX)}
        return {**own, TOOL_SEARCH: search, **tools}, deferred

    async def _load_tools(
        self,
        capabilities: AgentCapabilities | None,
        context: ToolContext,
        select: Callable[[Mapping[str, ToolSchema]], list[str]],
    ) -> list[ToolSchema]:
        await self._servers.wait_for_pending(_SEARCH_WAIT)
        agent = self._find_agent(AgentId(context.agent.agent))
        if capabilities is not None:
            self._add_late_tools(agent, capabilities)
        available = {name: tool.schema for name, tool in agent.tools.items() if name.startswith(MCP_PREFIX)}
        names = select(available)
        agent.load_deferred_tools(names)
        return [available[name] for name in names]

    def explain_missing_tool(self, agent: AgentRunner, name: str) -> str:
        """Explain that the server of the tool is still connecting; empty if the agent gets no such tool."""
        server = self._servers.find_pending_server(name)
        is_lead = agent.identity.agent == LEAD_ID
        if server is None or (TOOL_SEARCH not in agent.tools and not is_lead):
            return ""  # only a search adds tools to the other agents after their start
        advice = "search_for_pending_tool" if TOOL_SEARCH in agent.tools else "retry_pending_tool"
        return format_session_notice(
            "tool_of_pending_server", name=name, server=server, advice=format_session_notice(advice)
        )

    def _add_late_tools(self, agent: AgentRunner, capabilities: AgentCapabilities) -> None:
        """Add the tools of servers that have connected since the agent started, all of them deferred."""
        denied = [
            rule for rule in get_permission_engine(agent).get_active_rules().deny if rule.pattern is None
        ]
        tools = agent.environment.session_tools
        offered = [name for name in tools if name.startswith(MCP_PREFIX) and name not in agent.tools]
        late = {
            name: tools[name]
            for name in select_definition_tools(capabilities, offered).names
            if not any(rule.applies_to_tool(name) for rule in denied)
        }
        if late:
            agent.set_tools({**agent.tools, **late}, agent.schemas.deferred | frozenset(late))


def is_tool_search_off(settings: Settings) -> bool:
    """Return True if the settings turn ToolSearch off, so that the first request needs all schemas."""
    return _read_threshold(settings, 0) is None


def is_tool_search_restricted(rules: Iterable[ToolPermissionRule]) -> bool:
    """Return True if one of these rules, which deny or ask, applies to ToolSearch."""
    return any(rule.applies_to_tool(TOOL_SEARCH) for rule in rules)


def _read_threshold(settings: Settings, window: int) -> int | None:
    return parse_tool_search_threshold(settings.tool_environment.get(_VARIABLE, ""), window)


def parse_tool_search_threshold(value: str, window: int) -> int | None:
    """Return the tokens above which tools are deferred; None if they never are."""
    folded = value.strip().casefold()
    if folded in ("false", "0", "no", "off"):
        return None
    if folded in ("true", "1", "yes", "on"):
        return 0
    if match := re.fullmatch(r"auto(?::(\d{1,3}))?", folded):
        return window * min(int(match[1] or _PERCENT), 100) // 100
    return THRESHOLD_TOKENS


def _measure_schema(schema: ToolSchema) -> int:
    return len(schema.name) + len(schema.description) + len(str(schema.input_schema))
