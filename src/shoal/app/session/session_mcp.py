"""Creates the MCP servers of a session, with their startup wait and channels."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.app.definitions.agent_trust import is_agent_trusted
from shoal.app.mcp.mcp_channels import McpChannelMessageQueue, parse_mcp_channel_names
from shoal.app.mcp.mcp_host import create_mcp_client_context
from shoal.app.mcp.mcp_servers import SessionMcpServerManager
from shoal.app.options import Options
from shoal.app.settings.mcp_files import load_mcp_servers
from shoal.app.settings.settings import Settings
from shoal.core.tools import Tool

if TYPE_CHECKING:
    from shoal.app.config.session_config import SessionConfig
    from shoal.app.session.lead_resources import LeadResources
    from shoal.app.session.session import Session


ATTENDED_WAIT, UNATTENDED_WAIT = 5.0, 30.0
"""Seconds to wait for servers that are neither connected nor failed."""


def _resolve_mcp_wait_seconds(options: Options, settings: Settings) -> float:
    if settings.own.mcp_wait is not None:
        return settings.own.mcp_wait
    return ATTENDED_WAIT if options.attended else UNATTENDED_WAIT


def create_mcp_servers(
    config: SessionConfig,
    lead_resources: LeadResources,
    directory: Path,
    session: Session,
    tools: dict[str, Tool],
) -> SessionMcpServerManager:
    """Create the servers. Raises `SettingsError` for an unusable flag."""
    options, settings = config.options, config.settings
    logs = directory / "mcp"
    if options.lead_channel is not None:
        # One directory per process, because they write at the same time.
        logs /= str(os.getpid())
    return SessionMcpServerManager(
        load_mcp_servers(
            settings,
            options.mcp_config,
            strict=options.strict_mcp_config,
            cwd=lead_resources.workspace.root,
            plugins=config.plugins.build_mcp_documents(),
        ),
        create_mcp_client_context(
            settings,
            root=lead_resources.workspace.root,
            logs=logs,
            processes=lead_resources.processes,
            clock=options.clock,
            note=session.note,
        ),
        tools,
        startup_wait=_resolve_mcp_wait_seconds(options, settings),
        is_trusted=partial(is_agent_trusted, settings.home, lead_resources.workspace.root),
        channels=_create_mcp_channels(options, settings, session),
    )


def _create_mcp_channels(
    options: Options, settings: Settings, session: Session
) -> McpChannelMessageQueue | None:
    names = parse_mcp_channel_names(options.channels, "--channels")
    names |= parse_mcp_channel_names(settings.own.channels, "shoal.channels")
    # A teammate's process has no lead that could receive them.
    return McpChannelMessageQueue(session, names) if names and options.lead_channel is None else None
