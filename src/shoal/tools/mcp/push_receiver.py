"""Receives messages that a server pushes through its channel, once it is known to have declared one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.wire.mcp_codec import InvalidMcpChannelMessageError, parse_mcp_channel_message

if TYPE_CHECKING:
    from shoal.tools.mcp.managed_server import ManagedMcpServer

CHANNEL_CAPABILITY = "claude/channel"
MAX_BUFFERED = 20
"""Messages that may arrive before the server has declared its capabilities."""


class McpPushReceiver:
    """Receiver of the pushed messages of one connection."""

    def __init__(self, managed: ManagedMcpServer) -> None:
        self._managed = managed
        self._buffered: list[Any] = []
        self._is_declared: bool | None = None

    def forward_or_buffer_push(self, params: Any) -> None:
        if self._is_declared is not None:
            self._forward_push(params)
        elif len(self._buffered) < MAX_BUFFERED:
            self._buffered.append(params)
        else:
            self._managed.note_once(
                f"more than {MAX_BUFFERED} messages of its channel came too early; the rest is dropped."
            )

    def release_buffered_pushes(self, *, declared: bool) -> None:
        self._is_declared = declared
        buffered, self._buffered = self._buffered, []
        for params in buffered:
            self._forward_push(params)

    def _forward_push(self, params: Any) -> None:
        if not self._is_declared:
            self._managed.note_once(
                f"it sends messages of a channel, and does not declare the capability {CHANNEL_CAPABILITY}: "
                "they are dropped."
            )
            return
        try:
            push = parse_mcp_channel_message(params)
        except InvalidMcpChannelMessageError as error:
            self._managed.note_once(f"a message of its channel is dropped: {error}.")
            return
        self._managed.deliver_push(push)
