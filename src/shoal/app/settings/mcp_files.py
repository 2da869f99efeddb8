"""Configuration of MCP servers in settings, `.mcp.json` and flags, and changes to those files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.settings.claude_json import CLAUDE_JSON
from shoal.app.settings.foreign_settings import is_mcp_server_permitted
from shoal.app.settings.managed_switches import is_plugin_only
from shoal.app.settings.project_directories import iter_project_directories
from shoal.core.conversation.tools import Tool
from shoal.core.errors import SettingsError
from shoal.core.extensions.mcp_servers import (
    MCP_PREFIX,
    McpServerConfig,
    McpServerScope,
    McpServerStatus,
    McpStdioConfig,
)
from shoal.core.user_environment import UserEnvironment, get_user_environment
from shoal.wire.json_comments import blank_json_comments, decode_commented_json
from shoal.wire.json_line_numbers import find_json_key_line
from shoal.wire.mcp_codec import ParsedMcpServers, parse_mcp_servers
from shoal.wire.settings_codec import SettingsDocument

if TYPE_CHECKING:
    from shoal.app.settings.settings import Settings

PROJECT_FILE = ".mcp.json"
MANAGED_FILE = "managed-mcp.json"
MAX_FILE_BYTES = 1 << 20
_SCOPES: Mapping[str, McpServerScope] = {
    "managed": "enterprise",
    "local": "local",
    "private": "local",
    "project": "project",
    "mcp": "project",
    "user": "user",
}


class ConfiguredMcpServers(Struct, frozen=True, kw_only=True):
    """MCP servers of a session, each from its source with the highest precedence."""

    servers: tuple[McpServerConfig, ...]
    disabled: tuple[McpServerConfig, ...] = ()
    """Servers switched off by a setting."""
    untrusted: tuple[McpServerConfig, ...] = ()
    """Servers of the project that are not started before the user trusts them."""
    problems: tuple[str, ...] = ()
    managed_by: str = ""
    """Managed file that alone defines the servers; empty if there is none."""
    is_strict: bool = False
    """True if only the servers that a flag gives may run."""
    is_plugin_only: bool = False
    """True if only managed files and plug-ins may define servers."""
    switched_off: frozenset[str] = frozenset()
    """Names of servers that settings turn off in all files."""
    channel_names: frozenset[str] = frozenset()
    """Servers that may push messages to the lead."""
    relayed: tuple[McpServerStatus, ...] = ()
    """Servers of the program that drives the session, which provides their tools itself."""

    def __bool__(self) -> bool:
        return bool(self.servers or self.disabled or self.untrusted or self.problems)


def read_project_mcp_files(cwd: Path) -> tuple[tuple[SettingsDocument, ...], tuple[str, ...]]:
    """Return the `.mcp.json` of a directory and its parents in the repository, and the problems with them."""
    documents: list[SettingsDocument] = []
    problems: list[str] = []
    for directory in iter_project_directories(cwd):
        found, problem = _read_project_mcp_file(directory / PROJECT_FILE)
        documents += found
        problems += problem
    return tuple(documents), tuple(problems)


def _read_project_mcp_file(path: Path) -> tuple[tuple[SettingsDocument, ...], tuple[str, ...]]:
    """Return a project's `.mcp.json` as an untrusted document, or the problems with it."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return (), (f"{path} is larger than {MAX_FILE_BYTES >> 20} MB, so it is ignored.",)
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        # A directory is a placeholder of the sandbox, or of no use.
        return (), ()
    except (OSError, UnicodeDecodeError) as error:
        return (), (f"Cannot read {path}, so its MCP servers are not available: {error}.",)
    try:
        servers = _parse_mcp_server_json(text, str(path))
    except SettingsError as error:
        return (), (f"{error} Its MCP servers are not available.",)
    # Nothing else in that file is a setting.
    raw = {"mcpServers": servers}
    plain = blank_json_comments(text)
    return (SettingsDocument(name=str(path), kind="mcp", path=path, text=plain, raw=raw),), ()


def read_managed_mcp_files(managed: Sequence[Path]) -> Iterator[SettingsDocument]:
    """Yield the managed servers, next to managed settings. Raises `SettingsError`: nothing else may run."""
    for path in (each.with_name(MANAGED_FILE) for each in managed):
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(
                f"Cannot read the managed MCP servers in {path}: {error}.", path=path
            ) from error
        raw = {"mcpServers": _parse_mcp_server_json(text, str(path))}
        text = blank_json_comments(text)
        yield SettingsDocument(name=str(path), kind="managed", path=path, text=text, raw=raw)


def find_managed_mcp_documents(documents: Sequence[SettingsDocument]) -> list[SettingsDocument]:
    """Return the files that alone define the MCP servers; usually there is none."""
    return [each for each in documents if each.path is not None and each.path.name == MANAGED_FILE]


