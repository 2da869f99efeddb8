"""Channels: MCP servers named by the user that may push messages to the lead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from shoal.core.arrivals import Item
from shoal.core.errors import SettingsError, StoreError
from shoal.core.events import Speaker
from shoal.core.mcp import Push
from shoal.core.messages import Message, user
from shoal.wire.notices import channel_message, channel_overflow

KIND = "server:"
MOST_WAITING = 50
"""Maximum number of messages that wait for the lead, over all channels."""


def named_channels(given: Iterable[str], where: str) -> frozenset[str]:
    """Parse the names of servers. Raises `SettingsError`."""
    names: set[str] = set()
    for entry in (part.strip() for text in given for part in text.split(",")):
        name = entry.removeprefix(KIND)
        if not entry.startswith(KIND) or not name:
            raise SettingsError(
                f"{where}: {entry!r} names no channel. Write server: and the name of an MCP server, "
                "as in server:chat; `shoal mcp ls` lists them."
            )
        names.add(name)
    return frozenset(names)


class Hearer(Protocol):
    """Methods of the session that channels use."""

    @property
    def may_be_woken(self) -> bool: ...

    def queue_up(self, message: Message, *, by: Speaker, wakes: bool) -> str: ...

    def note(self, text: str) -> None: ...


class Channels:
    """Queue of pushed messages. Each message is journaled before it waits; dropped messages are counted."""

    def __init__(self, session: Hearer, names: frozenset[str]) -> None:
        self.names = names
        self._session = session
        self._waiting: set[str] = set()
        self._dropped: Counter[str] = Counter()

    def push(self, server: str, push: Push) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._drop(server)
            return
        missed = self._dropped.pop(server, 0)
        text = channel_message(server, push)
        if missed:
            text = f"{channel_overflow(server, missed)}\n{text}"
        self._put(server, text, missed + 1)

    def entered(self, item: Item) -> None:
        """Report the number of dropped messages once the lead has received all waiting ones."""
        if item.id not in self._waiting:
            return
        self._waiting.discard(item.id)
        if not self._waiting:
            dropped, self._dropped = self._dropped, Counter()
            for server, count in dropped.items():
                self._put(server, channel_overflow(server, count), count)

    def unknown(self, servers: Iterable[str]) -> tuple[str, ...]:
        missing = sorted(self.names.difference(servers))
        return tuple(
            f"The channel server:{name} is not there: no MCP server {name} is configured and switched on. "
            "`shoal mcp ls` lists them."
            for name in missing
        )

    def _put(self, server: str, text: str, messages: int) -> None:
        wakes = self._session.may_be_woken
        try:
            self._waiting.add(self._session.queue_up(user(text), by="runtime", wakes=wakes))
        except StoreError:
            # The journal cannot be written, which ends the turn elsewhere. The count is reported once it can.
            self._dropped[server] += messages

    def _drop(self, server: str) -> None:
        self._dropped[server] += 1
        if self._dropped[server] == 1:
            with suppress(StoreError):
                self._session.note(
                    f"The channel server:{server} sends more than the lead takes in: {MOST_WAITING} messages "
                    "wait, and more are dropped. The lead is told how many."
                )
