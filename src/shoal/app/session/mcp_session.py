"""Gives a session its MCP servers: what is configured, and what a connection stands on."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import shoal
from shoal.app.definitions.agent_trust import trusts_agent
from shoal.app.mcp.channels import Channels, named_channels
from shoal.app.mcp.servers import McpServers
from shoal.app.options import Options
from shoal.app.settings.mcp_files import configured
from shoal.app.settings.settings import Settings
from shoal.core.clock import Clock
from shoal.core.errors import StoreError
from shoal.core.ports import Processes
from shoal.core.tools import Tool
from shoal.stores.files.places import write_whole
from shoal.tools.mcp.host import Host

if TYPE_CHECKING:
    from shoal.app.basis.basis import Basis
    from shoal.app.session.reach import Reach
    from shoal.app.session.session import Session


ATTENDED_WAIT, UNATTENDED_WAIT = 5.0, 30.0
"""Seconds; a server that is there or has failed is not waited for."""


class FileTokens:
    """In the home, for its owner alone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> bytes:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise StoreError(f"{self._path} cannot be read: {error.strerror}.", path=self._path) from error

    def write(self, content: bytes) -> None:
        write_whole(self._path, content)


def tokens_in(home: Path, server: str, url: str) -> FileTokens:
    """By the address too: a server that moved must not be sent what another gave."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", server)[:60]
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    # Beside Shoal's own keys, which no tool may reach; no team can have a name with a dot.
    return FileTokens(home / "shoal" / "keys" / "mcp.auth" / f"{name}-{digest}.json")


def host_for(
    settings: Settings,
    *,
    root: Path,
    logs: Path,
    processes: Processes,
    clock: Clock,
    note: Callable[[str], None],
) -> Host:
    return Host(
        processes=processes,
        clock=clock,
        root=root,
        env=settings.tool_environment,
        logs=logs,
        deadline=settings.own.mcp_deadline,
        note=note,
        tokens=lambda name, url: tokens_in(settings.home, name, url),
        version=shoal.__version__,
    )


def _wait(options: Options, settings: Settings) -> float:
    if settings.own.mcp_wait is not None:
        return settings.own.mcp_wait
    return ATTENDED_WAIT if options.attended else UNATTENDED_WAIT


def session_servers(
    basis: Basis, reach: Reach, directory: Path, session: Session, tools: dict[str, Tool]
) -> McpServers:
    """Raises `SettingsError` for a flag that cannot be used."""
    options, settings = basis.options, basis.settings
    logs = directory / "mcp"
    if options.link is not None:
        # Of each process its own, for they write at the same time.
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
    # In the process of a teammate there is no lead who could hear them.
    return Channels(session, names) if names and options.link is None else None