def load_mcp_servers(
    settings: Settings,
    given: Sequence[str | Mapping[str, Any]] = (),
    *,
    strict: bool = False,
    cwd: Path,
    plugins: Sequence[SettingsDocument] = (),
) -> ConfiguredMcpServers:
    """Load the servers. Raises `SettingsError` for an unusable flag; any other error becomes a problem."""
    sources = [parse_mcp_config_option(each, cwd, settings.user) for each in given]
    disabled: set[str] = set()
    switched_off: set[str] = set()
    if managed := find_managed_mcp_documents(settings.documents):
        sources = [_read_document_mcp_servers(document) for document in managed]
    elif not strict:
        documents = sorted(settings.documents, key=lambda document: document.kind == "user")
        if is_plugin_only(settings.documents, "mcp"):
            documents = [document for document in documents if document.kind == "managed"]
        sources += (_read_document_mcp_servers(document) for document in (*documents, *plugins))
        disabled, switched_off = (
            {name for document in settings.documents for name in _iter_names(document, key)}
            for key in ("disabledMcpjsonServers", "disabledMcpServers")
        )
    servers: dict[str, McpServerConfig] = {}
    problems: dict[str, str] = {}
    for source in sources:
        for name, problem in source.problems:
            if name not in servers:
                problems.setdefault(name, problem)
        for server in source.servers:
            if server.name not in problems:
                servers.setdefault(server.name, server)
    permitted = [server for server in servers.values() if is_server_permitted(settings, server)]
    refused = tuple(
        f"{server.origin}: the MCP server {server.name} is ignored because allowedMcpServers or "
        f"deniedMcpServers does not permit it."
        for server in servers.values()
        if server not in permitted
    )
    found, duplicates = _drop_same_prefix_mcp_servers(permitted)

    def is_disabled(server: McpServerConfig) -> bool:
        return server.name in switched_off or (server.name in disabled and _is_from_project_mcp_file(server))

    return ConfiguredMcpServers(
        servers=tuple(server for server in found if not is_disabled(server)),
        disabled=tuple(filter(is_disabled, found)),
        untrusted=() if strict or managed else tuple(_iter_untrusted_mcp_servers(settings, servers)),
        problems=(*problems.values(), *duplicates, *refused),
        managed_by=managed[0].name if managed else "",
        is_strict=strict,
        is_plugin_only=is_plugin_only(settings.documents, "mcp"),
        switched_off=frozenset(switched_off),
    )


def collect_mcp_server_variables(documents: Sequence[SettingsDocument]) -> dict[str, str]:
    """Return the environment variables and headers that files give to servers, for redaction."""
    found: dict[str, str] = {}
    for server in (each for document in documents for each in _read_document_mcp_servers(document).servers):
        values = (
            server.connection.env
            if isinstance(server.connection, McpStdioConfig)
            else server.connection.headers
        )
        found |= {name.replace("-", "_"): value for name, value in values.items() if "${" not in value}
    return found


