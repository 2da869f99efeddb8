"""Hints from the database, delivered in the event loop that waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shoal.stores.postgres.database_client import DatabaseClient


class HintSubscription:
    """Calls `on_hint` in the event loop that created it, soon after a hint; with None if some were missed."""

    def __init__(self, client: DatabaseClient, channel: str, on_hint: Callable[[str | None], None]) -> None:
        self._client = client
        self._channel = channel
        self._on_hint = on_hint
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._payloads: dict[str | None, None] = {}
        """Hints that were received and not delivered."""

    async def start(self) -> None:
        await self._client.call(lambda worker: worker.listen(self._channel, self._receive))

    def start_and_wait(self) -> None:
        self._client.run(lambda worker: worker.listen(self._channel, self._receive))

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            if self._client.is_usable:
                self._client.send(
                    lambda worker: worker.start_task(worker.unlisten(self._channel, self._receive))
                )

    def _receive(self, payload: str | None) -> None:
        # The event loop is woken once for all hints that wait.
        is_first = not self._payloads
        self._payloads[payload] = None
        if is_first:
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                self._is_closed = True  # its event loop was closed

    def _deliver(self) -> None:
        payloads, self._payloads = self._payloads, {}
        for payload in payloads:
            if not self._is_closed:
                self._on_hint(payload)


class PostgresWatch(HintSubscription):
    """Calls `on_change` after changes; many changes at once are one call."""

    def __init__(self, client: DatabaseClient, channel: str, on_change: Callable[[], None]) -> None:
        super().__init__(client, channel, self._schedule)
        self._on_change = on_change
        self._is_scheduled = False

    def _schedule(self, _payload: str | None) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._call)

    def _call(self) -> None:
        self._is_scheduled = False
        if not self._is_closed:
            self._on_change()
