"""Administration of MCP servers outside a session: configuration, connection test and login."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.definitions.plugin_set import load_plugins
from shoal.app.mcp.mcp_host import create_mcp_client_context, open_mcp_token_file
from shoal.app.mcp.mcp_servers import DISABLED_REASON, UNTRUSTED_REASON, SessionMcpServerManager
from shoal.app.settings.claude_json import (
    SERVER_CHOICE_KEYS,
    choose_claude_json,
    find_claude_json,
    find_server_sections,
    forget_server_choices,
    read_claude_json,
)
from shoal.app.settings.mcp_files import (
    PROJECT_FILE,
    ConfiguredMcpServers,
    add_or_remove_mcp_server,
    has_mcp_server,
    load_mcp_servers,
)
from shoal.app.settings.project_directories import iter_project_directories
from shoal.app.settings.settings import Settings, load_settings
from shoal.app.settings.settings_listing import HIDDEN_VALUE, is_secret_variable_name
from shoal.app.settings.settings_trust import (
    PermissionEscalation,
    forget_mcp_trust,
    merge_user_controlled_documents,
    save_project_trust_decision,
    save_trust_in_documents,
)
from shoal.app.settings.settings_writer import edit_json_file, find_settings_path
from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.core.clock import SystemClock
from shoal.core.errors import MissingPackageExtra, SettingsError
from shoal.core.extensions.mcp_servers import McpHttpConfig, McpServerConfig, McpServerStatus, McpStdioConfig
from shoal.core.tls_contexts import read_tls_variables
from shoal.tools.mcp.client_context import CONNECT_TIMEOUT
from shoal.tools.mcp.managed_server import LOG_HINT
from shoal.wire.mcp_codec import InvalidMcpServerConfigError, expand_mcp_server_variables, parse_mcp_server
from shoal.wire.settings_codec import SettingsDocument, SettingsSourceKind, parse_settings_document

_MAX_QUOTED_CHARS = 300
_ADDABLE_NAME = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


class AddedMcpServer(Struct, frozen=True, kw_only=True):
    """Server that was added: its file, and whether it starts without a question."""

    path: Path
    trusted: bool


class _McpServerPlace(Struct, frozen=True, kw_only=True):
    """Part of a file that can contain a server."""

    scope: str
    path: Path
    kind: SettingsSourceKind | None = None
    """Kind of a project's file, which needs trust; None for a file of the user."""
    section: tuple[str, ...] = ()
    """Path of the object that contains `mcpServers`."""