def has_mcp_server(path: Path, name: str) -> bool:
    """Return True if a file has the server; an unreadable file has none. Raises `SettingsError`."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return False
    return name in _parse_mcp_server_json(text, str(path))


def add_or_remove_mcp_server(
    path: Path, name: str, entry: Mapping[str, Any] | None, *, section: Sequence[str] = ()
) -> bool:
    """Put a server into a file, or remove it with None; return whether it existed. Raises `SettingsError`.

    A server that exists is not replaced: its variables and headers would be lost.
    `section` is the path of the object that contains `mcpServers`.
    """
    from shoal.app.settings.settings_writer import edit_claude_json, edit_json_file

    def edit_servers(raw: dict[str, Any]) -> bool:
        for key in section:
            raw = raw.setdefault(key, {})
            if not isinstance(raw, dict):
                raise SettingsError(f"{path}: {key} is not an object. Fix it by hand.", path=path)
        servers = raw.setdefault("mcpServers", {})
        if not isinstance(servers, dict):
            raise SettingsError(f"{path}: mcpServers is not an object. Fix it by hand.", path=path)
        existed = name in servers
        if entry is None:
            servers.pop(name, None)
        elif not existed:
            servers[name] = dict(entry)
        if not servers:
            del raw["mcpServers"]
        return existed

    edit_file = edit_claude_json if path.name == CLAUDE_JSON else edit_json_file
    return edit_file(path, edit_servers)


def _parse_mcp_server_json(text: str, name: str) -> dict[str, Any]:
    try:
        raw, _ = decode_commented_json(text) if text.strip() else ({}, "")
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise SettingsError(f"{name}:{line}: not valid JSON: {getattr(error, 'msg', error)}.") from error
    servers = raw.get("mcpServers", {}) if isinstance(raw, dict) else None
    if not isinstance(servers, dict):
        raise SettingsError(f'{name}:1: write MCP servers as {{"mcpServers": {{"name": {{…}}}}}}.')
    return servers


def parse_mcp_config_option(
    given: str | Mapping[str, Any], cwd: Path, user: UserEnvironment | None = None
) -> ParsedMcpServers:
    """Parse the value of one `--mcp-config`. Raises `SettingsError`.

    In a path, `~` is the home of `user`, by default that of the process.
    """
    name, text = "--mcp-config", ""
    if isinstance(given, Mapping):
        text = json.dumps(dict(given))
    elif given.lstrip().startswith("{"):
        text = given
    else:
        path = cwd / (user or get_user_environment()).expand_home(given)
        name = str(path)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            message = f"--mcp-config takes JSON or a file path, but {path} cannot be read: {reason}."
            raise SettingsError(message, path=path) from error
    servers = _parse_mcp_server_json(text, name)
    text = blank_json_comments(text)
    if not servers and '"mcpServers"' not in text and text.strip().strip("{} \n"):
        raise SettingsError(f'{name}: it has no "mcpServers". Write {{"mcpServers": {{"name": {{…}}}}}}.')
    return parse_mcp_servers(servers, lambda key: f"{name}:{find_json_key_line(text, ('mcpServers', key))}")


def is_server_permitted(settings: Settings, server: McpServerConfig) -> bool:
    """Return True if `allowedMcpServers` and `deniedMcpServers` of all files permit an MCP server."""
    connection = server.connection
    command: tuple[str, ...] = ()
    url = ""
    if isinstance(connection, McpStdioConfig):
        command = (connection.command, *connection.args)
    else:
        url = connection.url
    return is_mcp_server_permitted(settings.documents, server.name, command, url)


def check_relayed_server(settings: Settings, server: McpServerStatus) -> McpServerStatus:
    """Return the status of a server of the program that drives the session; the same lists apply to it."""
    if is_mcp_server_permitted(settings.documents, server.name, (), ""):
        return server
    reason = "allowedMcpServers or deniedMcpServers in the settings does not permit it"
    return replace(server, status="disabled", detail=reason, tools=())


def select_permitted_mcp_tools(tools: Iterable[Tool], settings: Settings) -> list[Tool]:
    """Return the tools of a caller without those of MCP servers that the settings do not permit."""
    return [
        tool
        for tool in tools
        if not tool.schema.name.startswith(MCP_PREFIX)
        or is_mcp_server_permitted(settings.documents, _find_server_name(tool), (), "")
    ]


def _find_server_name(tool: Tool) -> str:
    server = getattr(tool, "server", None)
    name = getattr(server, "name", None)
    return name if isinstance(name, str) else tool.schema.name.removeprefix(MCP_PREFIX).partition("__")[0]


def _read_document_mcp_servers(document: SettingsDocument) -> ParsedMcpServers:
    parsed = parse_mcp_servers(
        document.raw.get("mcpServers") or {}, lambda name: document.locate_key(("mcpServers", name))
    )
    scope = _SCOPES.get(document.kind, "dynamic")
    return replace(parsed, servers=tuple(replace(server, scope=scope) for server in parsed.servers))


def _iter_names(document: SettingsDocument, key: str) -> Iterator[str]:
    names = document.raw.get(key)
    yield from names if isinstance(names, list) else ()


def _is_from_project_mcp_file(server: McpServerConfig) -> bool:
    return f"{PROJECT_FILE}:" in server.origin


def _iter_untrusted_mcp_servers(
    settings: Settings, configured: Mapping[str, McpServerConfig]
) -> Iterator[McpServerConfig]:
    for escalation in settings.findings.untrusted_escalations:
        if escalation.keys[0] == "mcpServers" and escalation.keys[-1] not in configured:
            entry = {escalation.keys[-1]: escalation.value}
            yield from parse_mcp_servers(entry, lambda _, at=escalation: at.location).servers  # type: ignore[misc]


def _drop_same_prefix_mcp_servers(servers: Any) -> tuple[list[McpServerConfig], list[str]]:
    """Drop servers whose tool names would be the same as those of another server."""
    by_prefix: dict[str, McpServerConfig] = {}
    problems: list[str] = []
    for server in servers:
        other = by_prefix.setdefault(server.tool_name_prefix, server)
        if other is not server:
            problems.append(
                f"{server.origin}: the MCP server {server.name} is ignored because its tools would have "
                f"the same names as those of {other.name} ({other.origin}). Rename one of them."
            )
    return list(by_prefix.values()), problems
