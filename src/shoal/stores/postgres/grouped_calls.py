"""Calls that wait at the same time and are executed together, because a process may have many members."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from shoal.stores.postgres.database_worker import DatabaseWorker

Q = TypeVar("Q")
R = TypeVar("R")
_MAX_GROUP = 500

GroupExecution: TypeAlias = Callable[["DatabaseWorker", list[Q]], Awaitable[Sequence[R | Exception]]]
"""Gets the requests of a group, and returns the result or the error of each."""


class GroupedCalls(Generic[Q, R]):
    """While a group is executed, the next one collects. All methods run in the client's thread."""

    def __init__(self, execute: GroupExecution[Q, R]) -> None:
        self._execute = execute
        self._waiting: list[tuple[Q, asyncio.Future[R]]] = []
        self._is_running = False

    async def call(self, worker: DatabaseWorker, request: Q) -> R:
        """Execute the request in the next group."""
        received: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, received))
        if not self._is_running:
            # In the caller's task: a call that is alone needs no other one.
            self._is_running = True
            try:
                while self._waiting and not received.done():
                    await self._execute_group(worker)
            finally:
                self._is_running = False
                if self._waiting:
                    worker.start_task(self._execute_waiting(worker))
        return await received

    async def _execute_waiting(self, worker: DatabaseWorker) -> None:
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._waiting:
                await self._execute_group(worker)
        finally:
            self._is_running = False

    async def _execute_group(self, worker: DatabaseWorker) -> None:
        group, self._waiting = self._waiting[:_MAX_GROUP], self._waiting[_MAX_GROUP:]
        try:
            results = await self._execute(worker, [request for request, _ in group])
        except Exception as error:  # noqa: BLE001 - each caller gets it
            for _, received in group:
                if not received.done():
                    received.set_exception(error)
            return
        for (_, received), result in zip(group, results, strict=True):
            if received.done():
                continue
            if isinstance(result, Exception):
                received.set_exception(result)
            else:
                received.set_result(result)
