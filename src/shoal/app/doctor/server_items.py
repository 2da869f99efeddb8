"""MCP servers and plug-ins, and the parts of files that are left out, with what Shoal does with each."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from shoal.app.definitions.agent_trust import find_project_escalations
from shoal.app.definitions.installed_plugins import find_enabled_plugin_ids, list_installed_plugin_ids
from shoal.app.definitions.plugin_set import PluginSet
from shoal.app.doctor.claude_item import PLUGIN_ONLY_ADVICE, TRUST_ADVICE, ClaudeItem
from shoal.app.doctor.setting_items import list_hook_items
from shoal.app.settings.claude_json import find_claude_json, list_top_keys, read_claude_json
from shoal.app.settings.claude_keys import CLAUDE_KEYS
from shoal.app.settings.managed_switches import is_plugin_only
from shoal.app.settings.mcp_files import load_mcp_servers
from shoal.app.settings.settings import Settings
from shoal.core.extensions.mcp_servers import McpServerConfig, McpStdioConfig
from shoal.wire.mcp_codec import UnsetMcpConfigVariableError, expand_mcp_server_variables

_GLOBAL_PREFERENCES = frozenset(
    {"autoConnectIde", "autoInstallIdeExtension", "autoUpdates", "verbose"}
    | {key.name for key in CLAUDE_KEYS} - {"mcpServers"}
)
"""Keys that `.claude.json` may contain, of which Shoal reads only MCP servers and trust."""
_OAUTH_ADVICE = "`shoal mcp login` uses only clientId and callbackPort"


def list_mcp_server_items(settings: Settings, cwd: Path, plugins: PluginSet) -> Iterator[ClaudeItem]:
    found = load_mcp_servers(settings, cwd=cwd, plugins=plugins.build_mcp_documents())
    is_installed = importlib.util.find_spec("mcp") is not None
    unusable = {
        server.name: problem for server in found.servers if (problem := _find_problem(settings, server))
    }
    used = {
        (server.origin.rpartition(":")[0], server.name)
        for server in found.servers
        if is_installed and server.name not in unusable
    }
    disabled = {server.name for server in found.disabled}
    for document in (*settings.documents, *plugins.build_mcp_documents()):
        for name, server in (document.raw.get("mcpServers") or {}).items():
            is_used = (document.name, name) in used
            reason = "it is disabled" if name in disabled else _find_server_problem(found.problems, name)
            reason = reason or unusable.get(name, "")
            if document.kind != "plugin" and is_plugin_only(settings.documents, "mcp"):
                reason = PLUGIN_ONLY_ADVICE
            if not is_installed:
                reason = "the MCP client is not installed: pip install 'shoal[mcp]'"
            yield ClaudeItem(
                file=document.name,
                item=f"mcpServers.{name}",
                use="used" if is_used else "not used",
                advice="" if is_used else reason or "another file with this server takes precedence",
            )
            oauth = server.get("oauth") if isinstance(server, dict) else None
            for key in oauth if isinstance(oauth, dict) and is_used else ():
                is_known = key in ("clientId", "callbackPort")
                yield ClaudeItem(
                    file=document.name,
                    item=f"mcpServers.{name}.oauth.{key}",
                    use="used" if is_known else "not used",
                    advice="" if is_known else _OAUTH_ADVICE,
                )


def _find_problem(settings: Settings, server: McpServerConfig) -> str:
    """Return why a server cannot start; empty if only an attempt could tell."""
    try:
        server = expand_mcp_server_variables(server, settings.tool_environment)
    except UnsetMcpConfigVariableError as error:
        return str(error)
    if not isinstance(server.connection, McpStdioConfig):
        return ""
    program = server.connection
    path = program.env.get("PATH") or settings.tool_environment.get("PATH", os.defpath)
    # A relative path starts at the server's directory.
    is_missing = "/" not in program.command or program.command.startswith("/")
    is_missing = is_missing and shutil.which(program.command, path=path) is None
    return f"there is no program {program.command}" if is_missing else ""


def _find_server_problem(problems: Iterable[str], name: str) -> str:
    return next((problem for problem in problems if f"the MCP server {name} " in problem), "")


def list_left_out_items(settings: Settings, cwd: Path) -> Iterator[ClaudeItem]:
    for each in find_project_escalations(settings, cwd):
        if each.trust != "trusted":
            name = each.document.name
            yield ClaudeItem(file=name, item=each.key, use="not used", advice=TRUST_ADVICE)
    path = find_claude_json(settings.home)
    for problem in read_claude_json(settings.home, cwd).problems:
        yield ClaudeItem(file=str(path), item="file", use="not used", advice=problem)
    for item in settings.findings.unused_items:
        if item.name == "file" or (path is not None and item.location == str(path)):
            yield ClaudeItem(file=item.location, item=item.name, use="not used", advice=item.reason)
    for key in () if path is None else list_top_keys(path):
        if key in _GLOBAL_PREFERENCES:
            advice = "Shoal reads preferences only from settings files"
            yield ClaudeItem(file=str(path), item=key, use="not used", advice=advice)


def list_plugin_items(
    settings: Settings, plugins: PluginSet, servers: Collection[str]
) -> Iterator[ClaudeItem]:
    enabled = find_enabled_plugin_ids(settings)
    for id_ in list_installed_plugin_ids(settings.home):
        if id_ not in enabled:
            advice = "enabledPlugins does not enable it"
            file = str(settings.home / "plugins" / "installed_plugins.json")
            yield ClaudeItem(file=file, item=f"plug-in {id_}", use="not used", advice=advice)
    for document in plugins.build_hook_documents():
        yield from list_hook_items(settings, document, document.raw["hooks"], servers)
    for plugin in plugins.all:
        yield ClaudeItem(file=str(plugin.root), item=f"plug-in {plugin.name}", use="used")
        if (path := plugin.root / ".lsp.json").is_file():
            advice = "Shoal starts no language servers"
            yield ClaudeItem(file=str(path), item="file", use="not used", advice=advice)
    for plugin in plugins.untrusted:
        item = f"plug-in {plugin.name}"
        yield ClaudeItem(file=str(plugin.root), item=item, use="not used", advice=TRUST_ADVICE)
    for fault in plugins.faults:
        item = f"plug-in {fault.plugin}" if fault.plugin else "plug-ins"
        yield ClaudeItem(file=str(fault.path), item=item, use="not used", advice=str(fault))
