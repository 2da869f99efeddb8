"""Channels: MCP servers named by the user that may push messages to the lead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import Message, user_message
from shoal.core.errors import SettingsError, StateFileError
from shoal.core.events import MessageAuthor
from shoal.core.extensions.mcp_servers import McpChannelMessage
from shoal.wire.notification_text import format_mcp_channel_drop_notice, format_mcp_channel_message

SERVER_PREFIX = "server:"
MAX_WAITING = 50
"""Maximum number of messages that wait for the lead, over all channels."""


def parse_mcp_channel_names(given: Iterable[str], where: str) -> frozenset[str]:
    """Parse the names of servers. Raises `SettingsError`."""
    names: set[str] = set()
    for entry in (part.strip() for text in given for part in text.split(",")):
        name = entry.removeprefix(SERVER_PREFIX)
        if not entry.startswith(SERVER_PREFIX) or not name:
            raise SettingsError(
                f"{where}: {entry!r} is not a channel. Write server:NAME with the name of an MCP server, "
                f"such as server:chat. List the servers: shoal mcp ls"
            )
        names.add(name)
    return frozenset(names)


class McpChannelSession(Protocol):
    """Methods of the session that channels use."""

    @property
    def can_be_woken(self) -> bool: ...

    def queue_message(self, message: Message, *, by: MessageAuthor, wakes: bool) -> str: ...

    def note(self, text: str) -> None: ...


class McpChannelMessageQueue:
    """Queue of pushed messages. Each message is journaled before it waits; dropped messages are counted."""

    def __init__(self, session: McpChannelSession) -> None:
        self._session = session
        self._waiting: set[str] = set()
        self._dropped: Counter[str] = Counter()

    def receive_pushed_message(self, server: str, push: McpChannelMessage) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._count_dropped_message(server)
            return
        dropped = self._dropped.pop(server, 0)
        text = format_mcp_channel_message(server, push)
        if dropped:
            text = f"{format_mcp_channel_drop_notice(server, dropped)}\n{text}"
        self._queue_channel_message(server, text, dropped + 1)

    def on_item_delivered(self, item: InboxItem) -> None:
        """Report the number of dropped messages once the lead has received all waiting ones."""
        if item.id not in self._waiting:
            return
        self._waiting.discard(item.id)
        if not self._waiting:
            dropped, self._dropped = self._dropped, Counter()
            for server, count in dropped.items():
                self._queue_channel_message(server, format_mcp_channel_drop_notice(server, count), count)

    def _queue_channel_message(self, server: str, text: str, message_count: int) -> None:
        wakes = self._session.can_be_woken
        try:
            self._waiting.add(self._session.queue_message(user_message(text), by="runtime", wakes=wakes))
        except StateFileError:
            # The journal cannot be written, which ends the turn elsewhere. The count is reported once it can.
            self._dropped[server] += message_count

    def _count_dropped_message(self, server: str) -> None:
        self._dropped[server] += 1
        if self._dropped[server] == 1:
            with suppress(StateFileError):
                self._session.note(
                    f"The channel server:{server} sends messages faster than the lead reads them: "
                    f"{MAX_WAITING} are waiting, so Shoal drops further ones and tells the lead how many."
                )
