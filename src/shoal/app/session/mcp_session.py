"""Creates the MCP servers of a session, with their startup wait and channels."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.app.definitions.agent_trust import trusts_agent
from shoal.app.mcp.channels import Channels, named_channels
from shoal.app.mcp.host import host_for
from shoal.app.mcp.servers import McpServers
from shoal.app.options import Options
from shoal.app.settings.mcp_files import configured
from shoal.app.settings.settings import Settings
from shoal.core.tools import Tool

if TYPE_CHECKING:
    from shoal.app.basis.basis import Basis
    from shoal.app.session.reach import Reach
    from shoal.app.session.session import Session


ATTENDED_WAIT, UNATTENDED_WAIT = 5.0, 30.0
"""Seconds to wait for servers that are neither connected nor failed."""


def _wait(options: Options, settings: Settings) -> float:
    if settings.own.mcp_wait is not None:
        return settings.own.mcp_wait
    return ATTENDED_WAIT if options.attended else UNATTENDED_WAIT


def session_servers(
    basis: Basis, reach: Reach, directory: Path, session: Session, tools: dict[str, Tool]
) -> McpServers:
    """Create the servers. Raises `SettingsError` for an unusable flag."""
    options, settings = basis.options, basis.settings
    logs = directory / "mcp"
    if options.link is not None:
        # One directory per process, because they write at the same time.
        logs /= str(os.getpid())
    return McpServers(
        configured(
            settings,
            options.mcp_config,
            strict=options.strict_mcp_config,
            cwd=reach.workspace.root,
            plugins=basis.plugins.mcp_servers(),
        ),
        host_for(
            settings,
            root=reach.workspace.root,
            logs=logs,
            processes=reach.processes,
            clock=options.clock,
            note=session.note,
        ),
        tools,
        wait=_wait(options, settings),
        trusts=partial(trusts_agent, settings.home, reach.workspace.root),
        channels=_channels(options, settings, session),
    )


def _channels(options: Options, settings: Settings, session: Session) -> Channels | None:
    names = named_channels(options.channels, "--channels")
    names |= named_channels(settings.own.channels, "shoal.channels")
    # A teammate's process has no lead that could receive them.
    return Channels(session, names) if names and options.link is None else None
