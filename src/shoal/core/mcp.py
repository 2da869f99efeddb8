"""MCP servers as people configure them, how they stand in a session, and what their tools are called."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from msgspec import Struct

LONGEST = 64
"""Characters of a tool's name that every provider takes."""
_LONGEST_SERVER = 40
PREFIX = "mcp__"


class Program(Struct, frozen=True, kw_only=True):
    """A server that is started here and spoken to through its standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    """Relative to the project; None is the project itself."""


class Address(Struct, frozen=True, kw_only=True):
    """A server that runs elsewhere."""

    url: str
    headers: Mapping[str, str] = {}
    transport: Literal["http", "sse"] = "http"


class Server(Struct, frozen=True, kw_only=True):
    name: str
    reach: Program | Address
    origin: str
    """The file and line it is configured at, or the flag, or the agent whose own it is."""

    def __repr__(self) -> str:
        return f"Server({self.name}, {self.origin})"  # env and headers may hold keys

    @property
    def kind(self) -> str:
        return "stdio" if isinstance(self.reach, Program) else self.reach.transport

    @property
    def prefix(self) -> str:
        return server_prefix(self.name)


class Push(Struct, frozen=True, kw_only=True):
    """A message that a server sends through its channel, without being asked."""

    content: str
    meta: Mapping[str, str] = {}
    left_out: int = 0
    """Characters of the content that are not here."""


Status: TypeAlias = Literal["pending", "connected", "needs-auth", "failed", "disabled"]


class ServerStanding(Struct, frozen=True, kw_only=True):
    """How a server stands, for people and programs."""

    name: str
    status: Status
    kind: str
    origin: str
    detail: str = ""
    """Why it is not connected, and what to do."""
    version: str = ""
    """Of the protocol that is spoken."""
    tools: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    resources: bool = False


class PromptArgument(Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    required: bool = False


class OfferedPrompt(Struct, frozen=True, kw_only=True):
    """A prompt of a server; as a slash command it is `/` and its name."""

    name: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


def server_prefix(server: str) -> str:
    """What the names of all its tools begin with; rules split names at the double underscore."""
    plain = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]", "_", server)).strip("_") or "server"
    return f"{PREFIX}{_cut(plain, _LONGEST_SERVER)}__"


def tool_name(server: str, tool: str) -> str:
    return _cut(server_prefix(server) + re.sub(r"[^A-Za-z0-9_-]", "_", tool), LONGEST)


def servers_of(tools: Iterable[str]) -> tuple[str, ...]:
    """The servers, as they stand in the names of their tools."""
    named = (tool.removeprefix(PREFIX).partition("__")[0] for tool in tools if tool.startswith(PREFIX))
    return tuple(dict.fromkeys(named))


def is_meant(pattern: str, server: str) -> bool:
    """Whether an entry of `requiredMcpServers` means this server."""
    return any(fnmatchcase(name.lower(), pattern.lower()) for name in (server, server_prefix(server)[5:-2]))


def _cut(name: str, longest: int) -> str:
    if len(name) <= longest:
        return name
    # Two long names that begin alike stay two.
    return f"{name[: longest - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