class McpServerAdmin:
    """MCP servers of one directory."""

    def __init__(
        self, cwd: Path, *, settings: str | None = None, given: Sequence[str] = (), strict: bool = False
    ) -> None:
        self.cwd = cwd
        self.settings: Settings = load_settings(cwd=cwd, given=settings)
        plugins = load_plugins(self.settings, cwd).build_mcp_documents()
        self.configured: ConfiguredMcpServers = load_mcp_servers(
            self.settings, given, strict=strict, cwd=cwd, plugins=plugins
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences about servers and files that cannot be used."""
        claude_json = read_claude_json(self.settings.home, self.cwd)
        others = (".allowedTools", ".hasTrustDialogAccepted")
        unused = (str(item) for item in claude_json.unused if not item.name.endswith(others))
        return (*self.configured.problems, *claude_json.problems, *unused)

    def list_servers(self) -> tuple[tuple[McpServerConfig, str], ...]:
        """Return every server with the reason why it is not started; empty if it is."""
        configured = self.configured
        return (
            *((server, "") for server in configured.servers),
            *((server, DISABLED_REASON) for server in configured.disabled),
            *((server, UNTRUSTED_REASON) for server in configured.untrusted),
        )

    def find_server(self, name: str) -> tuple[McpServerConfig, str]:
        """Return the server and that reason. Raises `SettingsError`."""
        for server, reason in self.list_servers():
            if server.name == name:
                return server, reason
        names = ", ".join(server.name for server, _ in self.list_servers())
        hint = f"Servers: {names}." if names else "No server is configured. Add one: shoal mcp add"
        raise SettingsError(f"There is no MCP server {name!r}. {hint}")

    def describe_server_without_secrets(self, server: McpServerConfig) -> dict[str, Any]:
        """Return its configuration without possible secrets."""
        match server.connection:
            case McpStdioConfig() as program:
                return {
                    "command": program.command,
                    "args": list(program.args),
                    "env": _hide_secrets(program.env),
                    "cwd": program.cwd,
                }
            case McpHttpConfig() as address:
                return {"url": address.url, "headers": _hide_secrets(address.headers)}

    async def probe_servers(self, names: Sequence[str] = ()) -> tuple[McpServerStatus, ...]:
        """Start the servers, list what they offer, stop them. Raises `SettingsError` for an unknown name."""
        chosen = self.configured.servers
        if names:
            found = [self.find_server(name) for name in names]
            for server, reason in found:
                if reason:
                    raise SettingsError(f"The MCP server {server.name} was not started: {reason}.")
            chosen = tuple(server for server, _ in found)
        clock = SystemClock()
        processes = GuardedProcessLauncher(clock)
        try:
            with tempfile.TemporaryDirectory(prefix="shoal-") as logs:
                host = create_mcp_client_context(
                    self.settings,
                    root=self.cwd,
                    logs=Path(logs),
                    processes=processes,
                    clock=clock,
                    note=lambda _: None,
                )
                probed = replace(self.configured, servers=chosen, disabled=(), untrusted=())
                async with SessionMcpServerManager(
                    probed,
                    host,
                    startup_wait=2 * CONNECT_TIMEOUT,
                ) as servers:
                    await servers.wait_until_ready()
                    statuses = servers.list_statuses()
                return tuple(_quote_output(status, Path(logs)) for status in statuses)
        finally:
            await processes.aclose()

    async def log_in_to_server(self, name: str, show: Callable[[str], Awaitable[None]]) -> tuple[str, ...]:
        """Log in and return the available tools. Raises `SettingsError` and the errors of the login."""
        connection = self._find_login_connection(name)
        try:
            from shoal.tools.mcp import sdk_connection
        except ModuleNotFoundError as error:
            raise MissingPackageExtra("Talking to MCP servers", "mcp") from error
        return await sdk_connection.log_in_to_mcp_server(
            connection,
            open_mcp_token_file(self.settings.home, name, connection.url),
            show,
            proxy=self.settings.proxies.find_proxy(connection.url),
            tls=read_tls_variables(self.settings.environ),
        )

    def add_server(self, name: str, given: Mapping[str, Any], *, scope: str) -> AddedMcpServer:
        """Add a server to the file of a scope, where Claude Code looks for it too.

        The user's own servers may have secrets, so they are not written below the project. Raises
        `SettingsError`, `StateFileError` and `LockUnavailable`.
        """
        is_shared = scope == "project"
        path = self._get_mcp_config_path(scope) if is_shared else choose_claude_json(self.settings.home)
        if not _ADDABLE_NAME.fullmatch(name):
            raise SettingsError(
                f"Cannot add an MCP server with the name {name!r}. A name can contain only letters, digits, "
                "hyphens and underscores."
            )
        try:
            parse_mcp_server(name, given, str(path))
        except InvalidMcpServerConfigError as error:
            raise SettingsError(f"Cannot add the MCP server {name}: {error}.") from error
        section = ("projects", str(self.cwd)) if scope == "local" else ()
        # A server in the settings of the same scope would hide this one.
        hiding = [
            place.path
            for place in self._list_places(name)
            if place.scope == scope and not place.section and place.path.name != PROJECT_FILE
        ]
        entry = {key: value for key, value in given.items() if value not in ([], {})}
        if hiding or add_or_remove_mcp_server(path, name, entry, section=section):
            raise SettingsError(
                f"There is already an MCP server {name} in {(*hiding, path)[0]}. To replace it, remove it "
                f"first: shoal mcp remove {name} --scope {scope}"
            )
        return AddedMcpServer(path=path, trusted=not is_shared or self._trust_added_server(path, name, entry))

    def _trust_added_server(self, path: Path, name: str, entry: Mapping[str, Any]) -> bool:
        """Trust a server that the user added to a shared file; return False if others there are not trusted.

        The answer applies to the whole file, so it must not include servers that the user has not seen.
        """
        others = [each for each in self.settings.findings.escalations if each.document.path == path]
        if any(each.trust != "trusted" for each in others):
            return False
        document = SettingsDocument(name=str(path), kind="mcp", path=path, text="", raw={})
        added = PermissionEscalation(
            document=document, keys=("mcpServers", name), value=dict(entry), trust="trusted"
        )
        save_project_trust_decision(self.settings, self.cwd, trusted=True, escalations=[*others, added])
        return True

    def remove_server(self, name: str, *, scope: str | None) -> tuple[Path, ...]:
        """Remove a server from the files of one scope; return the files. Raises as `add_server` does.

        Without a scope, raises `SettingsError` if files of several scopes have the server.
        """
        places = [each for each in self._list_places(name) if scope in (None, each.scope)]
        if len(scopes := dict.fromkeys(each.scope for each in places)) > 1:
            choices = " or ".join(f"--scope {each}" for each in scopes)
            raise SettingsError(f"Several files have an MCP server {name!r}. Choose one: {choices}.")
        for place in places:
            self._remove_from_place(place, name)
        return tuple(dict.fromkeys(place.path for place in places))

    def _remove_from_place(self, place: _McpServerPlace, name: str) -> None:
        """Remove a server; the trust in the rest of the file stays."""
        was_trusted = any(
            each.document.path == place.path and each.trust == "trusted"
            for each in self.settings.findings.escalations
        )
        add_or_remove_mcp_server(place.path, name, None, section=place.section)
        if was_trusted and place.kind is not None:
            self._trust_changed_file(place.path, place.kind)

    def _list_places(self, name: str) -> list[_McpServerPlace]:
        """Return the places in files that have a server. Raises `SettingsError`."""
        home, cwd = self.settings.home, self.cwd
        settings = find_settings_path("projectSettings", self.settings, cwd)
        files = {
            settings: _McpServerPlace(scope="project", path=settings, kind="project"),
            **{
                path: _McpServerPlace(scope="project", path=path, kind="mcp")
                for path in (directory / PROJECT_FILE for directory in iter_project_directories(cwd))
            },
        }
        local, user = map(self._get_mcp_config_path, ("local", "user"))
        files[local] = _McpServerPlace(scope="local", path=local, kind="local")
        # In the home directory, the files of all scopes are the user's.
        files[user] = _McpServerPlace(scope="user", path=user)
        found = [place for path, place in files.items() if has_mcp_server(path, name)]
        claude_json = find_claude_json(home)
        if claude_json is not None:
            found += (
                _McpServerPlace(scope=scope, path=claude_json, section=section)
                for scope, sections in find_server_sections(home, cwd, name).items()
                for section in sections
            )
        return found

    def log_out_of_server(self, name: str) -> bool:
        """Remove the tokens of a server; return True if there were any. Raises `SettingsError`."""
        connection = self._find_login_connection(name)
        return open_mcp_token_file(self.settings.home, name, connection.url).remove()

    def _find_login_connection(self, name: str) -> McpHttpConfig:
        """Return the connection of a server to which a user can log in. Raises `SettingsError`."""
        server, _ = self.find_server(name)
        try:
            connection = expand_mcp_server_variables(server, self.settings.tool_environment).connection
        except InvalidMcpServerConfigError as error:
            raise SettingsError(f"Cannot use the MCP server {name}: {error}.") from error
        if not isinstance(connection, McpHttpConfig):
            raise SettingsError(f"The MCP server {name} is a local program, so it needs no login.")
        return connection

    def forget_project_choices(self) -> tuple[str, ...]:
        """Remove the user's decisions on servers in `.mcp.json`; return the origins of those that remain.

        Raises `SettingsError` and `StateFileError`.
        """
        home, cwd = self.settings.home, self.cwd
        forget_mcp_trust(home, cwd)
        forget_server_choices(home, cwd)
        path = self._get_mcp_config_path("local")
        if path.parent != home and path.exists():
            edit_json_file(path, _remove_server_choices)
        return tuple(
            document.locate_key((key,))
            for document in load_settings(cwd=cwd).documents
            if document.is_user_controlled
            for key in SERVER_CHOICE_KEYS
            if document.raw.get(key)
        )

    def _trust_changed_file(self, path: Path, kind: SettingsSourceKind) -> None:
        """Trust the user's own change, as they made it at the command line."""
        text = path.read_text(encoding="utf-8-sig")
        document = parse_settings_document(text, name=str(path), kind=kind, path=path)
        if kind == "mcp":
            document = replace(document, raw={"mcpServers": document.raw.get("mcpServers") or {}})
        user = merge_user_controlled_documents(self.settings.documents)
        # Written second: a crash in between asks about the file again.
        save_trust_in_documents(self.settings.home, self.cwd, [document], user)

    def _get_mcp_config_path(self, scope: str) -> Path:
        if scope == "project":
            return self.cwd / PROJECT_FILE
        return find_settings_path(
            "localSettings" if scope == "local" else "userSettings", self.settings, self.cwd
        )


def _quote_output(status: McpServerStatus, logs: Path) -> McpServerStatus:
    """Replace the path of a log, which is about to be removed, by the end of the log."""
    reason, hint, path = status.detail.rpartition(LOG_HINT)
    if not hint or Path(path).parent != logs:
        return status
    lines = Path(path).read_text(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return replace(status, detail=f"{reason}. Its output ends with: {last[:_MAX_QUOTED_CHARS]}")


def _remove_server_choices(raw: dict[str, Any]) -> None:
    for key in SERVER_CHOICE_KEYS:
        raw.pop(key, None)


def _hide_secrets(texts: Mapping[str, str]) -> dict[str, str]:
    """Hide values of variables with secret names; references to variables stay."""
    return {
        name: HIDDEN_VALUE if "${" not in value and is_secret_variable_name(name) else value
        for name, value in texts.items()
    }
