"""Instructions of MCP servers for one agent: each server's text enters its conversation once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec import Struct

from shoal.app.model_notices import format_session_notice
from shoal.core.conversation.messages import Message, TextBlock
from shoal.core.extensions.mcp_servers import (
    MCP_PREFIX,
    READ_RESOURCE_TOOL,
    McpServerStatus,
    format_mcp_tool_prefix,
)
from shoal.core.text.control_tags import escape_control_tags
from shoal.core.text.text_format import to_one_line
from shoal.wire.notification_text import format_system_reminder

MAX_TOTAL_CHARACTERS = 40_000
"""Maximum characters of the instructions of all servers in one conversation."""


class InstructedServer(Struct, frozen=True, kw_only=True):
    """A server that gave instructions."""

    text: str
    """Message block with its instructions."""
    short_text: str
    """Message block that says that they are left out."""
    tool_prefix: str
    """Start of the names of its tools; empty if it has none."""
    resources: bool

    def is_usable(self, tools: Collection[str], *, is_lead: bool) -> bool:
        """Return True if an agent with these tools can use the server."""
        if self.tool_prefix:
            return any(name.startswith(self.tool_prefix) for name in tools)
        # Without tools and resources it has prompts, which a person types.
        return READ_RESOURCE_TOOL in tools if self.resources else is_lead


def list_instructed_servers(statuses: Iterable[McpServerStatus]) -> tuple[InstructedServer, ...]:
    """Return the servers with instructions."""
    return tuple(_describe_server(each) for each in statuses if each.instructions)


def _describe_server(status: McpServerStatus) -> InstructedServer:
    name = to_one_line(status.name)
    text = format_session_notice(
        "server_instructions", name=name, text=escape_control_tags(status.instructions)
    )
    has_tools = any(tool.startswith(MCP_PREFIX) for tool in status.tools)
    return InstructedServer(
        text=format_system_reminder(text),
        short_text=format_system_reminder(format_session_notice("server_instructions_omitted", name=name)),
        tool_prefix=format_mcp_tool_prefix(status.name) if has_tools else "",
        resources=status.resources,
    )


class AgentServerInstructions:
    """Instructions that one agent gets when a server has connected."""

    def __init__(
        self,
        own_servers: tuple[InstructedServer, ...],
        list_servers: Callable[[], tuple[InstructedServer, ...]],
        *,
        is_lead: bool,
    ) -> None:
        """`list_servers` returns the servers of the session, the same object while nothing changes."""
        self._own_servers = own_servers
        self._list_servers = list_servers
        self._is_lead = is_lead
        self._seen: tuple[object, ...] = ()

    def take_new_texts(self, tools: Collection[str], messages: Sequence[Message]) -> tuple[str, ...]:
        servers = self._list_servers()
        # A compaction or a rewind replaces the list of messages.
        now = (servers, tools, messages)
        if len(self._seen) == len(now) and all(map(_is_same, self._seen, now)):
            return ()
        self._seen = now
        usable = [
            each for each in (*self._own_servers, *servers) if each.is_usable(tools, is_lead=self._is_lead)
        ]
        if not usable:
            return ()
        delivered = {block.text for each in messages for block in each.content if type(block) is TextBlock}
        total = sum(len(each.text) for each in usable if each.text in delivered)
        texts: list[str] = []
        for each in usable:
            if each.text in delivered or each.short_text in delivered:
                continue
            fits = total + len(each.text) <= MAX_TOTAL_CHARACTERS
            total += len(each.text) if fits else 0
            texts.append(each.text if fits else each.short_text)
        return tuple(texts)


def _is_same(first: object, second: object) -> bool:
    return first is second
