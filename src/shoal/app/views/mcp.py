"""Administration of MCP servers outside a session: configuration, connection test and login."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from shoal.app.definitions.plugins import plugins_for
from shoal.app.mcp.host import host_for, tokens_in
from shoal.app.mcp.servers import OFF, UNTRUSTED, McpServers
from shoal.app.settings.config_view import HIDDEN, sounds_secret
from shoal.app.settings.mcp_files import PROJECT_FILE, Configured, change, configured
from shoal.app.settings.settings import Settings, load_settings
from shoal.backends.processes import GuardedProcesses
from shoal.core.clock import SystemClock
from shoal.core.errors import MissingExtra, SettingsError
from shoal.core.mcp import Address, Program, Server, ServerStanding
from shoal.tools.mcp.life import CONNECTING
from shoal.wire.mcp import BadServer, filled, read_server


class McpView:
    """MCP servers of one directory."""

    def __init__(
        self, cwd: Path, *, settings: str | None = None, given: Sequence[str] = (), strict: bool = False
    ) -> None:
        self.cwd = cwd
        self.settings: Settings = load_settings(cwd=cwd, given=settings)
        plugins = plugins_for(self.settings, cwd).mcp_servers()
        self.configured: Configured = configured(
            self.settings, given, strict=strict, cwd=cwd, plugins=plugins
        )

    def all(self) -> tuple[tuple[Server, str], ...]:
        """Return every server with the reason why it is not started; empty if it is."""
        found = self.configured
        return (
            *((server, "") for server in found.servers),
            *((server, OFF) for server in found.disabled),
            *((server, UNTRUSTED) for server in found.untrusted),
        )

    def server(self, name: str) -> tuple[Server, str]:
        """Return the server and that reason. Raises `SettingsError`."""
        for server, why in self.all():
            if server.name == name:
                return server, why
        names = ", ".join(server.name for server, _ in self.all())
        there = f"There are: {names}." if names else "None is: add one with `shoal mcp add`."
        raise SettingsError(f"No MCP server named {name!r} is configured. {there}")

    def shown(self, server: Server) -> dict[str, Any]:
        """Return its configuration without possible secrets."""
        match server.reach:
            case Program() as program:
                return {
                    "command": program.command,
                    "args": list(program.args),
                    "env": _hidden(program.env),
                    "cwd": program.cwd,
                }
            case Address() as address:
                return {"url": address.url, "headers": _hidden(address.headers)}

    async def tested(self, names: Sequence[str] = ()) -> tuple[ServerStanding, ...]:
        """Start the servers, list what they offer, stop them. Raises `SettingsError` for an unknown name."""
        chosen = self.configured.servers
        if names:
            found = [self.server(name) for name in names]
            for server, why in found:
                if why:
                    raise SettingsError(f"The MCP server {server.name} is not started: {why}.")
            chosen = tuple(server for server, _ in found)
        clock = SystemClock()
        processes = GuardedProcesses(clock)
        try:
            with tempfile.TemporaryDirectory(prefix="shoal-") as logs:
                host = host_for(
                    self.settings,
                    root=self.cwd,
                    logs=Path(logs),
                    processes=processes,
                    clock=clock,
                    note=lambda _: None,
                )
                wanted = replace(self.configured, servers=chosen, disabled=(), untrusted=())
                async with McpServers(
                    wanted, host, {}, wait=2 * CONNECTING, trusts=lambda _: False
                ) as servers:
                    await servers.ready()
                    return servers.standings()
        finally:
            await processes.aclose()

    async def log_in(self, name: str, show: Callable[[str], Awaitable[None]]) -> tuple[str, ...]:
        """Log in and return the available tools. Raises `SettingsError` and the errors of the login."""
        server, _ = self.server(name)
        try:
            address = filled(server, self.settings.tool_environment).reach
        except BadServer as error:
            raise SettingsError(f"The MCP server {name} cannot be used: {error}.") from error
        if not isinstance(address, Address):
            raise SettingsError(f"The MCP server {name} is a program, and programs need no login.")
        try:
            from shoal.tools.mcp import link
        except ModuleNotFoundError as error:
            raise MissingExtra("Speaking with MCP servers", "mcp") from error
        return await link.log_in(address, tokens_in(self.settings.home, name, address.url), show)

    def add(self, name: str, given: Mapping[str, Any], *, project: bool) -> tuple[Path, bool]:
        """Return the file, and whether the server was in it. Raises `SettingsError` and `StoreError`."""
        path = self._file(project=project)
        try:
            server = read_server(name, given, str(path))
        except BadServer as error:
            raise SettingsError(f"The MCP server {name} cannot be added: {error}.") from error
        return path, change(path, name, server)

    def remove(self, name: str, *, project: bool) -> Path | None:
        """Return the file it was in; None if there was none. Raises as `add_server` does."""
        path = self._file(project=project)
        return path if path.exists() and change(path, name, None) else None

    def _file(self, *, project: bool) -> Path:
        return self.cwd / PROJECT_FILE if project else self.settings.home / "settings.json"


def _hidden(texts: Mapping[str, str]) -> dict[str, str]:
    """Hide values of variables with secret names; references to variables stay."""
    return {
        name: HIDDEN if "${" not in value and sounds_secret(name) else value for name, value in texts.items()
    }
