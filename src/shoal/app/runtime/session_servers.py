"""Creates the MCP servers of a session."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from shoal.app.config.session_config import SessionConfig
from shoal.app.config.tool_selection import split_permission_rule_flags
from shoal.app.definitions.agent_trust import is_agent_trusted
from shoal.app.mcp.deferred_tools import is_tool_search_off, is_tool_search_restricted
from shoal.app.mcp.mcp_channels import parse_mcp_channel_names
from shoal.app.mcp.mcp_host import create_mcp_client_context
from shoal.app.mcp.mcp_servers import INLINE_SERVER_ORIGIN, InlineMcpServerPolicy, SessionMcpServerManager
from shoal.app.runtime.event_bus import EventBus
from shoal.app.settings.managed_switches import refuse_channels
from shoal.app.settings.mcp_files import (
    ConfiguredMcpServers,
    check_relayed_server,
    is_server_permitted,
    load_mcp_servers,
)
from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.core.agents.agent_definitions import AgentDefinition
from shoal.core.extensions.mcp_servers import McpServerConfig
from shoal.policy.permission_rules import parse_permission_rule
from shoal.workspaces.local_workspace import LocalWorkspace

MCP_WAIT_ATTENDED, MCP_WAIT_UNATTENDED = 5.0, 30.0
"""Seconds that the first turn waits for MCP servers."""


def create_mcp_servers(
    config: SessionConfig,
    workspace: LocalWorkspace,
    processes: GuardedProcessLauncher,
    directory: Path,
    events: EventBus,
) -> SessionMcpServerManager:
    """Create the servers. Raises `SettingsError` for an unusable flag."""
    options, settings = config.options, config.settings
    logs = directory / "mcp"
    if options.lead_channel is not None:
        # One directory per process, because they write at the same time.
        logs /= str(os.getpid())
    configured = load_mcp_servers(
        settings,
        options.mcp_config,
        strict=options.strict_mcp_config,
        cwd=workspace.root,
        plugins=config.plugins.build_mcp_documents(),
    )
    configured = replace(
        configured,
        channel_names=_parse_channel_names(config),
        relayed=tuple(check_relayed_server(settings, each.status) for each in options.relayed_servers),
    )
    inline = InlineMcpServerPolicy(
        configured=configured,
        is_trusted=partial(is_agent_trusted, settings.home, workspace.root),
        is_permitted=partial(is_server_permitted, settings),
    )
    configured = _add_lead_servers(configured, inline, config.lead_agent)
    client_context = create_mcp_client_context(
        settings,
        root=workspace.root,
        logs=logs,
        processes=processes,
        clock=options.clock,
        note=events.note,
    )
    servers = SessionMcpServerManager(
        configured,
        client_context,
        startup_wait=_choose_startup_wait(config, client_context.connect_timeout),
        inline=inline,
        is_required=partial(_is_server_required, config, can_search=_can_lead_search_tools(config)),
    )
    if configured.servers:
        events.call_after_first_request(servers.start_optional_servers)
    return servers


def _choose_startup_wait(config: SessionConfig, connect_timeout: float) -> float:
    """Return the seconds that the first request waits for the required servers."""
    settings = config.settings
    if settings.own.mcp_wait is not None:
        return settings.own.mcp_wait
    if settings.foreign.tools.waits_for_mcp_servers:
        return connect_timeout
    return MCP_WAIT_ATTENDED if config.options.attended else MCP_WAIT_UNATTENDED


def _add_lead_servers(
    configured: ConfiguredMcpServers, inline: InlineMcpServerPolicy, definition: AgentDefinition | None
) -> ConfiguredMcpServers:
    """Add the servers that the lead's agent describes, in place of others with the same tool names."""
    servers, problems = ((), ()) if definition is None else inline.read_lead_servers(definition)
    prefixes = {server.tool_name_prefix for server in servers}
    others = (server for server in configured.servers if server.tool_name_prefix not in prefixes)
    return replace(configured, servers=(*servers, *others), problems=(*configured.problems, *problems))


def _parse_channel_names(config: SessionConfig) -> frozenset[str]:
    names = parse_mcp_channel_names(config.options.channels, "--channels")
    names |= parse_mcp_channel_names(config.settings.own.channels, "shoal.channels")
    if names:
        refuse_channels(config.settings.documents)
    # A teammate's process has no lead that could receive messages.
    return names if config.options.lead_channel is None else frozenset()


def _can_lead_search_tools(config: SessionConfig) -> bool:
    """Return True if the lead finds the tools of servers that connect after its first request."""
    rules = config.settings.permissions.rules
    denied = list(split_permission_rule_flags(config.options.disallowed_tools))
    if config.lead_agent is not None:
        denied += config.lead_agent.capabilities.disallowed_tools
    return not is_tool_search_off(config.settings) and not is_tool_search_restricted(
        (*rules.deny, *rules.ask, *map(parse_permission_rule, denied))
    )


def _is_server_required(config: SessionConfig, server: McpServerConfig, *, can_search: bool) -> bool:
    """Return True if the first request waits for a server: it was asked for, or a wait is configured.

    A lead that cannot search for tools would not know of a server that connects later.
    """
    options, settings = config.options, config.settings
    if settings.own.mcp_wait is not None or settings.foreign.tools.waits_for_mcp_servers:
        return True
    if server.always_load or not can_search:
        return True
    if server.origin.startswith(INLINE_SERVER_ORIGIN):
        return True
    given = [
        str(config.cwd / config.settings.user.expand_home(each))
        for each in options.mcp_config
        if isinstance(each, str)
    ]
    if server.origin.startswith(("--mcp-config:", *(f"{path}:" for path in given))):
        return True
    named = (*split_permission_rule_flags(options.allowed_tools), *(options.available_tools or ()))
    return any(f"{name}__".startswith(server.tool_name_prefix) for name in named)
