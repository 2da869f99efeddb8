"""MCP servers: their configuration, their status in a session, and the names of their tools."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from msgspec import Struct

LONGEST = 64
"""Length of a tool name that every provider accepts."""
_LONGEST_SERVER = 40
PREFIX = "mcp__"


class Program(Struct, frozen=True, kw_only=True):
    """Local server that communicates over standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    """Working directory relative to the project; None is the project itself."""


class Address(Struct, frozen=True, kw_only=True):
    """Remote server with a URL."""

    url: str
    headers: Mapping[str, str] = {}
    transport: Literal["http", "sse"] = "http"


class Server(Struct, frozen=True, kw_only=True):
    name: str
    reach: Program | Address
    origin: str
    """File and line of its configuration, or the flag, or the agent that defines it."""

    def __repr__(self) -> str:
        return f"Server({self.name}, {self.origin})"  # env and headers may hold keys

    @property
    def kind(self) -> str:
        return "stdio" if isinstance(self.reach, Program) else self.reach.transport

    @property
    def prefix(self) -> str:
        return server_prefix(self.name)


class Push(Struct, frozen=True, kw_only=True):
    """Unsolicited message that a server sends through its channel."""

    content: str
    meta: Mapping[str, str] = {}
    left_out: int = 0
    """Number of characters that were cut from the content."""


Status: TypeAlias = Literal["pending", "connected", "needs-auth", "failed", "disabled"]


class ServerStanding(Struct, frozen=True, kw_only=True):
    """Status of a server in a session, for people and programs."""

    name: str
    status: Status
    kind: str
    origin: str
    detail: str = ""
    """Reason why it is not connected, and what to do."""
    version: str = ""
    """Negotiated protocol version."""
    tools: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    resources: bool = False


class PromptArgument(Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    required: bool = False


class OfferedPrompt(Struct, frozen=True, kw_only=True):
    """Prompt of a server; its slash command is `/` and its name."""

    name: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


def server_prefix(server: str) -> str:
    """Return the prefix of the server's tool names; rules split names at the double underscore."""
    plain = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]", "_", server)).strip("_") or "server"
    return f"{PREFIX}{_cut(plain, _LONGEST_SERVER)}__"


def tool_name(server: str, tool: str) -> str:
    return _cut(server_prefix(server) + re.sub(r"[^A-Za-z0-9_-]", "_", tool), LONGEST)


def servers_of(tools: Iterable[str]) -> tuple[str, ...]:
    """Return the servers named in these tool names."""
    named = (tool.removeprefix(PREFIX).partition("__")[0] for tool in tools if tool.startswith(PREFIX))
    return tuple(dict.fromkeys(named))


def is_meant(pattern: str, server: str) -> bool:
    """Return True if an entry of `requiredMcpServers` matches this server."""
    return any(fnmatchcase(name.lower(), pattern.lower()) for name in (server, server_prefix(server)[5:-2]))


def _cut(name: str, longest: int) -> str:
    if len(name) <= longest:
        return name
    # A hash keeps long names with the same beginning distinct.
    return f"{name[: longest - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
