"""MCP servers: their configuration, their status in a session, and the names of their tools."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct

MAX_TOOL_NAME_LENGTH = 64
"""Maximum length of a tool name that every provider accepts."""
_MAX_SERVER_NAME_LENGTH = 40
MCP_PREFIX = "mcp__"
READ_RESOURCE_TOOL = "ReadMcpResourceTool"


class McpStdioConfig(Struct, frozen=True, kw_only=True):
    """Local server that communicates over standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    """Working directory relative to the project; None is the project itself."""


class McpOAuthConfig(Struct, frozen=True, kw_only=True):
    """Client that somebody registered with the login server beforehand."""

    client_id: str = ""
    """Empty if Shoal registers a client itself."""
    callback_port: int = 0
    """Port of the registered redirect URL, `http://localhost:PORT/callback`; 0 for any free port."""


class McpHttpConfig(Struct, frozen=True, kw_only=True):
    """Remote server with a URL."""

    url: str
    headers: Mapping[str, str] = {}
    transport: Literal["http", "sse"] = "http"
    headers_helper: str = ""
    """Command that prints more headers as JSON before each connection."""
    oauth: McpOAuthConfig = McpOAuthConfig()


McpServerScope: TypeAlias = Literal["local", "user", "project", "enterprise", "dynamic"]
"""Where a server is configured: for you in one project, for you, in the project, in a managed file, or only
for this session."""


class McpServerConfig(Struct, frozen=True, kw_only=True):
    name: str
    connection: McpStdioConfig | McpHttpConfig
    origin: str
    """File and line of its configuration, or the flag, or the agent that defines it."""
    scope: McpServerScope = "dynamic"
    timeout: float | None = None
    """Seconds that a call may take without progress; None means the setting for all servers."""
    always_load: bool = False
    """True if the first request waits for it and its tools are never deferred."""

    def __repr__(self) -> str:
        return f"McpServerConfig({self.name}, {self.origin})"  # env and headers may hold keys

    @property
    def transport_type(self) -> str:
        return "stdio" if isinstance(self.connection, McpStdioConfig) else self.connection.transport

    @property
    def tool_name_prefix(self) -> str:
        return format_mcp_tool_prefix(self.name)


class McpChannelMessage(Struct, frozen=True, kw_only=True):
    """Unsolicited message that a server sends through its channel."""

    content: str
    meta: Mapping[str, str] = {}
    left_out: int = 0
    """Number of characters that were cut from the content."""


McpServerState: TypeAlias = Literal["pending", "connected", "needs-auth", "failed", "disabled"]
"""State of an MCP server."""


class McpServerStatus(Struct, frozen=True, kw_only=True):
    """Status of a server in a session, for people and programs."""

    name: str
    """Name of the server."""
    status: McpServerState
    """`pending`, `connected`, `needs-auth`, `failed` or `disabled`."""
    kind: str
    """Transport, for example `stdio` or `http`."""
    origin: str
    """File or option that configures it."""
    scope: McpServerScope = "dynamic"
    """`local`, `user`, `project`, `enterprise` (managed file) or `dynamic` (flag, agent or plug-in)."""
    detail: str = ""
    """Reason why it is not connected, and what to do."""
    version: str = ""
    """Negotiated protocol version."""
    tools: tuple[str, ...] = ()
    """Names of its tools, as models see them."""
    prompts: tuple[str, ...] = ()
    """Names of its prompts, which are slash commands."""
    resources: bool = False
    """True if it has resources."""
    instructions: str = ""
    """Its instructions for models, shortened."""


class McpPromptArgument(Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    required: bool = False


class McpPrompt(Struct, frozen=True, kw_only=True):
    """Prompt of a server; its slash command is `/` and its name."""

    name: str
    description: str = ""
    arguments: tuple[McpPromptArgument, ...] = ()


def format_mcp_tool_prefix(server: str) -> str:
    """Return the prefix of the server's tool names; rules split names at the double underscore."""
    plain = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]", "_", server)).strip("_") or "server"
    return f"{MCP_PREFIX}{_shorten_mcp_name(plain, _MAX_SERVER_NAME_LENGTH)}__"


def format_mcp_tool_name(server: str, tool: str) -> str:
    return _shorten_mcp_name(
        format_mcp_tool_prefix(server) + re.sub(r"[^A-Za-z0-9_-]", "_", tool), MAX_TOOL_NAME_LENGTH
    )


@lru_cache(maxsize=64)
def list_mcp_servers_of_tools(tools: tuple[str, ...]) -> tuple[str, ...]:
    """Return the servers named in these tool names."""
    servers = (
        tool.removeprefix(MCP_PREFIX).partition("__")[0] for tool in tools if tool.startswith(MCP_PREFIX)
    )
    return tuple(dict.fromkeys(servers))


def matches_mcp_server_pattern(pattern: str, server: str) -> bool:
    """Return True if an entry of `requiredMcpServers` matches this server."""
    return any(
        fnmatchcase(name.lower(), pattern.lower()) for name in (server, format_mcp_tool_prefix(server)[5:-2])
    )


def _shorten_mcp_name(name: str, max_length: int) -> str:
    if len(name) <= max_length:
        return name
    # A hash keeps long names with the same beginning distinct.
    return f"{name[: max_length - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
