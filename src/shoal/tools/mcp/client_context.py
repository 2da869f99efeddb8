"""Context of MCP connections, the calls that use them, and their errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from shoal.core.clock import Clock, Deadline
from shoal.core.conversation.model_requests import ToolSchema
from shoal.core.conversation.tools import ToolContext
from shoal.core.errors import ShoalError
from shoal.core.extensions.mcp_servers import McpPrompt
from shoal.core.ports import ProcessLauncher
from shoal.core.tls_contexts import TlsVariables

CONNECT_TIMEOUT = 30.0
"""Seconds allowed for a server to start and list its features."""
MAX_INSTRUCTION_CHARACTERS = 4_000
"""Maximum characters of a server's instructions."""
MAX_DEADLINE_FACTOR = 20
"""Time limit of a call that keeps reporting progress, as a multiple of its deadline."""


class McpConnectionLost(ShoalError):
    """The connection is gone; the text is the reason, phrased as the rest of a clause."""


class McpRequestRefused(ShoalError):
    """The server answered with a protocol error; the text is its message."""


class McpLoginRequired(ShoalError):
    """The server requires a login."""


class McpTokenStore(Protocol):
    """Stored login of one server, kept between sessions."""

    def read(self) -> bytes:
        """Return the stored bytes, empty if there was no login."""
        ...

    def write(self, content: bytes) -> None: ...


class McpClientContext(Struct, frozen=True, kw_only=True):
    """Dependencies and limits shared by all MCP servers of a session."""

    processes: ProcessLauncher
    clock: Clock
    root: Path
    """Project root."""
    env: Mapping[str, str]
    """Environment of server programs; also expands variables in configurations."""
    logs: Path
    """Directory for the logs of the servers' standard error."""
    deadline: float
    """Seconds that one call may take without reporting progress."""
    deadline_setting: str = "shoal.mcp_deadline"
    """Name of the setting or variable that sets the deadline."""
    note: Callable[[str], None]
    tokens: Callable[[str, str], McpTokenStore]
    """Returns the token store for a server's name and address."""
    find_proxy: Callable[[str], str | None] = lambda url: None
    """Returns the proxy for requests to a URL."""
    tls: TlsVariables = TlsVariables()
    """Variables that name certificates."""
    connect_timeout: float = CONNECT_TIMEOUT
    """Seconds that a server may take to start."""
    version: str = ""
    """Our version, sent to servers."""


class ListedMcpTool(Struct, frozen=True, kw_only=True):
    name: str
    """Name on the server."""
    schema: ToolSchema
    reads_only: bool


class McpServerFeatures(Struct, frozen=True, kw_only=True):
    """Tools, prompts and resources that a server offers."""

    tools: tuple[ListedMcpTool, ...] = ()
    prompts: tuple[McpPrompt, ...] = ()
    prompt_names: Mapping[str, str] = {}
    """The server's own prompt names, by ours."""
    resources: bool = False
    instructions: str = ""
    """Text for models about the use of the server."""
    version: str = ""
    notes: tuple[str, ...] = ()
    """Reasons why parts of it cannot be used."""


def limit_server_instructions(text: str) -> str:
    """Return the instructions of a server without the characters that exceed the limit."""
    text = text.strip()
    if (omitted := len(text) - MAX_INSTRUCTION_CHARACTERS) <= 0:
        return text
    return f"{text[:MAX_INSTRUCTION_CHARACTERS]}\n[… {omitted:,} more characters are left out]"


class ActiveMcpCall(Struct, kw_only=True):
    """One call in progress: who is asked the server's questions, and how long the call may still take."""

    context: ToolContext
    deadline: Deadline
    seconds: float
    latest_end: float
    """Time at which the call ends, whatever progress it reports."""
    questions: int = 0

    def extend_deadline(self) -> None:
        """Extend the deadline after a sign of progress."""
        self.deadline.extend(min(self.seconds, self.latest_end - self.context.clock.monotonic()))

    def suspend_deadline(self) -> None:
        self.deadline.extend(float("inf"))

    def next_question_id(self) -> str:
        self.questions += 1
        return f"{self.context.call_id}-{self.questions}"
